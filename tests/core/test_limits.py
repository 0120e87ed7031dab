"""The named bounds, the profiles made of them, and what is late by them."""

from dataclasses import fields
from typing import Any

import pytest

from backstay.core.errors import UsageError
from backstay.core.limits import (
    PROFILES,
    RANGES,
    Limits,
    has_timed_out,
    is_past_deadline,
    profile_named,
    reconcile_after_ms,
)

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


def test_the_time_for_sending_is_longer_than_all_that_is_added_to_a_run():
    words = r"submitting_seconds must be above the sum of send guard, visibility lag and margin \(30\), not 30"
    with pytest.raises(UsageError, match=words):
        Limits(submitting_seconds=30)
    Limits(submitting_seconds=30.1)


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


@pytest.mark.parametrize(
    ("name", "item_days", "job_days"), [("conservative", 2, 3), ("balanced", 7, 14), ("aggressive", 14, 30)]
)
def test_each_profile_has_its_figures_for_llm_jobs(name, item_days, job_days):
    limits = profile_named(name)
    assert limits.llm_item_timeout_seconds == item_days * 86_400
    assert limits.llm_job_timeout_seconds == job_days * 86_400


def test_balanced_is_the_default():
    assert PROFILES["balanced"] == Limits()


def test_a_profile_that_nobody_knows_is_answered_with_the_names_of_those_there_are():
    with pytest.raises(UsageError, match="'bold'; choose from conservative, balanced, aggressive"):
        profile_named("bold")


def test_an_item_is_late_once_it_is_older_than_its_limit():
    created_at = NOW - 7_200_000
    assert not has_timed_out(created_at, NOW, BALANCED)
    assert has_timed_out(created_at - 1, NOW, BALANCED)


def test_at_the_deadline_itself_the_work_is_still_in_time():
    assert not is_past_deadline(NOW, NOW)
    assert is_past_deadline(NOW, NOW + 1)


def test_work_without_a_deadline_is_never_past_it():
    assert not is_past_deadline(None, NOW)
