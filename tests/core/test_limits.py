"""The named bounds, the profiles made of them, and what is late by them."""

import inspect
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core import deadlines
from backstay.core.deadlines import deadline_at, job_timed_out, past_deadline, remaining_ms, run_budget_ms, timed_out
from backstay.core.errors import UsageError
from backstay.core.limits import RANGES, Limits, reconcile_after_ms
from backstay.core.profiles import PROFILES, profile_named

BALANCED = Limits()
NOW = 1_700_000_000_000


def test_every_limit_has_a_range_and_every_range_a_limit():
    assert [field.name for field in fields(Limits)] == list(RANGES)


def limits_with(name: str, value: Any) -> Limits:
    return Limits(**{name: value})


@pytest.mark.parametrize("name", [name for name in RANGES if name != "cost_per_call_micros"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**15, None, "60", True])
def test_an_impossible_limit_is_refused_in_one_line_that_names_the_field_and_its_range(name, value):
    with pytest.raises(UsageError) as refused:
        limits_with(name, value)
    assert str(refused.value).startswith(f"{name} must be a")
    assert " from " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [name for name in RANGES if not name.endswith("_seconds")])
def test_what_counts_things_is_a_whole_number(name):
    with pytest.raises(UsageError, match=f"{name} must be a whole number"):
        limits_with(name, 2.5)


@pytest.mark.parametrize("name", ["call_retries_max", "chain_depth_max", "rescues_max", "cost_per_call_micros"])
def test_none_at_all_is_allowed_where_it_makes_sense(name):
    assert getattr(limits_with(name, 0), name) == 0


def test_a_price_may_be_unknown_but_not_negative():
    assert BALANCED.cost_per_call_micros is None
    with pytest.raises(UsageError, match="cost_per_call_micros"):
        Limits(cost_per_call_micros=-1)


@pytest.mark.parametrize("name", ["heartbeat_seconds", "send_guard_seconds"])
def test_a_lease_outlives_its_heartbeat_and_its_send_guard(name):
    with pytest.raises(UsageError, match=rf"{name} must be below lease_seconds \(90\), not 90"):
        limits_with(name, 90)
    limits_with(name, 89.9)


def test_a_submission_is_reconciled_after_guard_call_lag_and_margin():
    assert reconcile_after_ms(BALANCED, run_seconds=60) == (10 + 60 + 10 + 10) * 1_000
    assert reconcile_after_ms(Limits(send_guard_seconds=0), run_seconds=0.5) == 20_500


@pytest.mark.parametrize(
    ("name", "item_hours", "job_hours", "depth", "retries"),
    [("conservative", 1, 24, 1, 3), ("balanced", 2, 48, 2, 6), ("aggressive", 4, 96, 5, 10)],
)
def test_each_profile_has_its_figures(name, item_hours, job_hours, depth, retries):
    limits = profile_named(name)
    assert limits.item_timeout_seconds == item_hours * 3_600
    assert limits.job_timeout_seconds == job_hours * 3_600
    assert (limits.chain_depth_max, limits.call_retries_max) == (depth, retries)


def test_balanced_is_the_default():
    assert PROFILES["balanced"] == Limits()


def test_a_profile_that_nobody_knows_is_answered_with_the_names_of_those_there_are():
    with pytest.raises(UsageError, match="'bold'; choose from conservative, balanced, aggressive"):
        profile_named("bold")


@pytest.mark.parametrize(("late", "seconds"), [(timed_out, 7_200), (job_timed_out, 172_800)])
def test_items_and_jobs_are_late_once_they_are_older_than_their_limit(late, seconds):
    created_at = NOW - seconds * 1_000
    assert not late(created_at, NOW, BALANCED)
    assert late(created_at - 1, NOW, BALANCED)


def test_an_item_in_submitting_does_not_escape_its_timeout_because_no_state_is_asked_for():
    assert list(inspect.signature(timed_out).parameters) == ["created_at", "now_ms", "limits"]
    assert "states" not in vars(deadlines)


def test_a_deadline_counts_from_creation_and_is_still_in_time_itself():
    deadline = deadline_at(NOW, 1_200)
    assert deadline == NOW + 1_200_000
    assert not past_deadline(deadline, NOW + 1_200_000)
    assert past_deadline(deadline, NOW + 1_200_001)


def test_work_without_a_deadline_is_never_past_it():
    assert deadline_at(NOW, None) is None
    assert not past_deadline(None, NOW)
    assert remaining_ms(None, NOW) is None


@pytest.mark.parametrize(
    ("deadline", "budget_ms"),
    [(None, 300_000), (NOW + 900_000, 300_000), (NOW + 5_000, 5_000), (NOW, 0), (NOW - 5_000, 0)],
)
def test_one_run_takes_its_limit_or_the_time_left_to_the_deadline(deadline, budget_ms):
    assert run_budget_ms(deadline, NOW, BALANCED) == budget_ms


@given(st.none() | st.integers(0, 2 * NOW), st.integers(0, 2 * NOW), st.floats(0.001, 86_400))
def test_a_run_never_outlasts_its_limit_or_its_deadline(deadline, now_ms, seconds):
    budget_ms = run_budget_ms(deadline, now_ms, replace(BALANCED, handler_timeout_seconds=seconds))
    assert 0 <= budget_ms <= round(seconds * 1_000)
    assert deadline is None or budget_ms == 0 or now_ms + budget_ms <= deadline
