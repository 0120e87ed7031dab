"""How a run ended: its results, where they are, what it cost, and how to resume."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from backstay.core.display import one_line, show_ceiling, show_count, show_money, show_seconds
from backstay.core.failures import Failure
from backstay.core.ids import show_item
from backstay.core.models import ANSWER_FLAWS
from backstay.run.result_file import EndedRequest
from backstay.store.job_views import FailureGroup

SUCCEEDED, FAILED, BUDGET, REFUSED, INTERRUPTED = 0, 3, 7, 9, 130
EXIT_CODES: Final = {
    SUCCEEDED: "every request succeeded",
    FAILED: "finished, but some requests failed",
    BUDGET: "stopped by the budget",
    REFUSED: "the provider refused the first requests; run the same command again to resume",
    INTERRUPTED: "interrupted; run the same command again to resume",
}
GROUPS_MAX: Final = 10
MESSAGE_CHARACTERS_MAX: Final = 160


class Ending(StrEnum):
    """Why a run ended."""

    DONE = "done"
    BUDGET = "budget"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    TRIED = "tried"  # with `--try`: only the first requests are sent


def exit_code(ending: Ending, left: int, failed: int) -> int:
    """`failed` counts all that ended without success. With nothing left a run is done, whatever stopped it."""
    if left and ending is Ending.BUDGET:
        return BUDGET
    if left and ending is Ending.INTERRUPTED:
        return INTERRUPTED
    if left and ending is Ending.REFUSED:
        return REFUSED
    return FAILED if failed or (left and ending is not Ending.TRIED) else SUCCEEDED


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
    unknown_micros: int = 0  # the part of what is reserved that may have been paid
    budget_micros: int | None = None
    next_micros: int | None = None  # the most that the next request may cost, which did not fit under the budget
    reused: int = 0  # of those that succeeded: with the answer of an earlier run, at no cost
    repeats: int = 0
    truncated: int = 0  # answers that are not whole, whether they count as failures or not
    refused: int = 0
    filtered: int = 0
    unfinished: int = 0
    unknown: int = 0  # requests whose outcome is not known
    late: int = 0  # requests whose answer came after the deadline, and is kept
    answered: Mapping[str, int] = field(default_factory=dict)  # by provider, in a run with fallbacks
    on_hold: Mapping[str, str] = field(default_factory=dict)  # of these providers: why nothing is sent to one now
    copies: int = 0  # requests beyond `total` that share the reply of another
    skipped_lines: int = 0  # that could not be sent
    rows_missing: int = 0  # of the table: rows without a result yet
    groups: Sequence[FailureGroup] = ()
    examples: Mapping[int, EndedRequest] = field(default_factory=dict)  # of the groups, by item
    batch_requests_min: int = 1  # a run in batches: the fewest that its provider takes
    refusal: Failure | None = None  # the refusal in the first replies, if that stopped the run

    @property
    def left(self) -> int:
        return max(self.total - self.succeeded - self.failed - self.cancelled, 0)

    @property
    def is_try(self) -> bool:
        """Whether only the first requests were to be sent, and others are left."""
        return self.ending is Ending.TRIED and self.left > 0

    @property
    def exit_code(self) -> int:
        return exit_code(self.ending, self.left, self.failed + self.cancelled)

    def fields(self) -> dict[str, Any]:
        """For a program to read."""
        told = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        told["job"] = told.pop("job_id")
        del told["examples"]
        told["refusal"] = None if self.refusal is None else self.refusal.message
        told["groups"] = [self._group(group) for group in self.groups]
        return {**told, "left": self.left, "exit_code": self.exit_code}

    def _group(self, group: FailureGroup) -> dict[str, Any]:
        told = {"code": group.error_code, "items": group.items, "example": show_item(group.example)}
        example = self.examples.get(group.example)
        if example is None:
            return told
        return {**told, "code": example.code, "custom_id": example.custom_id, "message": example.message}

    def lines(self) -> list[str]:
        """For a person to read: one sentence, the facts, and how to go on."""
        facts = list(_facts(self))
        width = max(len(name) for name, _ in facts)
        return [_headline(self), "", *(f"  {name:<{width}}  {fact}" for name, fact in facts), "", *_advice(self)]


def _headline(summary: Summary) -> str:
    asked = show_count(summary.total, "different request" if summary.copies else "request")
    came = [f"{summary.succeeded:,} of {asked} succeeded"]
    if summary.failed:
        came.append(f"{summary.failed:,} failed")
    if summary.cancelled:
        came.append(f"{summary.cancelled:,} cancelled")
    if summary.left:
        came.append(f"{summary.left:,} left")
    how = {
        SUCCEEDED: "is done",
        FAILED: "is done",
        BUDGET: "was stopped by its budget",
        REFUSED: "was stopped because the provider refused every request so far",
        INTERRUPTED: "was interrupted",
    }
    came_to = "has sent its first requests" if summary.is_try else how[summary.exit_code]
    return f"Job {summary.job_id} {came_to}: {', '.join(came)}, in {show_seconds(summary.seconds)}."


def _facts(summary: Summary) -> Iterator[tuple[str, str]]:
    missing = f" ({show_count(summary.rows_missing, 'row')} without a result yet)" if summary.rows_missing else ""
    yield "results", f"{summary.out}{missing}"
    if summary.answered:
        yield "answered by", ", ".join(f"{name} {number:,}" for name, number in summary.answered.items())
    for name, reason in summary.on_hold.items():
        yield "on hold", f"{name}: {one_line(reason, MESSAGE_CHARACTERS_MAX)}"
    if summary.failed + summary.cancelled:
        yield "failures", summary.errors
        for group in summary.groups[:GROUPS_MAX]:
            yield "", _kind(group, summary.examples.get(group.example))
        if len(summary.groups) > GROUPS_MAX:
            yield "", f"and {show_count(len(summary.groups) - GROUPS_MAX, 'more kind')}"
    if summary.reused:
        yield "reused", f"{show_count(summary.reused, 'answer')} of earlier runs, not sent and not paid"
    if summary.copies:
        yield (
            "copies",
            f"{show_count(summary.copies, 'more request')} with the same content; each has its own result line",
        )
    if summary.skipped_lines:
        yield "skipped", f"{show_count(summary.skipped_lines, 'bad line')}, not sent"
    if summary.input_tokens or summary.output_tokens:
        yield "tokens", f"{summary.input_tokens:,} in, {summary.output_tokens:,} out"
    yield "cost", _cost(summary)
    if flaws := [f"{number:,} {name}" for name in ANSWER_FLAWS if (number := getattr(summary, name))]:
        yield "answers", ", ".join(flaws)
    if summary.repeats:
        them = "it" if summary.repeats == 1 else "they"
        yield "lost", f"{show_count(summary.repeats, 'call')} without an answer; {them} may have been paid"
    if summary.unknown:
        them = "request" if summary.unknown == 1 else "requests"
        yield "unknown", f"{summary.unknown:,} {them} that may have been done and paid; they are listed in the failures"


def _kind(group: FailureGroup, example: EndedRequest | None) -> str:
    if example is None:
        return f"{group.items:,} {group.error_code or 'unknown'}, for example {show_item(group.example)}"
    said = f": {one_line(example.message, MESSAGE_CHARACTERS_MAX)}" if example.message else ""
    named = f"{example.custom_id} ({show_item(group.example)})"
    return f"{group.items:,} {example.code or 'unknown'}, for example {named}{said}"


def _cost(summary: Summary) -> str:
    if summary.spent_micros is None:
        return "unknown: the price of the model is not known; set it with --price"
    ceiling = "" if summary.budget_micros is None else f" of a budget of {show_ceiling(summary.budget_micros)}"
    kept = f"; {show_money(summary.reserved_micros)} more is reserved for calls with unknown cost"
    return f"{show_money(summary.spent_micros)}{ceiling}{kept if summary.reserved_micros else ''}"


def what_to_check(refusal: Failure) -> str:
    match refusal.provider_status:
        case 401 | 402 | 407:
            return "the API key, and the credit of its account"
        case 403:
            return "the permissions of the API key, and the model"
        case 404 | 405:
            return "the base URL and the model"
        case status if status is not None and status < 400:
            return "the base URL"
        case _:
            return "the requests"


def _short(summary: Summary) -> Iterator[str]:
    """Why the budget stopped the run, and how to resume it."""
    left = (summary.budget_micros or 0) - (summary.spent_micros or 0) - summary.reserved_micros
    if left < 0:
        yield f"The money already spent or reserved is {show_money(-left)} above this budget."
    elif summary.next_micros is not None:
        most = show_money(summary.next_micros)
        yield f"{show_money(left)} of the budget is left, and the next request may cost up to {most}."
        yield "If the request sets no limit on its reply, set a lower one with --max-output-tokens."
    yield "Nothing is lost. To resume, run the same command with a higher --budget."


def _advice(summary: Summary) -> Iterator[str]:
    if summary.exit_code == BUDGET:
        yield from _short(summary)
    if summary.exit_code == REFUSED and summary.refusal is not None:
        yield f"The provider says: {one_line(summary.refusal.message, MESSAGE_CHARACTERS_MAX)}"
        yield f"Check {what_to_check(summary.refusal)}. Nothing is marked as failed: run the same command again."
        yield "To keep trying anyway, add --wait."
    if summary.exit_code == INTERRUPTED:
        yield "Nothing is lost. To resume, run the same command again."
    if summary.late:
        yield f"{show_count(summary.late, 'answer')} came too late. To accept them:"
        yield f"backstay job accept-late {summary.job_id}, then the same command; or the same with --retry-failed."
    if summary.late < summary.failed < summary.batch_requests_min:
        yield "They are too few for a batch. To send them, run the same command with --lane call and another --out."
        yield "Answers that are there are used again, unless you forbid it with --new or --reuse."
    elif summary.failed > summary.late:
        yield "To retry the failed requests, run the same command with --retry-failed."
    if summary.unknown:
        yield "If the provider cannot be asked about a request, you may pay for it twice."
    if summary.unknown_micros:
        amount, command = show_money(summary.unknown_micros), f"backstay job settle-unknown {summary.job_id}"
        yield f"{amount} may have been paid. When you know: {command} --book if it was paid, --release if not."
    if summary.cancelled:
        yield "Cancelled requests stay cancelled. To send the whole file again, run it with --new and another --out."
    means = EXIT_CODES[summary.exit_code]
    if summary.is_try and summary.exit_code == SUCCEEDED:
        means = "every request that was sent succeeded"
    yield f"Exit code {summary.exit_code}: {means}."
