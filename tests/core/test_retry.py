"""How long an item waits before it is tried again."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.core.failures import (
    NAMED,
    RETRY_AFTER_CAP_MS,
    RETRY_AFTER_FLOOR_MS,
    RetryPolicy,
    next_delay_ms,
    policy_named,
)

GATEWAY, QUEUE, TIMED, NONE = (NAMED[name] for name in ("gateway", "queue", "timed", "none"))

POLICIES = st.builds(
    lambda base_ms, room_ms, **rest: RetryPolicy("any", None, base_ms=base_ms, cap_ms=base_ms + room_ms, **rest),
    base_ms=st.integers(0, 10**7),
    room_ms=st.integers(0, 10**7),
    factor=st.floats(1, 100),
    jitter_ms=st.integers(0, 10**6),
    spread=st.floats(0, 1),
)
SEEDS = st.integers(0, 2**32)


class Edge(random.Random):
    """Always draws the given end of the range."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share


LOWEST, MIDDLE, HIGHEST = Edge(0.0), Edge(0.5), Edge(1.0)


@pytest.mark.parametrize(
    ("attempt", "shortest", "longest"), [(0, 5_000, 10_000), (1, 10_000, 15_000), (2, 20_000, 25_000)]
)
def test_the_gateway_waits_5_s_doubled_per_attempt_plus_up_to_5_s(attempt, shortest, longest):
    assert GATEWAY.delay_ms(attempt, LOWEST) == shortest
    assert GATEWAY.delay_ms(attempt, HIGHEST) == longest


def test_the_queue_starts_at_2_s_and_not_at_1_s():
    assert [QUEUE.delay_ms(attempt, MIDDLE) for attempt in range(4)] == [2_000, 4_000, 8_000, 16_000]


def test_the_queue_spreads_its_delays_by_a_fifth_either_way():
    assert QUEUE.delay_ms(0, LOWEST) == 1_600
    assert QUEUE.delay_ms(0, HIGHEST) == 2_400


def test_the_queue_caps_at_300_s_before_it_spreads_so_that_long_waits_do_not_end_together():
    assert QUEUE.delay_ms(8, MIDDLE) == 300_000
    assert QUEUE.delay_ms(8, HIGHEST) == 360_000 == QUEUE.delay_ms_max
    assert QUEUE.delay_ms(8, LOWEST) == 240_000


def test_gateway_and_queue_give_up_after_3_attempts_and_none_after_1():
    assert [policy.attempts_max for policy in (GATEWAY, QUEUE, NONE)] == [3, 3, 1]


def test_timed_has_no_count_of_attempts_and_waits_like_the_queue():
    assert replace(QUEUE, name="timed", attempts_max=None) == TIMED


@given(POLICIES, st.integers(0, 10**9), SEEDS)
def test_a_delay_is_never_negative_and_never_above_its_bound_however_many_attempts(policy, attempt, seed):
    assert 0 <= policy.delay_ms(attempt, random.Random(seed)) <= policy.delay_ms_max


@given(POLICIES, st.integers(0, 200))
def test_without_chance_a_later_attempt_never_waits_less_nor_above_the_cap(policy, attempt):
    exact = replace(policy, jitter_ms=0, spread=0.0)
    waits = exact.delay_ms(attempt, LOWEST), exact.delay_ms(attempt + 1, LOWEST), exact.cap_ms
    assert list(waits) == sorted(waits)


@given(st.integers(0, 200), SEEDS)
def test_the_same_seed_gives_the_same_delay(attempt, seed):
    assert QUEUE.delay_ms(attempt, random.Random(seed)) == QUEUE.delay_ms(attempt, random.Random(seed))


def test_two_items_that_failed_together_do_not_come_back_together():
    rng = random.Random(1)
    assert len({QUEUE.delay_ms(5, rng) for _ in range(100)}) > 90


def test_a_retry_after_wins_over_the_formula_whether_longer_or_shorter():
    assert next_delay_ms(QUEUE, 0, 60_000, HIGHEST) == 60_000
    assert next_delay_ms(QUEUE, 7, 3_000, HIGHEST) == 3_000


def test_without_a_retry_after_the_formula_decides():
    assert next_delay_ms(QUEUE, 1, None, MIDDLE) == 4_000


def test_an_unbounded_retry_after_is_capped():
    assert next_delay_ms(QUEUE, 0, 10**15, MIDDLE) == RETRY_AFTER_CAP_MS == 3_600_000


@pytest.mark.parametrize("retry_after_ms", [-5, 0, 1])
def test_a_retry_after_of_nothing_does_not_make_an_item_spin(retry_after_ms):
    assert next_delay_ms(QUEUE, 0, retry_after_ms, MIDDLE) == RETRY_AFTER_FLOOR_MS == 1_000


def test_a_policy_that_nobody_knows_is_answered_with_the_names_of_those_there_are():
    assert policy_named("gateway") is GATEWAY
    with pytest.raises(UsageError, match="'gatway'; choose from gateway, queue, timed, none"):
        policy_named("gatway")


@pytest.mark.parametrize(
    "change",
    [
        {"attempts_max": 0},
        {"base_ms": -1},
        {"base_ms": 300_001},
        {"cap_ms": 10**12},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"jitter_ms": -1},
        {"spread": 1.1},
        {"spread": float("nan")},
    ],
)
def test_an_impossible_policy_is_refused_in_one_line_that_names_the_field(change):
    with pytest.raises(UsageError) as refused:
        replace(QUEUE, **change)
    assert next(iter(change)) in str(refused.value)
    assert "\n" not in str(refused.value)
