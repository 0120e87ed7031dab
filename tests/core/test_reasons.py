"""Why an item is not running: each reason alone, and several together."""

from dataclasses import replace

import pytest

from backstay.core.breaker import Breaker, BreakerState
from backstay.core.display import TimePoint, show_span
from backstay.core.money import Budget, Period
from backstay.core.pace import Pace, pace_after, waits_ms
from backstay.core.states import TERMINAL, ItemState, JobState
from backstay.core.why_waiting import Standing, why_job_waits, why_not_running

NOW = 1_714_564_800_000  # 2024-05-01 12:00:00 UTC
SOON = NOW + 90_000

WAITING = Standing(
    now=NOW,
    job_id=7,
    job_state=JobState.RUNNING,
    stop_reason=None,
    state=ItemState.QUEUED,
    handler="ocr",
    live_workers=1,
)
RUNNING = replace(
    WAITING, state=ItemState.SUBMITTING, leased_by="w1", lease_expires_at=SOON, last_attempt_at=NOW - 5_000
)
AT_PROVIDER = replace(WAITING, state=ItemState.PROCESSING, provider_task_id="t-1", due_at=NOW + 3_000)

LIMITED = pace_after(Pace("handler:ocr", 60, 6_000, concurrency=10, ceiling=10), 1, 3_500, NOW)


def breaker(state: BreakerState, until_at: int | None = None, reason: str = "") -> Breaker:
    return Breaker("acme", state, NOW - 1_000, until_at, reason)


def texts(item: Standing) -> dict[str, str]:
    return {reason.code: reason.text for reason in why_not_running(item)}


@pytest.mark.parametrize(
    ("item", "code", "says"),
    [
        (WAITING, "next", "no item is ahead of it"),
        (replace(WAITING, ahead=1), "items_ahead", "1 item is ahead of it"),
        (replace(WAITING, ahead=250), "items_ahead", "250 items are ahead of it"),
        (replace(WAITING, ahead=1_000), "items_ahead", "1,000 or more items are ahead of it"),
        (
            replace(WAITING, live_workers=0),
            "no_worker",
            "no live worker runs handler 'ocr'; start one: backstay worker",
        ),
        (
            replace(WAITING, live_workers=0, is_request=True),
            "no_worker",
            "start one: backstay worker, or run the same `backstay run` again",
        ),
        (replace(WAITING, job_state=JobState.PAUSED), "job_paused", "to resume: backstay job resume 7"),
        (
            replace(WAITING, job_short=True),
            "budget_reached",
            "the next item of job 7 could exceed its budget; to resume: the same `backstay run` or",
        ),
        (replace(WAITING, stop_reason="cancel"), "job_cancelling", "job 7 is being cancelled"),
        (replace(WAITING, stop_reason="timeout"), "job_timed_out", "exceeded its maximum runtime"),
        (
            replace(WAITING, due_at=SOON, error_code="GW_5XX", last_message="bad gateway"),
            "waits_for_retry",
            "until 2024-05-01 12:01:30 UTC (in 90 s); the last attempt failed with GW_5XX: bad gateway",
        ),
        (
            RUNNING,
            "running",
            "running on worker w1 since 2024-05-01 11:59:55 UTC (5 s ago); its lease ends 2024-05-01 12:01:30",
        ),
        (
            replace(RUNNING, lease_expires_at=NOW - 1, reconcile_after=SOON),
            "worker_lost",
            "its worker was lost; a worker asks the provider about it, or runs it again, after 2024-05-01 12:01:30",
        ),
        (replace(RUNNING, lease_expires_at=NOW), "worker_lost", "at the next sweep by a worker that runs its handler"),
        (
            replace(RUNNING, lease_expires_at=NOW, leased_by=None, reconcile_after=SOON),
            "worker_lost",
            "the outcome of its last call is unknown",
        ),
        (AT_PROVIDER, "at_provider", "works on task t-1; the next poll is at 2024-05-01 12:00:03 UTC (in 3 s)"),
        (replace(AT_PROVIDER, due_at=NOW), "at_provider", "the next poll is due now"),
        (
            replace(WAITING, breaker=breaker(BreakerState.OPEN, SOON, "6 of the last 10 calls failed")),
            "breaker_open",
            "provider acme is open because 6 of the last 10 calls failed, until 2024-05-01 12:01:30 UTC (in 90 s)",
        ),
        (replace(WAITING, breaker=breaker(BreakerState.OPEN)), "breaker_open", "until its health probe succeeds"),
        (replace(WAITING, breaker=breaker(BreakerState.OPEN, NOW - 1)), "breaker_open", "and a new attempt is due now"),
        (replace(WAITING, breaker=breaker(BreakerState.HALF_OPEN)), "breaker_half_open", "gets a few items as a test"),
        (
            replace(WAITING, breaker=breaker(BreakerState.HELD, None, "no credit")),
            "provider_held",
            "acme is held because no credit, until `backstay provider release acme`",
        ),
        (
            replace(WAITING, breaker=breaker(BreakerState.HELD, SOON, "no credit")),
            "provider_held",
            "until 2024-05-01 12:01:30 UTC (in 90 s), or until `backstay provider release acme`",
        ),
        (
            replace(WAITING, pace=LIMITED),
            "rate_limit",
            "the rate limit of handler 'ocr' allows the next call at 2024-05-01 12:00:35 UTC (in 35 s)",
        ),
        (
            replace(WAITING, pace=LIMITED, handler="call@x", is_request=True),
            "rate_limit",
            "the rate limit of its provider allows the next call at 2024-05-01 12:00:35 UTC (in 35 s)",
        ),
        (
            replace(WAITING, pace=replace(LIMITED, resume_at=SOON)),
            "rate_limit",
            "the provider asked for a pause: the next call of handler 'ocr' is at 2024-05-01 12:01:30 UTC (in 90 s)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_reason_says_what_to_do_or_until_when(item: Standing, code: str, says: str) -> None:
    assert says in texts(item)[code]


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_finished_item_says_only_that(state: ItemState) -> None:
    item = replace(WAITING, state=state, live_workers=0, job_state=JobState.PAUSED, finished_at=NOW - 60_000)
    assert texts(item) == {"finished": texts(item)["finished"]}
    assert f"the item is finished: {state} since 2024-05-01 11:59:00 UTC" in texts(item)["finished"]


def test_a_failed_item_says_why() -> None:
    item = replace(WAITING, state=ItemState.FAILED, error_code="GW_4XX", last_message="bad request")
    assert texts(item)["finished"].endswith(": GW_4XX: bad request")


def test_all_reasons_are_told_the_strongest_first() -> None:
    item = replace(
        WAITING,
        job_state=JobState.PAUSED,
        due_at=SOON,
        error_code="GW_5XX",
        breaker=breaker(BreakerState.HELD),
        live_workers=0,
        ahead=5,
    )
    assert [reason.code for reason in why_not_running(item)] == [
        "job_paused",
        "waits_for_retry",
        "provider_held",
        "no_worker",
    ]


def test_a_job_waits_for_what_keeps_all_its_items() -> None:
    job = replace(WAITING, job_state=JobState.PAUSED, breaker=breaker(BreakerState.HELD), live_workers=0, ahead=5)
    assert [reason.code for reason in why_job_waits(job)] == ["job_paused", "provider_held", "no_worker"]
    assert [reason.code for reason in why_job_waits(replace(WAITING, job_short=True))] == ["budget_reached"]
    assert why_job_waits(replace(WAITING, ahead=5)) == []


def test_the_items_of_several_handlers_are_looked_at_each_with_its_own() -> None:
    scan = replace(WAITING, handler="scan", breaker=breaker(BreakerState.HELD))
    [reason] = why_job_waits(WAITING, scan)
    assert (reason.code, reason.text.partition(": ")[0]) == ("provider_held", "items of handler scan")
    paused = [replace(each, job_state=JobState.PAUSED) for each in (WAITING, scan)]
    assert [reason.code for reason in why_job_waits(*paused)] == ["job_paused", "provider_held"], (
        "the job is paused once"
    )


@pytest.mark.parametrize(("handler", "told"), [("ocr", True), ("scan", False), ("", True)])
def test_a_budget_that_does_not_cover_an_items_handler_does_not_hold_it(handler: str, told: bool) -> None:
    item = replace(WAITING, job_short=True, shared_budget=Budget(1, "ann", handler, Period.MONTH, 5))
    assert ("budget_reached" in texts(item)) is told
    assert bool(why_job_waits(item)) is told


def test_a_rate_limit_is_a_reason_for_items_and_jobs_until_the_next_call_may_start() -> None:
    for told in (why_not_running(replace(WAITING, pace=LIMITED)), why_job_waits(replace(WAITING, pace=LIMITED))):
        assert [reason.until_at for reason in told if reason.code == "rate_limit"] == [NOW + waits_ms(LIMITED, NOW)]


@pytest.mark.parametrize(
    "item",
    [
        replace(WAITING, pace=LIMITED, now=SOON),
        replace(WAITING, pace=LIMITED, due_at=SOON),
        replace(RUNNING, pace=LIMITED),
        replace(AT_PROVIDER, pace=LIMITED),
    ],
    ids=["it allows a call", "its retry comes later", "running", "at the provider"],
)
def test_a_rate_limit_that_delays_nothing_is_no_reason(item: Standing) -> None:
    assert "rate_limit" not in texts(item)


MONTHLY = Budget(1, "ann", "", Period.MONTH, 5_000_000, ends_at=SOON)
HELD_BY_BUDGET = replace(WAITING, job_short=True, shared_budget=MONTHLY)


def test_a_job_that_a_budget_holds_is_not_told_to_wait_longer_than_it_lives() -> None:
    [reason] = why_job_waits(replace(HELD_BY_BUDGET, timeout_at=SOON - 30_000))
    fails = "the job fails at its time limit, 2024-05-01 12:01:00 UTC (in 60 s), before the next period begins at 2024"
    assert fails in reason.text
    assert "set a higher budget: backstay budget set" in reason.text
    assert "a pause stops the time limit: backstay job pause 7" in reason.text
    assert "wait until" not in reason.text
    assert reason.until_at is None


@pytest.mark.parametrize(
    "job",
    [
        replace(HELD_BY_BUDGET, timeout_at=SOON + 1),
        replace(HELD_BY_BUDGET, timeout_at=SOON - 1, job_state=JobState.PAUSED),
    ],
    ids=["it lives longer", "its time limit stands still"],
)
def test_a_job_that_lives_until_the_next_period_is_told_to_wait(job: Standing) -> None:
    reason = why_job_waits(job)[-1]
    assert "wait until 2024-05-01 12:01:30 UTC (in 90 s), or set a higher one" in reason.text
    assert reason.until_at == SOON


def test_a_closed_breaker_is_no_reason() -> None:
    assert list(texts(replace(WAITING, breaker=breaker(BreakerState.CLOSED)))) == ["next"]


def test_a_budget_holds_back_only_what_waits() -> None:
    assert list(texts(replace(RUNNING, job_short=True))) == ["running"]


def test_a_running_item_needs_no_other_worker() -> None:
    assert list(texts(replace(RUNNING, live_workers=0))) == ["running"]


def test_the_end_of_a_reason_is_told_to_programs_too() -> None:
    (reason, *_) = why_not_running(replace(WAITING, due_at=SOON))
    assert reason.until_at == SOON
    assert why_not_running(replace(WAITING, breaker=breaker(BreakerState.HELD, SOON)))[0].until_at == SOON


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0 s"), (1_400, "1 s"), (119_000, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (200_000_000, "2 d")],
)
def test_spans_are_short(ms: int, shown: str) -> None:
    assert show_span(ms) == shown


def test_a_moment_in_the_past_is_ago() -> None:
    assert str(TimePoint(NOW - 3_000, NOW)) == "2024-05-01 11:59:57 UTC (3 s ago)"
