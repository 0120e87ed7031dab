"""Scripts for where requests go: endpoints and their paces."""

from collections.abc import Sequence

from backstay.core.pace import Answers, Pace, start_ceiling
from backstay.store.claim import locked_pace, save_pace
from backstay.store.queries import Ask, Script


def save_endpoint(name: str, spec: str) -> Script[None]:
    yield Ask("save_endpoint", {"name": name, "spec": spec})


def add_copies(copies: Sequence[tuple[int, int, str]]) -> Script[None]:
    yield Ask("add_copies", batch=copies)


def endpoints(open_only: bool) -> Script[list[tuple[str, str]]]:
    rows = yield Ask("open_endpoints" if open_only else "all_endpoints")
    return [(row["name"], row["spec"]) for row in rows]


def set_pace(
    provider: str, requests_per_minute: int | None, tokens_per_minute: int | None, concurrency: int
) -> Script[None]:
    yield Ask(
        "set_pace",
        {
            "provider": provider,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "concurrency": concurrency,
            "ceiling": start_ceiling(concurrency),
        },
    )


def judge_pace(provider: str, answers: Answers) -> Script[tuple[Pace, int]]:
    """What a worker saw becomes what all workers keep to; returns it with the database's time."""
    pace, now = yield from locked_pace(provider)
    after = answers.verdict(pace, now)
    if after != pace:
        yield from save_pace(after)
    return after, now
