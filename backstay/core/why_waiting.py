"""Why an item is not running. Each sentence says what to do or how long to wait."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from backstay.core.breaker import Breaker, BreakerState
from backstay.core.display import NextCommand, Sentence, TimePoint
from backstay.core.money import Budget, describe_budget
from backstay.core.pace import Pace, waits_ms
from backstay.core.states import TERMINAL, ItemState, JobState, StopReason

AHEAD_MAX = 1_000  # counting stops here


class Reason(NamedTuple):
    """`code` is for programs, `text` for people; `until_at` is when it ends by itself, if that is known. A text that
    contains times or commands is a Sentence."""

    code: str
    text: str
    until_at: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """All facts that decide whether an item runs."""

    now: int
    job_id: int
    job_state: JobState
    stop_reason: str | None
    state: ItemState
    handler: str
    due_at: int | None = None
    leased_by: str | None = None
    lease_expires_at: int | None = None
    reconcile_after: int | None = None
    last_attempt_at: int | None = None
    finished_at: int | None = None
    error_code: str | None = None
    last_message: str | None = None
    provider_task_id: str | None = None
    breaker: Breaker | None = None
    pace: Pace | None = None  # of its handler
    job_short: bool = False  # the job's next item does not fit under its ceiling
    shared_budget: Budget | None = None  # or under this one, which it shares with other jobs
    timeout_at: int | None = None  # when its job fails
    live_workers: int = 0  # workers that run its handler
    is_request: bool = False  # an LLM request of a run: its worker needs no application
    ahead: int = 0
    waits_for: tuple[str, ...] | None = None  # the jobs that must end before its job starts

    @property
    def is_short(self) -> bool:
        """Whether a budget holds it: that of its job, or a shared one that covers its own handler."""
        shared = self.shared_budget
        return self.job_short and (shared is None or shared.covers(shared.owner, self.handler))


def why_not_running(item: Standing) -> list[Reason]:
    """Every reason that applies now, the strongest first. A running or finished item has that as its reason."""
    if item.state in TERMINAL:
        return [_finish_reason(item)]
    return [
        *_job_reasons(item),
        *_item_reasons(item),
        *_provider_reasons(item),
        *_rate_reasons(item),
        *_worker_reasons(item),
        *_queue_reasons(item),
    ]


def why_job_waits(*standings: Standing) -> list[Reason]:
    """The reasons that apply to every waiting item of a job; empty if there are none. `standings` has one item for each
    handler of the job. With several handlers, each reason names its handler."""
    reasons: list[Reason] = []
    for job in standings:
        reasons += _job_reasons(job)
        for reason in (*_provider_reasons(job), *_rate_reasons(job), *_worker_reasons(job)):
            of = Sentence(f"items of handler {job.handler}: ", reason.text) if len(standings) > 1 else reason.text
            reasons.append(reason._replace(text=of))
    return list(dict.fromkeys(reasons))


def _finish_reason(item: Standing) -> Reason:
    when = "" if item.finished_at is None else Sentence(" since ", TimePoint(item.finished_at, item.now))
    why = f": {_error(item)}" if item.state is ItemState.FAILED else ""
    return Reason("finished", Sentence(f"the item is finished: {item.state}", when, why))


def _error(item: Standing) -> str:
    return ": ".join(part for part in (item.error_code, item.last_message) if part) or "no reason was recorded"


def _job_reasons(item: Standing) -> Iterator[Reason]:
    if item.stop_reason == StopReason.CANCEL:
        yield Reason("job_cancelling", f"job {item.job_id} is being cancelled: the item will not start")
    elif item.stop_reason == StopReason.TIMEOUT:
        yield Reason("job_timed_out", f"job {item.job_id} exceeded its maximum runtime: its items are being failed")
    elif item.job_state is JobState.PAUSED:
        resume = NextCommand(f"job resume {item.job_id}")
        yield Reason("job_paused", Sentence(f"job {item.job_id} is paused; to resume: ", resume))
    if item.waits_for:
        jobs = f"job {item.waits_for[0]}" if len(item.waits_for) == 1 else f"jobs {', '.join(item.waits_for)}"
        yield Reason("waits_for_jobs", f"job {item.job_id} waits for {jobs}: it starts when all of them have ended")
    if item.is_short and item.state is ItemState.QUEUED:
        if item.shared_budget is not None:
            yield _budget_reason(item, item.shared_budget)
            return
        go_on = "to resume: the same `backstay run` or `backstay submit` with a higher --budget"
        yield Reason("budget_reached", f"the next item of job {item.job_id} could exceed its budget; {go_on}")


def _budget_reason(item: Standing, budget: Budget) -> Reason:
    text = f"the next item of job {item.job_id} could exceed {describe_budget(budget)}; "
    ends_at, fails_at = budget.ends_at, None if item.job_state is JobState.PAUSED else item.timeout_at
    if ends_at is not None and fails_at is not None and fails_at < ends_at:
        return Reason("budget_reached", Sentence(text, _fails_first(item, fails_at, ends_at)))
    ends = "" if ends_at is None else Sentence("wait until ", TimePoint(ends_at, item.now), ", or ")
    return Reason("budget_reached", Sentence(text, ends, "set a higher one: ", NextCommand("budget set")), ends_at)


def _fails_first(item: Standing, fails_at: int, ends_at: int) -> Sentence:
    """For a job that fails before the next period begins, so that waiting does not help."""
    pause = NextCommand(f"job pause {item.job_id}")
    return Sentence(
        "the job fails at its time limit, ",
        TimePoint(fails_at, item.now),
        ", before the next period begins at ",
        TimePoint(ends_at, item.now),
        "; set a higher budget: ",
        NextCommand("budget set"),
        ", or pause the job until then, because a pause stops the time limit: ",
        pause,
    )


def _item_reasons(item: Standing) -> Iterator[Reason]:
    """The reasons in the item's own row."""
    if item.state is ItemState.SUBMITTING:
        yield _submit_reason(item)
    elif item.state is ItemState.PROCESSING:
        yield _task_reason(item)
    elif item.due_at is not None and item.due_at > item.now:
        last = f"; the last attempt failed with {_error(item)}" if item.error_code else ""
        text = Sentence("the item waits until ", TimePoint(item.due_at, item.now), last)
        yield Reason("waits_for_retry", text, item.due_at)


def _submit_reason(item: Standing) -> Reason:
    expires_at = item.lease_expires_at or 0
    if expires_at > item.now:
        since = "" if item.last_attempt_at is None else Sentence(" since ", TimePoint(item.last_attempt_at, item.now))
        lease = Sentence("; its lease ends ", TimePoint(expires_at, item.now), " unless extended")
        return Reason("running", Sentence(f"it is running on worker {item.leased_by}", since, lease))
    ask_at = max(expires_at, item.reconcile_after or 0)
    if ask_at > item.now:
        when: str = Sentence("after ", TimePoint(ask_at, item.now), " at the latest")
    else:
        when = "at the next sweep by a worker that runs its handler"
    how = "its worker was lost" if item.leased_by is not None else "the outcome of its last call is unknown"
    text = Sentence(f"{how}; a worker asks the provider about it, or runs it again, ", when)
    return Reason("worker_lost", text, ask_at if ask_at > item.now else None)


def _task_reason(item: Standing) -> Reason:
    task = f"task {item.provider_task_id}" if item.provider_task_id else "its task"
    if item.due_at is None or item.due_at <= item.now:
        return Reason("at_provider", f"the provider works on {task}; the next poll is due now")
    text = Sentence(f"the provider works on {task}; the next poll is at ", TimePoint(item.due_at, item.now))
    return Reason("at_provider", text, item.due_at)


def _provider_reasons(item: Standing) -> Iterator[Reason]:
    breaker = item.breaker
    if breaker is None or breaker.state is BreakerState.CLOSED:
        return
    until_at = breaker.until_at if breaker.until_at is not None and breaker.until_at > item.now else None
    because = f" because {breaker.reason}" if breaker.reason else ""
    release = Sentence("until `", NextCommand(f"provider release {breaker.provider}"), "`")
    match breaker.state:
        case BreakerState.HELD:
            until = release if until_at is None else Sentence("until ", TimePoint(until_at, item.now), ", or ", release)
            text = Sentence(f"provider {breaker.provider} is held{because}, ", until)
            yield Reason("provider_held", text, until_at)
        case BreakerState.OPEN:
            due = "until its health probe succeeds" if breaker.until_at is None else "and a new attempt is due now"
            until = Sentence(due) if until_at is None else Sentence("until ", TimePoint(until_at, item.now))
            text = Sentence(f"the breaker of provider {breaker.provider} is open{because}, ", until)
            yield Reason("breaker_open", text, until_at)
        case BreakerState.HALF_OPEN:
            tried = f"provider {breaker.provider} gets a few items as a test{because}"
            yield Reason("breaker_half_open", f"{tried}; the other items follow when these succeed")
        case _:
            assert_never(breaker.state)


def _rate_reasons(item: Standing) -> Iterator[Reason]:
    if item.pace is None or item.state is not ItemState.QUEUED:
        return
    next_at = item.now + waits_ms(item.pace, item.now)
    if next_at <= max(item.now, item.due_at or 0):
        return
    whose, when = "its provider" if item.is_request else f"handler {item.handler!r}", TimePoint(next_at, item.now)
    if item.pace.resume_at > item.now:
        calls = "the next call" if item.is_request else f"the next call of {whose}"
        yield Reason("rate_limit", Sentence(f"the provider asked for a pause: {calls} is at ", when), next_at)
    else:
        yield Reason("rate_limit", Sentence(f"the rate limit of {whose} allows the next call at ", when), next_at)


def _worker_reasons(item: Standing) -> Iterator[Reason]:
    if item.live_workers == 0 and not _has_live_lease(item):
        command = NextCommand("worker") if item.is_request else "backstay worker --app PACKAGE.MODULE:NAME"
        same = ", or run the same `backstay run` again" if item.is_request else ""
        text = Sentence(f"no live worker runs handler {item.handler!r}; start one: ", command, same)
        yield Reason("no_worker", text)


def _has_live_lease(item: Standing) -> bool:
    return item.state is ItemState.SUBMITTING and (item.lease_expires_at or 0) > item.now


def _queue_reasons(item: Standing) -> Iterator[Reason]:
    if item.state is not ItemState.QUEUED or (item.due_at is not None and item.due_at > item.now):
        return
    if item.ahead == 0:
        yield Reason("next", "no item is ahead of it in the queue of its handler")
    else:
        count = f"{AHEAD_MAX:,} or more items are" if item.ahead >= AHEAD_MAX else f"{item.ahead:,} items are"
        yield Reason(
            "items_ahead", f"{'1 item is' if item.ahead == 1 else count} ahead of it in the queue of its handler"
        )
