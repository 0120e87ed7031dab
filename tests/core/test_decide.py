"""What an outcome makes of an item: one table of cases, and rules that hold for all of them."""

from dataclasses import replace
from random import Random

import pytest

from backstay.core.decide import decide
from backstay.core.failures import GATEWAY, NONE, QUEUE, TIMED, ErrorCode, Failure, FailureKind
from backstay.core.limits import Limits
from backstay.core.models import (
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
    Usage,
)
from backstay.core.states import TERMINAL, ItemState, may_follow

HOUR = 3_600_000
LEAST, MOST = Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE


def item(
    state: str = "submitting",
    attempts: int = 0,
    rescues: int = 0,
    deadline_at: int | None = None,
    calls: int | None = None,
    refused_at: int | None = None,
) -> Claimed:
    return Claimed(
        id=1,
        job_id=1,
        handler="h",
        state=state,
        fence=7,
        attempt_count=attempts,
        round=2,
        rescues=rescues,
        repeats=0,
        ask_first=0,
        queued_at=0,
        deadline_at=deadline_at,
        claimed_at=0,
        started_at=0,
        provider_task_id="task" if state == "processing" else None,
        account=None,
        stop_reason=None,
        body="{}",
        calls=attempts if calls is None else calls,
        refused_at=refused_at,
    )


def terms(delivery: Delivery = LEAST, askable: bool = False, policy=QUEUE) -> Terms:
    return Terms(policy, delivery, Limits(), askable)


def failed(kind: FailureKind, retry_after_ms: int | None = None, **more) -> Failed:
    return Failed(Failure(ErrorCode.GW_5XX, kind, "it broke", retry_after_ms), **more)


def settle(of: Claimed, outcome: Outcome, rules: Terms, now_ms: int = 1000) -> Settlement:
    return decide(of, outcome, rules, now_ms, Random(1))


INFRA, UNKNOWN = failed(FailureKind.INFRASTRUCTURE), failed(FailureKind.UNKNOWN)

CASES = [
    # what came out, of which item, under which terms -> state, attempts counted, recorded as a repeat
    (Succeeded("1"), item(), terms(), ("succeeded", 1, 0)),
    (Skipped("not needed"), item(), terms(), ("skipped", 1, 0)),
    (Stopped(), item(), terms(), ("cancelled", 1, 0)),
    (Stopped(sent=True), item(), terms(LEAST), ("failed", 1, 0)),
    (Stopped(sent=True), item(), terms(LEAST, askable=True), ("submitting", 1, 0)),
    (Stopped(sent=True), item("processing"), terms(LEAST, askable=True), ("failed", 1, 0)),
    (HandedBack("late"), item(attempts=2), terms(), ("queued", 2, 0)),
    (Submitted("t"), item(), terms(), ("processing", 0, 0)),
    (Running(50), item("processing"), terms(), ("processing", 0, 0)),
    (failed(FailureKind.BUSINESS), item(), terms(), ("failed", 1, 0)),
    (failed(FailureKind.HELD), item(attempts=1), terms(), ("queued", 1, 0)),
    (failed(FailureKind.REFUSED), item(attempts=1), terms(), ("queued", 1, 0)),
    (failed(FailureKind.REFUSED), item(attempts=1, refused_at=1), terms(), ("failed", 2, 0)),
    (failed(FailureKind.REFUSED, probe=True), item(attempts=1, refused_at=1), terms(), ("queued", 1, 0)),
    (failed(FailureKind.REFUSED, probe=True), item(attempts=1, refused_at=1, calls=4), terms(), ("failed", 2, 0)),
    (failed(FailureKind.REFUSED), item(), terms(policy=NONE), ("failed", 1, 0)),
    (failed(FailureKind.THROTTLED), item(attempts=2), terms(), ("queued", 2, 0)),
    (INFRA, item(), terms(), ("queued", 1, 0)),
    (INFRA, item(attempts=2), terms(), ("failed", 3, 0)),
    (INFRA, item(attempts=50), terms(policy=TIMED), ("queued", 51, 0)),
    (failed(FailureKind.INFRASTRUCTURE, probe=True), item(attempts=2), terms(), ("queued", 2, 0)),
    (failed(FailureKind.INFRASTRUCTURE, probe=True), item(attempts=1, calls=3), terms(), ("queued", 1, 0)),
    (failed(FailureKind.INFRASTRUCTURE, probe=True), item(attempts=1, calls=4), terms(), ("queued", 2, 0)),
    (failed(FailureKind.INFRASTRUCTURE, probe=True), item(attempts=2, calls=5), terms(), ("failed", 3, 0)),
    (failed(FailureKind.INFRASTRUCTURE, task_ended=True), item("processing"), terms(), ("queued", 1, 0)),
    (UNKNOWN, item(), terms(LEAST), ("queued", 1, 1)),
    (UNKNOWN, item(), terms(MOST), ("failed", 1, 0)),
    (UNKNOWN, item(), terms(LEAST, askable=True), ("submitting", 1, 0)),
    (UNKNOWN, item(), terms(MOST, askable=True), ("submitting", 1, 0)),
    (UNKNOWN, item("processing"), terms(LEAST, askable=True), ("queued", 1, 1)),
    (UNKNOWN, item("processing"), terms(MOST, askable=True), ("failed", 1, 0)),
    (Interrupted(), item(attempts=1), terms(LEAST), ("queued", 1, 1)),
    (Interrupted(), item(attempts=1), terms(MOST), ("failed", 2, 0)),
    (Interrupted(), item(attempts=1), terms(askable=True), ("submitting", 1, 0)),
    (CannotAsk(), item(attempts=1), terms(LEAST), ("queued", 1, 1)),
    (CannotAsk(), item(), terms(MOST), ("failed", 1, 0)),
    (CannotAsk(), item(rescues=5), terms(LEAST), ("failed", 1, 0)),
    (NeverArrived(), item(attempts=1), terms(askable=True), ("queued", 1, 0)),
    (NeverArrived(), item(attempts=3), terms(askable=True), ("failed", 4, 0)),
]


@pytest.mark.parametrize(("outcome", "of", "rules", "expected"), CASES)
def test_an_outcome_makes_of_an_item_what_the_table_says(outcome, of, rules, expected):
    settled = settle(of, outcome, rules)
    assert (settled.state, settled.attempt_count, settled.repeats) == expected
    assert (settled.act == "repeat") == bool(expected[2])


TRUNCATED = Failed(
    Failure(ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE, "cut off", provider_status=200),
    Usage(1, 2, 30),
    task_ended=True,
    reply='{"status_code":200}',
    flaw=Flaw.TRUNCATED,
)


@pytest.mark.parametrize(
    ("outcome", "of", "rules", "now_ms", "flaw"),
    [
        (Succeeded("1"), item(), terms(), 0, None),
        (Succeeded("1", flaw=Flaw.REFUSED), item(), terms(), 0, Flaw.REFUSED),
        (TRUNCATED, item(), terms(), 0, Flaw.TRUNCATED),  # it is tried again, and has this answer until then
        (TRUNCATED, item(attempts=2), terms(), 0, Flaw.TRUNCATED),
        (TRUNCATED, item(deadline_at=5), terms(), 5, Flaw.TRUNCATED),
        (TRUNCATED, item(), terms(policy=TIMED), 3 * HOUR, Flaw.TRUNCATED),
        (Failed(Failure(ErrorCode.UNKNOWN, FailureKind.BUSINESS, "a bug")), item(), terms(), 0, None),
        (UNKNOWN, item(), terms(MOST), 0, Flaw.UNKNOWN),
        (UNKNOWN, item(attempts=2), terms(LEAST), 0, Flaw.UNKNOWN),
        (Interrupted(), item(), terms(MOST), 0, Flaw.UNKNOWN),
        (CannotAsk(), item(), terms(MOST), 0, Flaw.UNKNOWN),
        (CannotAsk(), item(rescues=5), terms(LEAST), 0, Flaw.UNKNOWN),
        (NeverArrived(), item(attempts=3), terms(askable=True), 0, None),
    ],
)
def test_the_flaw_of_an_item_is_that_of_its_last_answer_or_that_nobody_knows(outcome, of, rules, now_ms, flaw):
    assert settle(of, outcome, rules, now_ms).flaw == flaw


@pytest.mark.parametrize(("of", "now_ms"), [(item(), 0), (item(attempts=2), 0), (item(deadline_at=5), 5)])
def test_an_answer_that_its_flaw_failed_costs_an_attempt_and_its_price_and_is_kept(of, now_ms):
    settled = settle(of._replace(reserved=100), TRUNCATED, terms(), now_ms)
    assert settled.attempt_count == of.attempt_count + 1
    assert settled.attempt is not None
    assert (settled.attempt.cost_micros, settled.attempt.result) == (30, TRUNCATED.reply)
    assert (settled.freed, settled.unknown) == (100, 0)
    silent = settle(of._replace(reserved=100), replace(TRUNCATED, usage=None), terms(), now_ms)
    assert silent.attempt is not None
    assert (silent.attempt.cost_micros, silent.freed, silent.unknown) == (100, 100, 0)


@pytest.mark.parametrize(("outcome", "of", "rules", "_"), CASES)
def test_a_settlement_is_a_legal_step_under_the_items_own_fence(outcome, of, rules, _):
    settled = settle(of, outcome, rules)
    assert may_follow(ItemState(of.state), settled.state)
    assert (settled.id, settled.fence, settled.was) == (of.id, of.fence, of.state)


SENT = (Succeeded("1"), Submitted("t"), INFRA, UNKNOWN, Interrupted(), CannotAsk(), failed(FailureKind.BUSINESS))


@pytest.mark.parametrize("outcome", [*SENT, *(failed(kind) for kind in FailureKind)])
def test_every_call_is_counted_whether_or_not_it_costs_an_attempt(outcome):
    settled = settle(item(attempts=1, calls=4), outcome, terms())
    assert settled.calls == 5
    assert settled.attempt is None or settled.attempt.number == 5


@pytest.mark.parametrize("outcome", [HandedBack("late"), NeverArrived()])
def test_what_was_not_sent_is_no_call(outcome):
    assert settle(item(attempts=1, calls=4), outcome, terms(askable=True)).calls == 4


def test_a_task_is_one_call_however_often_it_is_polled():
    for outcome in (Running(), Succeeded("1"), failed(FailureKind.BUSINESS)):
        assert settle(item("processing", attempts=1, calls=4), outcome, terms()).calls == 4


def test_a_call_whose_outcome_is_asked_about_is_counted_when_that_is_known():
    asked = settle(item(calls=4), UNKNOWN, terms(askable=True))
    assert asked.calls == 4
    assert settle(item(calls=asked.calls), Succeeded("1"), terms(askable=True)).calls == 5


def test_a_refusal_of_the_account_leaves_an_attempt_to_see():
    settled = settle(item(attempts=1), failed(FailureKind.HELD), terms())
    assert settled.attempt is not None
    assert (settled.attempt.outcome, settled.attempt.message) == ("held", "it broke")


@pytest.mark.parametrize(
    "outcome",
    [
        INFRA,
        failed(FailureKind.THROTTLED),
        failed(FailureKind.HELD),
        failed(FailureKind.REFUSED),
        failed(FailureKind.INFRASTRUCTURE, probe=True),
        CannotAsk(),
        NeverArrived(),
        Running(),
    ],
)
def test_an_item_past_its_timeout_fails_after_one_more_try_or_poll(outcome):
    of = item("processing" if isinstance(outcome, Running) else "submitting")
    before, after = (
        settle(of, outcome, terms(policy=TIMED), 2 * HOUR),
        settle(of, outcome, terms(policy=TIMED), 2 * HOUR + 1),
    )
    assert before.state not in TERMINAL
    assert (after.state, after.error_code, after.timed_out) == (ItemState.FAILED, ErrorCode.GW_TIMEOUT, 1)


def test_a_success_counts_however_late_it_comes():
    assert settle(item(), Succeeded("1"), terms(), 5 * HOUR).state is ItemState.SUCCEEDED


@pytest.mark.parametrize("outcome", [INFRA, failed(FailureKind.HELD), failed(FailureKind.REFUSED)])
def test_a_failure_at_the_deadline_is_final(outcome):
    settled = settle(item(deadline_at=1000), outcome, terms(), 1000)
    assert (settled.state, settled.timed_out) == (ItemState.FAILED, 1)
    assert settle(item(deadline_at=1001), outcome, terms(), 1000).state is ItemState.QUEUED


def test_a_provider_that_says_when_to_come_again_is_obeyed_up_to_an_hour():
    assert settle(item(), failed(FailureKind.THROTTLED, 90_000), terms()).delay_ms == 90_000
    assert settle(item(), failed(FailureKind.INFRASTRUCTURE, 90_000), terms()).delay_ms == 90_000
    assert settle(item(), failed(FailureKind.THROTTLED, 10**12), terms()).delay_ms == HOUR


def test_the_first_retry_of_each_policy_starts_where_its_formula_does():
    assert 1_600 <= (settle(item(), INFRA, terms(policy=QUEUE)).delay_ms or 0) <= 2_400
    assert 5_000 <= (settle(item(), INFRA, terms(policy=GATEWAY)).delay_ms or 0) <= 10_000


def test_only_a_task_that_ended_at_the_provider_is_asked_for_under_a_new_reference():
    ended = failed(FailureKind.INFRASTRUCTURE, task_ended=True)
    assert settle(item("processing"), ended, terms()).round == 3
    assert settle(item("processing"), failed(FailureKind.HELD, task_ended=True), terms()).round == 3
    assert settle(item(), INFRA, terms()).round == 2
    assert settle(item(), UNKNOWN, terms()).round == 2


def test_a_task_is_polled_no_sooner_than_it_makes_sense():
    interval_ms = int(Limits().poll_interval_seconds * 1000)
    assert settle(item("processing"), Running(after_ms=1), terms()).delay_ms == interval_ms
    assert settle(item("processing"), Running(after_ms=60_000), terms()).delay_ms == 60_000
    assert settle(item(), Submitted("t", after_ms=60_000), terms()).delay_ms == 60_000


class Fixed(Random):
    """Chance that always falls on the same side."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def uniform(self, a: float, b: float) -> float:
        return a + self._share * (b - a)


@pytest.mark.parametrize(("share", "delay_ms"), [(0, 1_600), (0.5, 2_000), (1, 2_400)])
def test_all_chance_is_the_callers(share, delay_ms):
    assert decide(item(), INFRA, terms(policy=QUEUE), 0, Fixed(share)).delay_ms == delay_ms


BAD, BROKEN, UNSURE, REFUSED = (
    FailureKind.BUSINESS,
    FailureKind.INFRASTRUCTURE,
    FailureKind.UNKNOWN,
    FailureKind.REFUSED,
)


@pytest.mark.parametrize(
    ("of", "outcome", "rules", "now_ms"),
    [
        (item(), failed(BAD), terms(), 1000),
        (item(attempts=2), failed(BROKEN), terms(), 1000),
        (item(attempts=2), failed(UNSURE), terms(), 1000),
        (item(refused_at=1), failed(REFUSED), terms(), 1000),
        (item(attempts=3), NeverArrived(), terms(askable=True), 1000),
        (item("processing", attempts=2), failed(BROKEN, task_ended=True), terms(), 1000),
    ],
)
def test_a_final_failure_goes_to_the_fallback_with_fresh_attempts(
    of: Claimed, outcome: Outcome, rules: Terms, now_ms: int
) -> None:
    assert settle(of, outcome, rules, now_ms).state is ItemState.FAILED
    settled = settle(of, outcome, replace(rules, fallback="g"), now_ms)
    assert (settled.state, settled.handler_next, settled.attempt_count, settled.rescues) == ("queued", "g", 0, 0)
    assert (settled.round, settled.provider_task_id, settled.account, settled.delay_ms) == (3, None, None, None)
    unknown = isinstance(outcome, Failed) and outcome.failure.kind is UNSURE
    assert (settled.act, settled.repeats) == (("repeat", 1) if unknown else ("fallback", 0))


@pytest.mark.parametrize(
    ("of", "outcome", "rules", "now_ms"),
    [
        (item(), failed(UNSURE), terms(MOST), 1000),
        (item(), failed(BROKEN), terms(), 3 * HOUR),
        (item(deadline_at=500), failed(BROKEN), terms(), 1000),
        (item(deadline_at=500), Succeeded('"late"'), terms(), 1000),
        (item("processing"), Running(), terms(), 3 * HOUR),
        (item(rescues=99), CannotAsk(), terms(), 1000),
        (item(), CannotAsk(), terms(MOST), 1000),
        (item(), Interrupted(), terms(MOST), 1000),
        (item(), Stopped(sent=True), terms(), 1000),
        (item(attempts=9), NeverArrived(), terms(askable=True), 3 * HOUR),
    ],
)
def test_an_end_by_time_by_a_person_or_with_a_lost_payment_goes_to_no_fallback(
    of: Claimed, outcome: Outcome, rules: Terms, now_ms: int
) -> None:
    ended = settle(of, outcome, rules, now_ms)
    assert ended.state is ItemState.FAILED
    assert settle(of, outcome, replace(rules, fallback="g"), now_ms) == ended


def chained(rules: Terms, shares: int = 2) -> Terms:
    return replace(rules, fallback="g", time_shares=shares)


@pytest.mark.parametrize(
    ("of", "outcome", "now_ms", "repeats"),
    [
        (item(deadline_at=1000), failed(BROKEN), 500, 0),
        (item(deadline_at=1000), failed(FailureKind.THROTTLED), 500, 0),
        (item(deadline_at=1000), failed(FailureKind.HELD), 500, 0),
        (item(deadline_at=1000), failed(UNSURE), 999, 1),
        (item(), failed(BROKEN), 3 * HOUR, 0),
        (item("processing"), Running(), 3 * HOUR, 1),
        (item(), NeverArrived(), 3 * HOUR, 0),
    ],
)
def test_what_misses_its_time_at_one_provider_goes_to_the_next_with_its_time_anew(
    of: Claimed, outcome: Outcome, now_ms: int, repeats: int
) -> None:
    settled = settle(of, outcome, chained(terms()), now_ms)
    assert (settled.state, settled.handler_next, settled.same_request) == ("queued", "g", 1)
    assert (settled.timed_out, settled.delay_ms, settled.provider_task_id, settled.attempt_count) == (0, None, None, 0)
    assert settled.repeats == repeats


@pytest.mark.parametrize(
    ("of", "outcome", "delivery", "now_ms"),
    [
        (item(deadline_at=1000), failed(BROKEN), Delivery.AT_LEAST_ONCE, 1000),
        (item(deadline_at=1000), Succeeded('"late"'), Delivery.AT_LEAST_ONCE, 1001),
        (item(deadline_at=1000), failed(UNSURE), MOST, 999),
        (item("processing"), Running(), MOST, 3 * HOUR),
        (item(), CannotAsk(), Delivery.AT_LEAST_ONCE, 3 * HOUR),
    ],
)
def test_a_deadline_that_is_over_or_a_call_that_must_not_be_paid_twice_ends_a_chain(
    of: Claimed, outcome: Outcome, delivery: Delivery, now_ms: int
) -> None:
    rules = chained(terms(delivery))
    assert settle(of, outcome, rules, now_ms) == settle(of, outcome, terms(delivery), now_ms)
    assert settle(of, outcome, rules, now_ms).state is ItemState.FAILED


@pytest.mark.parametrize(("shares", "now_ms", "state"), [(2, 499, "f"), (2, 500, "g"), (4, 249, "f"), (4, 250, "g")])
def test_the_time_until_the_deadline_is_shared_equally(shares: int, now_ms: int, state: str) -> None:
    rules = chained(terms(), shares)
    assert (settle(item(deadline_at=1000), failed(BROKEN), rules, now_ms).handler_next or "f") == state


def test_what_is_retried_skipped_or_held_is_left_to_the_first_handler() -> None:
    for outcome in (failed(BROKEN), failed(FailureKind.HELD), Skipped("no"), Succeeded('"x"'), HandedBack("late")):
        assert settle(item(), outcome, replace(terms(), fallback="g")) == settle(item(), outcome, terms())
