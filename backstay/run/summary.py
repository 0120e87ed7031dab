"""How a run ended: what came of it, where it is, what it cost, and how to go on."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backstay.core.ids import show_item
from backstay.run.figures import show_count, show_money, show_seconds
from backstay.store.views import FailureGroup

SUCCEEDED, FAILED, BUDGET, INTERRUPTED = 0, 3, 7, 130
EXIT_CODES: Final = {
    SUCCEEDED: "every request succeeded",
    FAILED: "finished, and some requests failed",
    BUDGET: "stopped by the budget",
    INTERRUPTED: "interrupted; the same command goes on",
}
GROUPS_MAX: Final = 10


class Ending(StrEnum):
    """Why a run came to its end."""

    DONE = "done"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"


def exit_code(ending: Ending, left: int, failed: int) -> int:
    """`failed` counts all that ended without success. With nothing left a run is done, whatever stopped it."""
    if left and ending is Ending.BUDGET:
        return BUDGET
    if left and ending is Ending.INTERRUPTED:
        return INTERRUPTED
    return FAILED if failed or left else SUCCEEDED


@dataclass(frozen=True, slots=True)
class Summary:
    """Money is in micro-dollars; None is unknown, never nothing."""

    job_id: int
    ending: Ending
    total: int
    succeeded: int
    failed: int = 0
    cancelled: int = 0
    seconds: float = 0.0  # of this process
    out: str = "stdout"
    errors: str = "stderr"
    input_tokens: int = 0
    output_tokens: int = 0
    spent_micros: int | None = None
    reserved_micros: int = 0
    budget_micros: int | None = None
    repeats: int = 0
    unknown: int = 0  # requests whose outcome nobody knows
    groups: Sequence[FailureGroup] = ()

    @property
    def left(self) -> int:
        return max(self.total - self.succeeded - self.failed - self.cancelled, 0)

    @property
    def exit_code(self) -> int:
        return exit_code(self.ending, self.left, self.failed + self.cancelled)

    def fields(self) -> dict[str, Any]:
        """For a program to read."""
        told = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        told["job"] = told.pop("job_id")
        told["groups"] = [
            {"code": group.error_code, "items": group.items, "example": show_item(group.example)}
            for group in self.groups
        ]
        return {**told, "left": self.left, "exit_code": self.exit_code}

    def lines(self) -> list[str]:
        """For a person to read: a sentence, what there is to know, and how to go on."""
        facts = list(_facts(self))
        width = max(len(name) for name, _ in facts)
        return [_headline(self), "", *(f"  {name:<{width}}  {fact}" for name, fact in facts), "", *_advice(self)]


def _headline(summary: Summary) -> str:
    came = [f"{summary.succeeded:,} of {show_count(summary.total, 'request')} succeeded"]
    if summary.failed:
        came.append(f"{summary.failed:,} failed")
    if summary.cancelled:
        came.append(f"{summary.cancelled:,} cancelled")
    if summary.left:
        came.append(f"{summary.left:,} left")
    how = {SUCCEEDED: "is done", FAILED: "is done", BUDGET: "was stopped by its budget", INTERRUPTED: "was interrupted"}
    return f"Job {summary.job_id} {how[summary.exit_code]}: {', '.join(came)}, in {show_seconds(summary.seconds)}."


def _facts(summary: Summary) -> Iterator[tuple[str, str]]:
    yield "results", summary.out
    if summary.failed + summary.cancelled:
        yield "failures", summary.errors
        for group in summary.groups[:GROUPS_MAX]:
            yield "", f"{group.items:,} {group.error_code or 'unknown'}, for example {show_item(group.example)}"
        if len(summary.groups) > GROUPS_MAX:
            yield "", f"and {show_count(len(summary.groups) - GROUPS_MAX, 'more kind')}"
    if summary.input_tokens or summary.output_tokens:
        yield "tokens", f"{summary.input_tokens:,} in, {summary.output_tokens:,} out"
    yield "cost", _cost(summary)
    if summary.repeats:
        yield "repeated", f"{show_count(summary.repeats, 'call')} sent again although the first may have been paid"
    if summary.unknown:
        them = "request" if summary.unknown == 1 else "requests"
        yield "unknown", f"{summary.unknown:,} {them} that may have been done and paid; they stand in the failures"


def _cost(summary: Summary) -> str:
    if summary.spent_micros is None:
        return "unknown: no price is known; --price gives one"
    ceiling = "" if summary.budget_micros is None else f" of a budget of {show_money(summary.budget_micros)}"
    kept = f"; {show_money(summary.reserved_micros)} more is reserved for calls whose cost is not known"
    return f"{show_money(summary.spent_micros)}{ceiling}{kept if summary.reserved_micros else ''}"


def _advice(summary: Summary) -> Iterator[str]:
    if summary.exit_code == BUDGET:
        yield "Nothing is lost. To go on, run the same command with a higher --budget."
    if summary.exit_code == INTERRUPTED:
        yield "Nothing is lost. To go on, run the same command again."
    if summary.failed:
        yield "To try what failed once more, run the same command with --retry-failed."
    yield f"Exit code {summary.exit_code}: {EXIT_CODES[summary.exit_code]}."
