"""The worst hour that a configuration allows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.bounds import bounds
from backstay.core.limits import Limits
from backstay.core.profiles import PROFILES, profile_named

BALANCED = profile_named("balanced")

LIMITS = st.builds(
    Limits,
    tick_interval_seconds=st.floats(1, 86_400),
    chain_depth_max=st.integers(0, 100),
    tick_items_max=st.integers(1, 10**6),
    call_retries_max=st.integers(0, 100),
    cost_per_call_micros=st.none() | st.integers(0, 10**9),
)


def test_a_chain_of_depth_2_is_3_invocations_so_balanced_makes_36_an_hour_and_not_24():
    assert (bounds(BALANCED).triggers, bounds(BALANCED).invocations) == (12, 36)


def test_6_inner_retries_make_7_calls_of_an_item():
    worst = bounds(BALANCED)
    assert (worst.items, worst.retries, worst.calls) == (36_000, 216_000, 252_000)


@pytest.mark.parametrize(
    ("name", "invocations", "calls", "compute_minutes"),
    [("conservative", 24, 96_000, 240), ("balanced", 36, 252_000, 360), ("aggressive", 72, 792_000, 720)],
)
def test_each_profile_has_its_worst_hour(name, invocations, calls, compute_minutes):
    worst = bounds(PROFILES[name])
    assert (worst.invocations, worst.calls, worst.compute_minutes) == (invocations, calls, compute_minutes)


def test_without_a_price_the_cost_is_unknown_and_never_0():
    assert bounds(BALANCED).cost_micros is None


def test_with_a_price_every_call_counts_retries_included():
    assert bounds(replace(BALANCED, cost_per_call_micros=500)).cost_micros == 252_000 * 500
    assert bounds(replace(BALANCED, cost_per_call_micros=0)).cost_micros == 0


def test_an_interval_that_does_not_divide_the_hour_counts_its_last_trigger():
    assert bounds(replace(BALANCED, tick_interval_seconds=420)).triggers == 9


def test_part_of_a_compute_minute_is_a_minute():
    assert (
        bounds(replace(BALANCED, tick_interval_seconds=3_600, chain_depth_max=0, invocation_seconds=61)).compute_minutes
        == 2
    )


def test_a_job_lives_until_the_first_invocation_after_its_limit():
    assert bounds(BALANCED).job_life_seconds == 172_800 + 300


def test_an_item_lives_until_the_end_of_the_first_invocation_after_its_limit():
    assert bounds(BALANCED).item_life_seconds == 7_200 + 300 + 600


def test_an_item_never_outlives_its_job():
    worst = bounds(replace(BALANCED, item_timeout_seconds=172_800))
    assert worst.item_life_seconds == worst.job_life_seconds


@given(LIMITS)
def test_the_counts_always_add_up(limits):
    worst = bounds(limits)
    assert worst.triggers * limits.tick_interval_seconds >= 3_600 * (1 - 1e-9)
    assert worst.invocations == worst.triggers * (limits.chain_depth_max + 1)
    assert worst.calls == worst.items + worst.retries == worst.items * (limits.call_retries_max + 1)
    assert (worst.cost_micros is None) == (limits.cost_per_call_micros is None)


@given(LIMITS)
def test_a_shorter_chain_is_never_worse(limits):
    shorter = replace(limits, chain_depth_max=max(0, limits.chain_depth_max - 1))
    assert bounds(shorter).calls <= bounds(limits).calls
