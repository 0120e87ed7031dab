"""The worst hour that a configuration allows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.limits import PROFILES, Limits, bounds, profile_named

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


def test_a_job_is_ended_by_the_first_invocation_after_its_limit():
    assert bounds(BALANCED).job_life_seconds == 172_800 + 300 + 600


def test_an_item_lives_until_the_first_invocation_after_its_limit_and_its_longest_wait():
    assert bounds(BALANCED).item_life_seconds == 7_200 + 3_605 + 300 + 600
    assert bounds(replace(BALANCED, poll_interval_seconds=5_000)).item_life_seconds == 7_200 + 5_000 + 300 + 600


def test_llm_items_and_jobs_live_by_limits_of_their_own():
    days = 86_400
    worst = bounds(BALANCED)
    assert worst.llm_item_life_seconds == 7 * days + 3_605 + 300 + 600
    assert worst.llm_job_life_seconds == 14 * days + 300 + 600
    longer = bounds(replace(BALANCED, item_timeout_seconds=9 * days, job_timeout_seconds=20 * days))
    assert longer.llm_item_life_seconds == worst.llm_item_life_seconds
    assert longer.llm_job_life_seconds == worst.llm_job_life_seconds


@pytest.mark.parametrize("prefix", ["", "llm_"])
def test_an_item_never_outlives_its_job(prefix):
    longest = getattr(BALANCED, f"{prefix}job_timeout_seconds")
    worst = bounds(replace(BALANCED, **{f"{prefix}item_timeout_seconds": longest}))
    assert getattr(worst, f"{prefix}item_life_seconds") == getattr(worst, f"{prefix}job_life_seconds")


def test_without_inner_retries_an_item_is_still_looked_up_and_sent():
    worst = bounds(replace(BALANCED, call_retries_max=0))
    assert worst.calls == 2 * worst.items


@given(LIMITS)
def test_the_counts_always_add_up(limits):
    worst = bounds(limits)
    assert worst.triggers * limits.tick_interval_seconds >= 3_600 * (1 - 1e-9)
    assert worst.invocations == worst.triggers * (limits.chain_depth_max + 1)
    assert worst.calls == worst.items + worst.retries == worst.items * (max(limits.call_retries_max, 1) + 1)
    assert (worst.cost_micros is None) == (limits.cost_per_call_micros is None)


@given(LIMITS)
def test_a_shorter_chain_is_never_worse(limits):
    shorter = replace(limits, chain_depth_max=max(0, limits.chain_depth_max - 1))
    assert bounds(shorter).calls <= bounds(limits).calls
