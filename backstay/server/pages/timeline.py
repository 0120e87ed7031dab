"""What happened to an item, attempts and waits alike, each wait with its reason."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from backstay.core.breaker import BreakerState, act_of
from backstay.core.display import show_span
from backstay.core.outcomes import ASKED_AGAIN
from backstay.store.item_views import AttemptView, ItemDetail
from backstay.store.story import EventView, is_no_try

WAIT_MS_MIN: Final = 1_000  # shorter ones are nobody's business
HELD_STATES: Final = {act_of(state): state for state in (BreakerState.OPEN, BreakerState.HELD)}
AFRESH: Final = ("retried", "replayed")  # after these an item waits again

Kind = Literal["", "good", "bad", "warn", "wait"]


class Entry(NamedTuple):
    at: int
    kind: Kind
    what: str
    details: tuple[str, ...] = ()
    attempt: AttemptView | None = None


class Mark(NamedTuple):
    """From when on it waited, and after which attempt."""

    at: int
    attempt: AttemptView | None = None


class Around(NamedTuple):
    """What happened elsewhere and kept items waiting; the oldest first."""

    provider: str
    breaker: Sequence[EventView] = ()
    job: Sequence[EventView] = ()


def story(item: ItemDetail, attempts: Sequence[AttemptView], acts: Sequence[EventView], around: Around) -> list[Entry]:
    """In the order of time."""
    entries = [Entry(item.created_at, "", "Submitted")]
    entries += [_act(act) for act in acts]
    marks: list[Mark] = [Mark(item.created_at), *(Mark(act.at) for act in acts if act.act in AFRESH)]
    for attempt, last in zip(attempts, [None, *attempts], strict=False):
        started = _began(item, attempt, last)
        known = [mark for mark in marks if mark.at <= started]
        since, before = max(known, default=Mark(started), key=lambda mark: mark.at)
        # What has no end of its own try was sent all the same, if it began after the wait did: as a provider's task.
        sent = attempt.started_at if since <= attempt.started_at < started else started
        if sent - since >= WAIT_MS_MIN:
            entries.append(_wait(since, sent, before, around))
        if started - sent >= WAIT_MS_MIN:
            entries.append(Entry(sent, "wait", f"Waited {show_span(started - sent)}", ("for the provider's answer",)))
        entries.append(_end(attempt, started) if is_no_try(attempt, last) else _attempt(attempt, started))
        marks.append(Mark(attempt.ended_at or started, attempt))
    return sorted(entries, key=lambda entry: entry.at)


def _began(item: ItemDetail, attempt: AttemptView, last: AttemptView | None) -> int:
    """When its wait was over: with the try, or with the end that came instead of one."""
    end = attempt.ended_at or item.finished_at or item.created_at
    return end if is_no_try(attempt, last) else attempt.started_at or end


def _end(attempt: AttemptView, at: int) -> Entry:
    said = (attempt.error_code,) if attempt.error_code else ()
    return Entry(
        at,
        "bad" if attempt.outcome == "failed" else "",
        f"Ended without another attempt: {attempt.outcome}",
        said,
        attempt,
    )


def _attempt(attempt: AttemptView, started: int) -> Entry:
    kinds: dict[str, Kind] = {
        "succeeded": "good",
        "failed": "bad",
        "retry": "warn",
        "unknown": "warn",
        ASKED_AGAIN: "warn",
    }
    took = max((attempt.ended_at or started) - started, 0)
    said = [f"took {show_span(took)}" if took >= 1_000 else f"took {took} ms"]
    if attempt.provider_status is not None:
        said.append(f"the provider answered {attempt.provider_status}")
    if attempt.error_code:
        said.append(attempt.error_code)
    what = f"Call {attempt.number}: {attempt.outcome.replace('_', ' ')}"
    return Entry(started, kinds.get(attempt.outcome, ""), what, tuple(said), attempt)


def _act(act: EventView) -> Entry:
    words = {
        "retried": "Retried",
        "replayed": "Replayed",
        "repeat": "Sent again",
        "late_accepted": "Late result accepted",
    }
    what = words.get(act.act, act.act.replace("_", " ").capitalize())
    return Entry(act.at, "", what, (act.detail,) if act.detail else ())


def _wait(since: int, until: int, before: AttemptView | None, around: Around) -> Entry:
    reasons = [*_holds(since, until, around), *_pauses(since, until, around)]
    if before is not None and before.error_code:
        reasons.append(f"for a retry after {before.error_code}")
    return Entry(since, "wait", f"Waited {show_span(until - since)}", tuple(reasons or ["in the queue of its handler"]))


def _holds(since: int, until: int, around: Around) -> Iterator[str]:
    for start, end, word, detail in _stretches(around.breaker):
        if start < until and (end is None or end > since):
            because = f": {detail}" if detail else ""
            yield f"provider {around.provider} was {word}{because}"


def _stretches(events: Sequence[EventView]) -> Iterator[tuple[int, int | None, str, str]]:
    """When a breaker let nothing through: from, to, in which state, why."""
    began: tuple[int, str, str] | None = None
    for event in events:
        state = HELD_STATES.get(event.act)
        if began is not None and state is None:
            yield began[0], event.at, began[1], began[2]
            began = None
        elif began is None and state is not None:
            began = (event.at, state.value, event.detail or "")
    if began is not None:
        yield began[0], None, began[1], began[2]


def _pauses(since: int, until: int, around: Around) -> Iterator[str]:
    paused_at: int | None = None
    for event in around.job:
        if event.act == "paused":
            paused_at = event.at
        elif event.act == "resumed" and paused_at is not None:
            if paused_at < until and event.at > since:
                yield "its job was paused"
            paused_at = None
    if paused_at is not None and paused_at < until:
        yield "its job was paused"
