"""Budgets that several jobs share: periods, what is left, and which items fit under all ceilings at once."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from backstay.core.errors import UsageError
from backstay.core.money import Budget, Period, PricedItem, fit, period_of
from backstay.core.pace import Pace, Rate, pace_after, read_rate, requests_allowed
from backstay.handlers.handler import CallLimits, call_limits


def ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("period", "now", "since", "ends"),
    [
        (Period.MONTH, ms(2026, 2, 28, 23, 59, 59), ms(2026, 2, 1), ms(2026, 3, 1)),
        (Period.MONTH, ms(2026, 12, 31), ms(2026, 12, 1), ms(2027, 1, 1)),
        (Period.DAY, ms(2028, 2, 29, 12), ms(2028, 2, 29), ms(2028, 3, 1)),
        (Period.TOTAL, ms(2026, 5, 5), 0, None),
    ],
)
def test_a_period_is_a_month_or_a_day_of_utc(period: Period, now: int, since: int, ends: int | None) -> None:
    assert period_of(period, now) == (since, ends)


def test_a_new_period_starts_with_nothing_used_and_what_is_under_way_still_counts() -> None:
    march = Budget(1, "", "", Period.MONTH, 100).at(ms(2026, 3, 1)).book(reserved=30, used=50)
    assert (march.left_micros, march.at(ms(2026, 3, 31, 23)).left_micros) == (20, 20)
    april = march.at(ms(2026, 4, 1))
    assert (april.left_micros, april.renewals) == (70, march.renewals + 1)
    assert april.book(reserved=-30, used=25).left_micros == 75


def test_money_of_an_earlier_period_that_comes_back_does_not_widen_this_one() -> None:
    month = Budget(1, "", "", Period.MONTH, 100, used_micros=40, since_at=5).book(0, -10, began_at=4)
    own = Budget(1, "", "", Period.MONTH, 100, used_micros=40, since_at=5).book(0, -10, began_at=5)
    total = Budget(1, "", "", Period.TOTAL, 100, used_micros=40).book(0, -10)
    assert (month.left_micros, own.left_micros, total.left_micros) == (60, 70, 70)


def test_only_money_that_comes_back_renews_a_budget() -> None:
    budget = Budget(1, "", "", Period.TOTAL, 100)
    assert budget.book(10, 0).renewals == 0
    assert budget.book(10, 0).book(-10, 10).renewals == 0
    assert budget.book(10, 0).book(-10, 4).renewals == 1


@pytest.mark.parametrize(
    ("owner", "handler", "covers"),
    [("", "", True), ("ann", "", True), ("", "h", True), ("bob", "", False), ("ann", "g", False)],
)
def test_an_empty_name_covers_everyone(owner: str, handler: str, covers: bool) -> None:
    assert Budget(1, owner, handler, Period.TOTAL, 1).covers("ann", "h") is covers


def test_an_item_must_fit_under_every_ceiling_and_one_that_does_not_stops_its_job_only() -> None:
    small, large = Budget(7, "", "", Period.DAY, 25), Budget(8, "", "", Period.MONTH, 1_000)
    picked = [PricedItem(1, 10, 10), PricedItem(2, 11, 20), PricedItem(3, 10, 10), PricedItem(4, 12, 5)]
    found = fit(picked, {12: 4}, {10: [small, large], 11: [small, large], 12: [large]})
    assert found.items == [(1, 10), (3, 10)]
    assert found.short == {11: 7, 12: None}
    assert found.booked == {7: 20, 8: 20}
    assert found.reserved == {10: 20}


def test_an_item_whose_cost_nobody_knows_does_not_fit_under_a_ceiling() -> None:
    assert fit([PricedItem(1, 10, None)], {}, {10: [Budget(7, "", "", Period.DAY, 25)]}).short == {10: 7}
    assert fit([PricedItem(1, 10, None)], {}, {}).items == [(1, 0)]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("5/s", Rate(5, 1_000)),
        ("100/min", Rate(100, 60_000)),
        (" 2000 / hour ", Rate(2_000, 3_600_000)),
        ("9/day", Rate(9, 86_400_000)),
    ],
)
def test_a_rate_has_a_number_and_a_unit(text: str, rate: Rate) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize("text", ["100", "0/s", "-1/s", "1.5/s", "5/week", "/s", "five/s", 100, None, ""])
def test_what_is_no_rate_is_refused_with_what_to_write(text: object) -> None:
    with pytest.raises(UsageError, match="is not a rate") as refused:
        read_rate(text)
    assert "100/min" in refused.value.hint


@pytest.mark.parametrize(
    "rate", [Rate(1, 1_000), Rate(5, 1_000), Rate(200, 1_000), Rate(7, 3_600_000), Rate(5_000, 3_600_000)]
)
def test_no_period_ever_sees_more_calls_than_its_rate(rate: Rate) -> None:
    pace = Pace("p", rate.calls, None, concurrency=10_000, ceiling=10_000, requests_period_ms=rate.period_ms)
    sent: list[int] = []
    for now in range(0, 4 * rate.period_ms, max(rate.period_ms // 300, 1)):
        allowed = requests_allowed(pace, 0, now)
        pace = pace_after(pace, allowed, 0, now)
        sent += [now] * allowed
    assert len(sent) > 2 * rate.calls
    for index, at in enumerate(sent):
        assert index < rate.calls or sent[index - rate.calls] <= at - rate.period_ms


@pytest.mark.parametrize("cost", [-0.01, float("nan"), Decimal("nan"), float("inf"), True, "1", 10**400])
def test_a_cost_that_is_no_amount_is_refused(cost: object) -> None:
    with pytest.raises(UsageError, match="a handler's cost must be a number of dollars from 0"):
        call_limits(None, None, None, cost)


def test_dollars_become_micro_dollars_rounded_up() -> None:
    assert call_limits(None, None, None, 0.002).weigh("") == (2_000, 0)
    assert call_limits(None, None, None, 0.0000011).weigh("") == (2, 0)


def test_a_cost_of_no_amount_names_itself_and_a_function_that_fails_says_why() -> None:
    with pytest.raises(UsageError, match="the tokens of an item must be a whole number from 0 to"):
        CallLimits(tokens_per_minute=100, tokens=lambda payload: None).weigh("1")
    with pytest.raises(UsageError, match="the function that computes the cost of an item failed: KeyError: 'pages'"):
        CallLimits(cost=lambda payload: payload["pages"]).weigh("{}")


def test_an_item_is_weighed_by_its_payload() -> None:
    limits = CallLimits(tokens_per_minute=100, cost=lambda pages: 0.01 * pages, tokens=lambda pages: 7 * pages)
    assert limits.weigh("3") == (30_000, 21)
    assert CallLimits(tokens_per_minute=100).weigh('"' + "x" * 38 + '"') == (0, 10)
