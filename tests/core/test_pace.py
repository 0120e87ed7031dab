"""A provider's pace: limits a minute hold in every window, and the ceiling follows what the provider bears."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.core.pace import Answers, Pace, pace_after, requests_allowed, start_ceiling, tokens_fit, waits_ms

FREE = Pace("p", None, None, concurrency=100, ceiling=100)


@settings(max_examples=40)
@given(per_minute=st.integers(1, 5_000), step_ms=st.integers(40, 2_000))
def test_no_minute_ever_sees_more_requests_than_the_limit(per_minute: int, step_ms: int) -> None:
    pace = replace(FREE, requests_per_minute=per_minute, concurrency=10_000, ceiling=10_000)
    sent: list[int] = []
    for now in range(0, 150_000, step_ms):
        allowed = requests_allowed(pace, 0, now)
        pace = pace_after(pace, allowed, 0, now)
        sent += [now] * allowed
    for index, at in enumerate(sent):
        assert index < per_minute or sent[index - per_minute] <= at - 60_000


def test_nearly_all_of_the_limit_is_used() -> None:
    pace = replace(FREE, requests_per_minute=600)
    sent = 0
    for now in range(0, 600_000, 50):
        allowed = requests_allowed(pace, 0, now)
        pace = pace_after(pace, allowed, 0, now)
        sent += allowed
    assert sent > 0.95 * 6_000


def test_tokens_are_counted_by_their_weight_in_order() -> None:
    pace = replace(FREE, tokens_per_minute=60_000)
    assert tokens_fit(pace, [400, 400, 400], 1_000) == 2
    assert tokens_fit(pace_after(pace, 2, 800, 1_000), [400], 1_000) == 0
    assert tokens_fit(pace_after(pace, 2, 800, 1_000), [400], 2_000) == 1


def test_a_call_larger_than_a_burst_goes_alone_when_all_is_quiet_and_is_paid_off_before_the_next() -> None:
    pace = replace(FREE, tokens_per_minute=600)
    assert tokens_fit(pace, [500, 1], 1_000) == 1
    after = pace_after(pace, 1, 500, 1_000)
    assert tokens_fit(after, [500], 10_000) == 0
    assert tokens_fit(after, [500], 60_000) == 1


@pytest.mark.parametrize("per_minute", [1, 59, 600, 90_000])
def test_a_call_larger_than_a_minute_delays_the_next_by_about_a_minute(per_minute: int) -> None:
    pace = replace(FREE, tokens_per_minute=per_minute)
    assert tokens_fit(pace, [10**12, 1], 1_000) == 1
    after = pace_after(pace, 1, 10**12, 1_000)
    assert tokens_fit(after, [1], 60_000) == 0, "it counts as a full minute"
    assert tokens_fit(after, [1], 64_000) == 1
    assert waits_ms(after, 1_000) <= 63_000


def test_the_wait_it_names_is_the_wait_it_takes() -> None:
    pace = pace_after(replace(FREE, requests_per_minute=60), 1, 0, 5_000)
    wait = waits_ms(pace, 5_000)
    assert wait > 0
    assert requests_allowed(pace, 0, 5_000 + wait) == 1
    assert requests_allowed(pace, 0, 5_000 + wait - 10) == 0


@pytest.mark.parametrize("per_minute", [1, 7, 59, 60, 61, 119, 120, 1_000, 59_999])
def test_whatever_the_limit_the_first_call_may_go_at_once(per_minute: int) -> None:
    assert requests_allowed(replace(FREE, requests_per_minute=per_minute), 0, 1_000) >= 1


def test_nothing_starts_during_a_pause_or_beyond_the_ceiling() -> None:
    assert requests_allowed(replace(FREE, resume_at=2_000), 0, 1_999) == 0
    assert requests_allowed(replace(FREE, resume_at=2_000), 0, 2_000) == 100
    assert requests_allowed(FREE, 98, 0) == 2
    assert requests_allowed(FREE, 140, 0) == 0


def answers(calls: int, throttled: int = 0, seconds: float = 0.2, pause_ms: int = 0) -> Answers:
    seen = Answers()
    for _ in range(calls):
        seen.add(seconds, throttled=False)
    for _ in range(throttled):
        seen.add(0.01, throttled=True, pause_ms=pause_ms)
    return seen


@pytest.mark.parametrize(
    ("seen", "ceiling"),
    [
        (answers(50, throttled=5), 52),
        (answers(50, throttled=50), 28),
        (answers(0, throttled=3), 40),
        (answers(30), 70),
        (answers(500), 100),
    ],
    ids=["a few refusals are the weather", "half refused", "too few to tell", "all well", "never above the limit"],
)
def test_the_ceiling_falls_when_many_are_refused_and_rises_with_what_goes_well(seen: Answers, ceiling: int) -> None:
    assert seen.verdict(replace(FREE, ceiling=40), 0).ceiling == ceiling


def test_calls_that_began_before_the_ceiling_came_down_do_not_raise_it_again() -> None:
    seen = answers(0, throttled=20)
    low = seen.verdict(replace(FREE, ceiling=40), 1_000)
    for began_at in (500, 999, 1_000, 1_500):
        seen.add(0.0, throttled=False, began_at=began_at)
    assert (low.ceiling, seen.verdict(low, 2_000).ceiling) == (28, 30)
    seen.add(0.0, throttled=False, began_at=1_500)
    assert seen.verdict(low, 3_000).ceiling == 29


def test_the_pause_that_most_calls_are_asked_for_is_taken_by_all() -> None:
    assert answers(1, throttled=9, pause_ms=3_000).verdict(FREE, 1_000).resume_at == 4_000
    assert answers(9, throttled=1, pause_ms=3_000).verdict(FREE, 1_000).resume_at == 0
    assert answers(1, throttled=9, pause_ms=10**9).verdict(FREE, 0).resume_at == 60_000


def test_a_provider_that_says_nothing_is_left_is_believed() -> None:
    seen = Answers()
    seen.add(0.1, throttled=False, exhausted_ms=2_500)
    assert seen.pause_ms == 2_500
    assert seen.verdict(FREE, 1_000).resume_at == 3_500
    assert seen.pause_ms == 0
    assert seen.verdict(FREE, 9_000).resume_at == 0


def test_calls_that_take_several_times_as_long_as_usual_lower_the_ceiling_without_a_429() -> None:
    seen = answers(20, seconds=0.1)
    pace = seen.verdict(FREE, 0)
    for _ in range(20):
        seen.add(0.5, throttled=False)
    slower = seen.verdict(pace, 0)
    assert slower.ceiling == 85
    for _ in range(20):
        seen.add(0.12, throttled=False)
    assert seen.verdict(slower, 0).ceiling == 100


def test_a_run_starts_with_a_part_of_its_concurrency() -> None:
    assert [start_ceiling(n) for n in (1, 10, 100, 1_000)] == [1, 10, 25, 250]
