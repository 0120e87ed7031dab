"""The one place that decides an item's next state from an outcome."""

from dataclasses import replace
from random import Random
from typing import assert_never

from backstay.core.failures import RETRY_AFTER_FLOOR_MS, ErrorCode, Failure, FailureKind, next_delay_ms
from backstay.core.limits import has_timed_out, is_past_deadline
from backstay.core.models import (
    Act,
    Attempt,
    AttemptOutcome,
    CannotAsk,
    Claimed,
    Delivery,
    Failed,
    Flaw,
    HandedBack,
    Interrupted,
    NeverArrived,
    Outcome,
    Running,
    Settlement,
    Skipped,
    Stopped,
    Submitted,
    Succeeded,
    Terms,
    fall_back,
)
from backstay.core.money import account
from backstay.core.states import ItemState

APART_MS = 5_000
LATE_POLL_MS = 60_000  # between two looks at a task whose item has run out of time
FREE_PROBES_MAX = 3  # failed probes of one item that cost no attempt; later ones do


def decide(item: Claimed, outcome: Outcome, terms: Terms, now_ms: int, rng: Random) -> Settlement:
    """The item's next state. Pure: the same arguments give the same settlement."""
    settlement = _settlement(item, outcome, terms, now_ms, rng)
    if terms.fallback is not None:
        settlement = fall_back(item, outcome, terms, settlement, now_ms)
    return account(item, outcome, settlement)


def _settlement(item: Claimed, outcome: Outcome, terms: Terms, now_ms: int, rng: Random) -> Settlement:
    match outcome:
        case Succeeded():
            if item.deadline_at is not None and is_past_deadline(item.deadline_at, now_ms):
                return _settle_late_success(item, outcome, now_ms)
            return _settle_success(item, outcome, now_ms)
        case Skipped():
            return _settle_skip(item, outcome, now_ms)
        case Stopped():
            return _settle_stop(item, outcome, terms, now_ms)
        case HandedBack():
            delay_ms = int(rng.uniform(0, APART_MS if outcome.apart else 0))
            return _give_back(item, Act.HANDED_BACK, outcome.reason)._replace(delay_ms=delay_ms)
        case Submitted():
            return _poll_next(item, terms, outcome, outcome.provider_task_id, outcome.account)
        case Running():
            if has_timed_out(item.queued_at, now_ms, terms.limits):
                ended = _time_out(item, terms, now_ms, "the task at the provider never ended")
                # Its result is paid for, so the provider is asked for it for some time longer.
                return ended._replace(flaw=Flaw.UNKNOWN, delay_ms=LATE_POLL_MS)
            return _poll_next(item, terms, outcome, item.provider_task_id, item.account)
        case Interrupted():
            return _settle_interruption(item, terms, now_ms)
        case NeverArrived():
            return _settle_never_arrived(item, terms, now_ms)
        case CannotAsk():
            return _settle_cannot_ask(item, terms, now_ms, rng)
        case Failed():
            return _settle_failure(item, outcome, terms, now_ms, rng)
        case _:
            assert_never(outcome)


def _settle_success(item: Claimed, outcome: Succeeded, now_ms: int) -> Settlement:
    """Nearly every item ends here, so the tuple is made by position: keyword arguments would double the time."""
    calls = _calls(item)
    used = outcome.usage or (None, None, None)
    attempt = Attempt(
        item.id,
        item.fence,
        calls,
        AttemptOutcome.SUCCEEDED,
        item.started_at,
        max(now_ms, item.started_at),
        None,
        None,
        outcome.provider_status,
        outcome.result,
        *used,
    )
    return Settlement(
        item.id,
        item.fence,
        None,
        item.provider_task_id,
        item.state,
        ItemState.SUCCEEDED,
        item.attempt_count + 1,
        calls,
        item.round,
        item.rescues,
        item.repeats,
        item.account,
        None,
        0,
        None,
        outcome.flaw,
        attempt=attempt,
    )


def _calls(item: Claimed) -> int:
    """How many calls were made for the item, including this one; a task is one call, however often it is polled."""
    return item.calls + 1 if item.state == ItemState.SUBMITTING or item.calls == 0 else item.calls


def _settle_late_success(item: Claimed, outcome: Succeeded, now_ms: int) -> Settlement:
    """The deadline has passed, so the item has failed. Its result is kept as a late result, which a person may
    accept."""
    failure = Failure(ErrorCode.GW_TIMEOUT, FailureKind.BUSINESS, "the deadline passed before the result arrived")
    late = Failed(failure, outcome.usage, reply=outcome.result, flaw=Flaw.LATE)
    settled = _end(item, ItemState.FAILED, now_ms, outcome=late, timed_out=1)
    return settled._replace(late_result=outcome.result)


def _settle_skip(item: Claimed, outcome: Skipped, now_ms: int) -> Settlement:
    """A handler may have paid for a call before it skips the item."""
    settled = _end(item, ItemState.SKIPPED, now_ms, message=outcome.reason)
    if outcome.usage is None or settled.attempt is None:
        return settled
    return settled._replace(attempt=settled.attempt._replace(**outcome.usage._asdict()))


def _settle_stop(item: Claimed, outcome: Stopped, terms: Terms, now_ms: int) -> Settlement:
    """An item that was not sent is cancelled. A call that was cut off may have been paid: the provider is asked about
    it, or its outcome is unknown."""
    if not outcome.sent and not item.repeats and not item.ask_first:
        cancelled = _end(item, ItemState.CANCELLED, now_ms, message="the job was cancelled")
        return cancelled._replace(calls=item.calls) if item.state == ItemState.SUBMITTING else cancelled
    when = " during the call" if outcome.sent else ", and an earlier call may have been processed"
    failed = Failed(_unknown(f"outcome unknown: the job was cancelled{when}"))
    if outcome.sent and terms.askable and item.state == ItemState.SUBMITTING:
        return _keep_to_ask(item, failed, now_ms)
    return _end(item, ItemState.FAILED, now_ms, outcome=failed)


def _settle_failure(item: Claimed, outcome: Failed, terms: Terms, now_ms: int, rng: Random) -> Settlement:
    failure = outcome.failure
    match failure.kind:
        case FailureKind.BUSINESS:
            return _end(item, ItemState.FAILED, now_ms, outcome=outcome)
        case FailureKind.HELD:
            return _end_past_time(item, outcome, terms, now_ms) or _settle_hold(item, outcome, now_ms)
        case FailureKind.REFUSED if _is_final_refusal(item, outcome, terms):
            return _end(item, ItemState.FAILED, now_ms, outcome=outcome)
        case FailureKind.UNKNOWN if item.state == ItemState.SUBMITTING and terms.askable:
            return _keep_to_ask(item, outcome, now_ms)
        case FailureKind.UNKNOWN if terms.delivery is Delivery.AT_MOST_ONCE:
            unknown = Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, f"outcome unknown: {failure.message}")
            return _end(item, ItemState.FAILED, now_ms, outcome=Failed(unknown, outcome.usage))
        case FailureKind.THROTTLED | FailureKind.REFUSED | FailureKind.INFRASTRUCTURE | FailureKind.UNKNOWN:
            return _end_past_time(item, outcome, terms, now_ms) or _retry(item, outcome, terms, now_ms, rng)
        case _:
            assert_never(failure.kind)


def _end_past_time(item: Claimed, outcome: Failed, terms: Terms, now_ms: int) -> Settlement | None:
    """The end of an item that failed once more and whose time is over, altogether or at this provider."""
    failure = outcome.failure
    if has_timed_out(item.queued_at, now_ms, terms.limits):
        ended = _time_out(item, terms, now_ms, failure.message, outcome)
        return ended._replace(flaw=_flaw_of_last(item, outcome))
    whole_over = is_past_deadline(item.deadline_at, now_ms + 1)
    if whole_over or is_past_deadline(terms.share_ends_at(item), now_ms + 1):
        what = "the deadline passed" if whole_over else "this provider's share of the time is over"
        late = Failure(ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE, f"{what}; last: {failure.message}")
        ended = _end(item, ItemState.FAILED, now_ms, outcome=replace(outcome, failure=late), timed_out=1)
        return ended._replace(flaw=_flaw_of_last(item, outcome))
    return None


def _flaw_of_last(item: Claimed, outcome: Failed) -> Flaw | None:
    """The flaw of an item whose time is over after a failed call: an earlier call may have been processed and paid."""
    return _flaw(outcome) or (Flaw.UNKNOWN if item.repeats else None)


def _is_final_refusal(item: Claimed, outcome: Failed, terms: Terms) -> bool:
    """A second refusal is final, unless the call was a probe: then the provider may refuse every request."""
    again = item.refused_at is not None and not _is_free_probe(item, outcome)
    return again or terms.policy.attempts_max == 1


def _is_free_probe(item: Claimed, outcome: Failed) -> bool:
    return outcome.probe and item.calls - item.attempt_count < FREE_PROBES_MAX


def _is_free(item: Claimed, outcome: Failed) -> bool:
    """Whether a failed call costs no attempt."""
    return outcome.failure.kind in (FailureKind.THROTTLED, FailureKind.REFUSED) or _is_free_probe(item, outcome)


def _settle_hold(item: Claimed, outcome: Failed, now_ms: int) -> Settlement:
    """The account is refused, not the item: the item goes back, but its call is counted and shown."""
    back = _give_back(item, act=None, detail=None)
    return back._replace(
        calls=_calls(item),
        round=item.round + outcome.task_ended,
        error_code=outcome.failure.code,
        attempt=_attempt(item, AttemptOutcome.HELD, now_ms, outcome),
    )


def _retry(item: Claimed, outcome: Failed, terms: Terms, now_ms: int, rng: Random) -> Settlement:
    failure = outcome.failure
    free = _is_free(item, outcome)
    spent = item.attempt_count + (not free)
    if terms.policy.attempts_max is not None and spent >= terms.policy.attempts_max and not free:
        return _end(item, ItemState.FAILED, now_ms, outcome=outcome)
    repeat = failure.kind is FailureKind.UNKNOWN
    delay_ms = next_delay_ms(terms.policy, max(spent - 1, 0), failure.retry_after_ms, rng)
    delay_ms = max(delay_ms, RETRY_AFTER_FLOOR_MS if free else 0)  # a free try must not follow at once
    asks_again = outcome.flaw is Flaw.INVALID
    return Settlement(
        item.id,
        item.fence,
        was=item.state,
        state=ItemState.QUEUED,
        attempt_count=spent,
        calls=_calls(item),
        round=item.round + outcome.task_ended,
        rescues=item.rescues,
        repeats=item.repeats + repeat,
        delay_ms=None if asks_again else delay_ms,  # the provider is well: there is nothing to wait for
        error_code=failure.code,
        flaw=outcome.flaw,
        attempt=_attempt(item, AttemptOutcome.INVALID if asks_again else AttemptOutcome.RETRY, now_ms, outcome),
        act=Act.REPEAT if repeat else None,
        detail="the call may have been processed and paid; it is sent again" if repeat else None,
        moves=int(outcome.moves),
    )


def _keep_to_ask(item: Claimed, outcome: Failed, now_ms: int) -> Settlement:
    """Leaves the item submitting and gives up its lease: the worker that rescues it asks the provider first."""
    return Settlement(
        item.id,
        item.fence,
        was=item.state,
        state=ItemState.SUBMITTING,
        attempt_count=item.attempt_count + 1,
        calls=item.calls,  # counted when its outcome is known
        round=item.round,
        rescues=item.rescues,
        repeats=item.repeats,
        error_code=outcome.failure.code,
        attempt=_attempt(item, AttemptOutcome.UNKNOWN, now_ms, outcome),
    )


def _settle_interruption(item: Claimed, terms: Terms, now_ms: int) -> Settlement:
    """A shutdown costs no attempt, but the call that it cut off may have been processed and paid."""
    if terms.askable:
        kept = _keep_to_ask(item, Failed(_unknown("the worker was stopped during the call")), now_ms)
        return kept._replace(attempt_count=item.attempt_count)
    if terms.delivery is Delivery.AT_MOST_ONCE:
        message = "outcome unknown: the worker was stopped during the call"
        return _end(item, ItemState.FAILED, now_ms, outcome=Failed(_unknown(message)))
    detail = "the worker was stopped during the call; it is sent again"
    back = _give_back(item, Act.REPEAT, detail, repeats=1)
    return back._replace(calls=_calls(item))


def _settle_never_arrived(item: Claimed, terms: Terms, now_ms: int) -> Settlement:
    limit = terms.policy.attempts_max
    if has_timed_out(item.queued_at, now_ms, terms.limits):
        return _time_out(item, terms, now_ms, "the call never reached the provider")
    if (limit is not None and item.attempt_count >= limit) or item.rescues >= terms.limits.rescues_max:
        failure = Failure(ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE, "the call never reached the provider")
        return _end(item, ItemState.FAILED, now_ms, outcome=Failed(failure))
    detail = "the provider was asked: it never received the call"
    return _give_back(item, act=Act.RESCUED, detail=detail, rescues=1)


def _settle_cannot_ask(item: Claimed, terms: Terms, now_ms: int, rng: Random) -> Settlement:
    if has_timed_out(item.queued_at, now_ms, terms.limits):
        lost = _time_out(item, terms, now_ms, "the worker was lost during the call")
        return lost._replace(flaw=Flaw.UNKNOWN)
    if terms.delivery is Delivery.AT_MOST_ONCE:
        message = "outcome unknown: the worker was lost during the call"
        return _end(item, ItemState.FAILED, now_ms, outcome=Failed(_unknown(message)))
    if item.rescues >= terms.limits.rescues_max:
        message = f"outcome unknown: the worker was lost during {item.rescues + 1} calls"
        return _end(item, ItemState.FAILED, now_ms, outcome=Failed(_unknown(message)))
    detail = "the worker was lost during the call; it is sent again"
    back = _give_back(item, Act.REPEAT, detail, rescues=1, repeats=1)._replace(calls=_calls(item))
    # One of these items may kill the workers: from the second time on they start at different times.
    return back if item.rescues == 0 else back._replace(delay_ms=int(rng.uniform(0, APART_MS << item.rescues)))


def _unknown(message: str) -> Failure:
    return Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message)


def _poll_next(
    item: Claimed, terms: Terms, found: Submitted | Running, task_id: str | None, account: str | None
) -> Settlement:
    return Settlement(
        item.id,
        item.fence,
        was=item.state,
        state=ItemState.PROCESSING,
        attempt_count=item.attempt_count,
        calls=_calls(item),
        round=item.round,
        rescues=item.rescues,
        repeats=item.repeats,
        # The task of a cancelled job is polled often, because the job waits for its result.
        delay_ms=max(int(terms.limits.poll_interval_seconds * 1000), 0 if item.stop_reason else found.after_ms),
        provider_task_id=task_id,
        account=account,
        progress=found.progress if isinstance(found, Running) else None,
    )


def _give_back(item: Claimed, act: Act | None, detail: str | None, rescues: int = 0, repeats: int = 0) -> Settlement:
    """Back to the queue at no cost: this try is not counted."""
    return Settlement(
        item.id,
        item.fence,
        was=item.state,
        state=ItemState.QUEUED,
        attempt_count=item.attempt_count,
        calls=item.calls,
        round=item.round,
        rescues=item.rescues + rescues,
        repeats=item.repeats + repeats,
        provider_task_id=item.provider_task_id,
        account=item.account,
        act=act,
        detail=detail,
    )


def _time_out(item: Claimed, terms: Terms, now_ms: int, last: str, outcome: Failed | None = None) -> Settlement:
    failure = Failure(
        ErrorCode.GW_TIMEOUT,
        FailureKind.INFRASTRUCTURE,
        f"item exceeded its timeout of {terms.limits.item_timeout_seconds / 3600:g} h; last: {last}",
        provider_status=outcome.failure.provider_status if outcome else None,
    )
    ended = Failed(failure) if outcome is None else replace(outcome, failure=failure)
    return _end(item, ItemState.FAILED, now_ms, outcome=ended, timed_out=1)


def _end(
    item: Claimed,
    state: ItemState,
    now_ms: int,
    outcome: Succeeded | Failed | None = None,
    message: str | None = None,
    timed_out: int = 0,
) -> Settlement:
    return Settlement(
        item.id,
        item.fence,
        was=item.state,
        state=state,
        attempt_count=item.attempt_count + 1,
        calls=_calls(item),
        round=item.round,
        rescues=item.rescues,
        repeats=item.repeats,
        provider_task_id=item.provider_task_id,
        account=item.account,
        error_code=outcome.failure.code if isinstance(outcome, Failed) else None,
        timed_out=timed_out,
        flaw=_flaw(outcome),
        attempt=_attempt(item, AttemptOutcome(state), now_ms, outcome, message),
    )


def _flaw(outcome: Succeeded | Failed | None) -> Flaw | None:
    if isinstance(outcome, Failed) and outcome.flaw is None and outcome.failure.kind is FailureKind.UNKNOWN:
        return Flaw.UNKNOWN
    return outcome.flaw if outcome is not None else None


def _attempt(
    item: Claimed, end: AttemptOutcome, now_ms: int, outcome: Succeeded | Failed | None, message: str | None = None
) -> Attempt:
    failure = outcome.failure if isinstance(outcome, Failed) else None
    usage = outcome.usage if outcome is not None and outcome.usage is not None else None
    status = failure.provider_status if failure else outcome.provider_status if isinstance(outcome, Succeeded) else None
    return Attempt(
        item.id,
        item.fence,
        _calls(item),
        end,
        item.started_at,
        max(now_ms, item.started_at),
        failure.code if failure else None,
        failure.message if failure else message,
        status,
        outcome.result if isinstance(outcome, Succeeded) else outcome.reply if outcome is not None else None,
        usage.input_tokens if usage else None,
        usage.output_tokens if usage else None,
        usage.cost_micros if usage else None,
    )
