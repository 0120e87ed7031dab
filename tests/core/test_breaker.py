"""When calls to a provider are stopped, probed and let through again."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.breaker import (
    Breaker,
    BreakerPolicy,
    BreakerState,
    Call,
    allowance,
    cool,
    dump_calls,
    hold,
    load_calls,
    observe,
    refuse,
    release,
)
from backstay.core.errors import UsageError

POLICY = BreakerPolicy()
HOLD = BreakerPolicy(mode="hold")
NEW = Breaker("llm")
NOW = 1_000_000

CALLS = st.lists(
    st.builds(
        lambda end, took, ok: Call(end - took, end, ok), st.integers(0, 10**6), st.integers(0, 10**5), st.booleans()
    ),
    max_size=60,
)


def calls(pattern: str, at: int = NOW) -> list[Call]:
    """One call per letter, each a millisecond long and the last one ending at `at`: "s" succeeded, "f" failed, "r"
    failed and was not the first try of its item."""
    return [
        Call(end - 1, end, letter == "s", first=letter != "r")
        for end, letter in enumerate(pattern, at - len(pattern) + 1)
    ]


def opened(policy: BreakerPolicy = POLICY) -> Breaker:
    return observe(NEW, calls("f" * 10), policy, NOW)


def probing() -> Breaker:
    return cool(opened(), POLICY, NOW + 30_000)


PROBING_SINCE = NOW + 30_000


@pytest.mark.parametrize(
    ("pattern", "state"),
    [
        ("", "closed"),
        ("f" * 9, "closed"),
        ("f" * 10, "open"),
        ("fffffsssss", "closed"),
        ("ffffffssss", "open"),
        ("ssssffffff", "open"),
        ("f" * 10 + "s" * 10, "closed"),
        ("f" * 11 + "s" * 9, "open"),
        ("f" * 11 + "s" * 20, "closed"),
    ],
)
def test_it_opens_when_more_than_half_of_at_least_10_of_the_last_20_calls_failed(pattern, state):
    assert observe(NEW, calls(pattern), POLICY, NOW).state == state


def test_a_breaker_that_saw_10_000_successes_still_opens():
    breaker = NEW
    for start in range(0, 10_000, 100):
        breaker = observe(breaker, calls("s" * 100, at=start), POLICY, start)
    assert observe(breaker, calls("f" * 11, at=10_020), POLICY, 10_020).state is BreakerState.OPEN


def test_failures_older_than_the_window_are_forgotten():
    old = observe(NEW, calls("f" * 9), POLICY, NOW)
    edge = NOW + POLICY.window_ms
    assert observe(old, calls("f", at=edge - 9), POLICY, edge - 9).state is BreakerState.OPEN
    assert observe(old, calls("f", at=edge), POLICY, edge).state is BreakerState.CLOSED


def test_the_window_never_grows_beyond_its_calls():
    assert len(observe(NEW, calls("s" * 500), POLICY, NOW).calls) == 20


def test_it_opens_for_30_seconds_and_says_why():
    reason = "10 of the last 10 calls failed"
    assert opened() == Breaker("llm", BreakerState.OPEN, NOW, NOW + 30_000, reason, opened=1)


def test_items_that_fail_again_say_nothing_about_the_provider():
    assert observe(NEW, calls("r" * 50), POLICY, NOW) == NEW
    assert observe(NEW, calls("r" * 50 + "f" * 10), POLICY, NOW).state is BreakerState.OPEN


def test_a_call_that_hung_is_held_against_the_calls_made_together_with_it():
    """A minority that hangs ends last, all at once, when the good ones are long done."""
    good = [Call(started, started + 50, ok=True) for started in range(0, 1_000, 10)]
    hung = [Call(started, started + 60_000, ok=False) for started in range(5, 1_000, 100)]
    assert observe(NEW, good + hung, POLICY, 61_000).state is BreakerState.CLOSED
    after_them = [Call(started, started + 60_000, ok=False) for started in range(1_000, 1_200, 10)]
    assert observe(NEW, good + after_them, POLICY, 62_000).state is BreakerState.OPEN


@pytest.mark.parametrize("pattern", ["s" * 50, "f" * 50])
def test_while_open_or_held_what_is_observed_changes_nothing(pattern):
    for breaker in (opened(), hold(NEW, "no credit", NOW)):
        assert observe(breaker, calls(pattern, at=NOW + 100), POLICY, NOW + 100) == breaker


def test_an_open_breaker_becomes_half_open_when_its_time_is_up_and_not_before():
    assert cool(opened(), POLICY, PROBING_SINCE - 1) == opened()
    assert probing() == Breaker("llm", BreakerState.HALF_OPEN, PROBING_SINCE, reason=opened().reason, opened=1)


def test_workers_that_look_at_different_moments_see_the_same_half_open_breaker():
    assert cool(opened(), POLICY, PROBING_SINCE + 1) == cool(opened(), POLICY, PROBING_SINCE + 9_999)


def test_half_open_starts_from_zero_so_a_call_begun_before_it_proves_nothing():
    late = [Call(NOW, PROBING_SINCE + 10, ok) for ok in (True, True, True, False)]
    assert observe(probing(), late, POLICY, PROBING_SINCE + 10) == probing()


def test_three_successful_probes_close_it_with_an_empty_window():
    at = PROBING_SINCE + 100
    two = observe(probing(), calls("ss", at=at), POLICY, at)
    assert two.state is BreakerState.HALF_OPEN
    assert observe(two, calls("s", at=at + 1), POLICY, at + 1) == Breaker("llm", BreakerState.CLOSED, at + 1)


@pytest.mark.parametrize(
    ("pattern", "state"),
    [
        ("f", "open"),
        ("fff", "open"),
        ("rrr", "open"),  # of whatever items: nobody else has done better
        ("sf", "half_open"),
        ("ffs", "half_open"),
        ("sssf", "half_open"),
        ("sssssf", "closed"),
        ("ssssfsf", "half_open"),
        ("sssssfffff", "closed"),  # half of them failed, at which no closed breaker opens
        ("ssssffffff", "open"),
    ],
)
def test_one_success_among_the_probes_shows_life_and_then_their_share_decides(pattern, state):
    at = PROBING_SINCE + 100
    assert observe(probing(), calls(pattern, at=at), POLICY, at).state == state


def test_each_time_in_a_row_it_stays_open_for_twice_as_long_up_to_five_minutes():
    breaker, now, waits = opened(), NOW, []
    for _ in range(7):
        assert breaker.until_at is not None
        waits.append((breaker.until_at - now) // 1_000)
        now = breaker.until_at + 1
        breaker = observe(cool(breaker, POLICY, now), calls("f", at=now + 1), POLICY, now)
    assert waits == [30, 60, 120, 240, 300, 300, 300]


def test_after_it_closed_it_opens_for_the_first_time_again():
    at = PROBING_SINCE + 100
    closed = observe(probing(), calls("sss", at=at), POLICY, at)
    again = observe(closed, calls("f" * 10, at=at + 100), POLICY, at + 100)
    assert again.until_at == at + 100 + 30_000


def test_a_refused_account_is_held_for_longer_each_time_up_to_its_limit():
    breaker, now, waits = NEW, NOW, []
    for _ in range(6):
        breaker = refuse(breaker, "no credit", POLICY, now, 300_000)
        assert (breaker.state, breaker.reason) == (BreakerState.HELD, "no credit")
        assert breaker.until_at is not None
        waits.append((breaker.until_at - now) // 1_000)
        now = breaker.until_at
        breaker = cool(breaker, POLICY, now)
    assert waits == [30, 60, 120, 240, 300, 300]
    assert refuse(NEW, "no credit", POLICY, NOW, None).until_at is None


def test_further_refusals_of_the_same_moment_do_not_make_a_hold_longer():
    held = refuse(NEW, "no credit", POLICY, NOW, 300_000)
    assert refuse(held, "no credit", POLICY, NOW + 1, 300_000).until_at == NOW + 1 + 30_000


def test_probes_that_take_longer_than_the_window_still_close_it():
    breaker = probing()
    for number in range(1, 4):
        at = PROBING_SINCE + number * POLICY.window_ms * 2
        breaker = observe(breaker, calls("s", at=at), POLICY, at)
    assert breaker.state is BreakerState.CLOSED


def test_calls_sent_while_the_provider_was_sick_do_not_open_it_again_after_it_recovered():
    at = PROBING_SINCE + 100
    closed = observe(probing(), calls("sss", at=at), POLICY, at)
    stragglers = [Call(NOW - 5, at + 1_000 + number, ok=False) for number in range(50)]
    assert observe(closed, stragglers, POLICY, at + 2_000) == closed


def test_a_new_breaker_counts_calls_that_began_before_anyone_wrote_it_down():
    assert observe(Breaker("llm"), [Call(0, NOW, ok=False)] * 10, POLICY, NOW).state is BreakerState.OPEN


@pytest.mark.parametrize(
    ("breaker", "now_ms", "expected"),
    [
        (NEW, NOW, None),
        (opened(), NOW, 0),
        (opened(), PROBING_SINCE, 3),
        (probing(), PROBING_SINCE, 3),
        (observe(probing(), calls("s", at=PROBING_SINCE + 9), POLICY, PROBING_SINCE + 9), PROBING_SINCE + 9, 2),
        (observe(probing(), calls("ssf", at=PROBING_SINCE + 9), POLICY, PROBING_SINCE + 9), PROBING_SINCE + 9, 3),
        (hold(NEW, "no credit", NOW), NOW + 10**9, 0),
        (hold(NEW, "no credit", NOW, NOW + 50), NOW + 49, 0),
        (hold(NEW, "no credit", NOW, NOW + 50), NOW + 50, 3),
    ],
)
def test_closed_allows_any_number_open_and_held_none_and_half_open_a_few_probes(breaker, now_ms, expected):
    assert allowance(breaker, POLICY, now_ms) == expected


def test_in_hold_mode_it_stays_open_until_it_is_released():
    held_open = opened(HOLD)
    assert held_open.until_at is None
    assert cool(held_open, HOLD, NOW + 10**9) == held_open
    assert allowance(held_open, HOLD, NOW + 10**9) == 0
    assert release(held_open, NOW + 5) == Breaker("llm", BreakerState.CLOSED, NOW + 5)


def test_a_breaker_opened_in_hold_mode_is_not_stuck_when_the_mode_is_changed():
    assert cool(opened(HOLD), POLICY, NOW + 30_000).state is BreakerState.HALF_OPEN


def test_a_hold_with_an_end_becomes_half_open_then_and_one_without_never():
    assert cool(hold(NEW, "quota", NOW, NOW + 50), POLICY, NOW + 50).state is BreakerState.HALF_OPEN
    assert cool(hold(NEW, "quota", NOW), POLICY, NOW + 10**12).state is BreakerState.HELD


@pytest.mark.parametrize(
    ("first", "second", "until_at", "reason"),
    [(None, 50, None, "first"), (50, None, None, "second"), (50, 70, 70, "second"), (70, 50, 70, "first")],
)
def test_a_second_hold_never_shortens_the_first(first, second, until_at, reason):
    held = hold(hold(NEW, "first", NOW, first), "second", NOW + 1, second)
    assert held == Breaker("llm", BreakerState.HELD, NOW, until_at, reason)


def test_releasing_a_closed_breaker_keeps_what_it_knows():
    breaker = observe(NEW, calls("ff"), POLICY, NOW)
    assert release(breaker, NOW + 1) == breaker


@given(CALLS, st.randoms(use_true_random=False))
def test_the_order_in_which_calls_are_reported_does_not_matter(made, rng):
    shuffled = rng.sample(made, len(made))
    for breaker in (NEW, probing()):
        assert observe(breaker, shuffled, POLICY, 10**6) == observe(breaker, made, POLICY, 10**6)


@given(CALLS, CALLS)
def test_two_workers_that_report_one_after_the_other_leave_the_same_window(ours, theirs):
    good = [Call(call.started_at, call.ended_at, ok=True) for call in ours]
    few = theirs[: POLICY.calls_min - 1]
    never_opens = replace(POLICY, fail_ratio=0.999)
    one = observe(observe(NEW, good, never_opens, 10**6), few, never_opens, 10**6)
    other = observe(observe(NEW, few, never_opens, 10**6), good, never_opens, 10**6)
    assert one == other


@given(CALLS, st.integers(0, 2 * 10**6))
def test_what_is_remembered_is_always_bounded_and_recent(made, now_ms):
    kept = observe(NEW, made, POLICY, now_ms).calls
    assert len(kept) <= POLICY.window_calls
    assert all(call.ended_at >= now_ms - POLICY.window_ms for call in kept)


@given(CALLS)
def test_calls_survive_the_column_they_are_stored_in(made):
    assert load_calls(dump_calls(made)) == tuple(made)


def test_stored_calls_are_compact_and_an_empty_column_is_no_calls():
    assert dump_calls([Call(1, 2, ok=True), Call(3, 4, ok=False)]) == "[[1,2,1],[3,4,0]]"
    assert load_calls("") == ()


@given(st.integers(0, 2**32))
def test_a_provider_that_recovers_is_always_let_through_again(seed):
    rng, breaker, now = random.Random(seed), NEW, NOW
    for healthy in [False] * 200 + [True] * 200:
        now += rng.randint(1, 5_000)
        breaker = cool(breaker, POLICY, now)
        if allowance(breaker, POLICY, now) != 0:
            ok = healthy or rng.random() < 0.2
            breaker = observe(breaker, [Call(now - 1, now, ok)], POLICY, now)
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(
    "change",
    [
        {"window_calls": 0},
        {"window_ms": 0},
        {"calls_min": 21},
        {"fail_ratio": 1.0},
        {"fail_ratio": float("nan")},
        {"open_ms": 0},
        {"open_ms_max": 0},
        {"probes_max": 0},
        {"close_ratio": 1.0},
        {"mode": "ajar"},
    ],
)
def test_a_policy_that_could_never_open_or_never_close_is_refused_by_field(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        replace(POLICY, **change)
