"""No budget is exceeded and no job waits for money that is there, whatever befalls the workers; and a missing safeguard
is noticed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest.mock import patch

import pytest

from backstay.core.money import Budget, Period
from backstay.store import budgets
from backstay.store.queries import Script
from tests.simulation.ablations import altered
from tests.simulation.budgets import BudgetPlan, BudgetWorld, budget_plan, run_budgets, struck, turning
from tests.simulation.world import Failure, digest

PROBES = (
    "a budget was raised",
    "a budget was removed",
    "a budget was set",
    "a job waits for money",
    "a late write was refused",
    "a request was found",
    "cancel by hand",
    "claim_items committed, its answer lost",
    "frozen",
    "killed",
    "rescued",
    "settle committed, its answer lost",
    "settled: repeat",
    "thawed",
    "weigh committed, its answer lost",
)
POINTS = 345  # suspension points of a worker until both jobs have ended, and some more


@pytest.mark.parametrize("seed", [0, 3])
def test_no_seeded_world_of_budgets_breaks_a_promise(seed: int) -> None:
    run_budgets(budget_plan(seed))


def test_what_does_not_fit_in_a_month_is_done_in_the_next_and_another_owner_waits_for_nothing() -> None:
    _turn(Period.MONTH)


@pytest.mark.slow
def test_what_does_not_fit_on_a_day_is_done_on_the_next() -> None:
    _turn(Period.DAY)


def _turn(period: Period) -> None:
    world = BudgetWorld(turning(period))
    world.run()
    assert world.waiting == [world.jobs[0].id]
    assert len(world.ledger.charges) == 12


@pytest.mark.slow
def test_many_worlds_of_budgets_break_no_promise_and_every_rare_situation_is_reached() -> None:
    reached: Counter[str] = Counter()
    for seed in range(60):
        reached += run_budgets(budget_plan(seed)).probes
    assert [probe for probe in PROBES if not reached[probe]] == []


@pytest.mark.slow
@pytest.mark.parametrize("what", ["kill", "freeze"])
def test_money_of_a_worker_that_is_struck_at_any_suspension_point_comes_back(what: str) -> None:
    reached: Counter[str] = Counter()
    steps = range(1, POINTS, 1 if what == "kill" else 3)
    for step in steps:
        reached += run_budgets(struck(step, what)).probes
    assert reached["killed" if what == "kill" else "thawed"] > len(steps) // 2


@pytest.mark.slow
def test_the_same_seed_tells_the_same_story_of_budgets() -> None:
    for seed in range(3):
        assert digest(run_budgets(budget_plan(seed))) == digest(run_budgets(budget_plan(seed)))


# safeguards switched off

_book = Budget.book


def _reserve_nothing(*_: Any) -> Script[None]:
    yield from ()


def _give_back_twice(self: Budget, reserved: int, used: int, began_at: int | None = None) -> Budget:
    return _book(self, reserved * 2 if reserved < 0 else reserved, used, began_at)


def _use_nothing(self: Budget, reserved: int, used: int, began_at: int | None = None) -> Budget:
    return _book(self, reserved, 0, began_at)


ABLATIONS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "the reservation in shared budgets": lambda: patch.object(budgets, "reserve_shared", _reserve_nothing),
    "money that is given back once": lambda: patch.object(Budget, "book", _give_back_twice),
    "the record of what was spent": lambda: patch.object(Budget, "book", _use_nothing),
    "the reservation of a job": lambda: altered("reserve", "reserved_micros + batch.reserved", "reserved_micros"),
    "the new period": lambda: patch.object(Budget, "at", lambda self, now_ms: self),
    "the look after a budget was raised": lambda: altered("set_budget", ", renewals = budgets.renewals + 1"),
    "what is under way when a budget is set": lambda: altered("under_way_of", "reserved_micros > 0", "1 = 0"),
}
# What the provider's own count finds without a look at the sums in the database.
BY_THE_BILL = ("the reservation in shared budgets", "money that is given back once", "the record of what was spent")


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_safeguard_of_budgets_switched_off_is_noticed(name: str) -> None:
    with ABLATIONS[name](), pytest.raises(Failure):
        _run_all(_hunted())


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_THE_BILL)
def test_the_provider_s_own_count_notices_that_a_budget_was_exceeded(name: str) -> None:
    with ABLATIONS[name](), pytest.raises(Failure, match="the provider took"):
        _run_all(replace(plan, compares=False) for plan in _hunted())


def _run_all(plans: Iterator[BudgetPlan]) -> None:
    for plan in plans:
        run_budgets(plan)


def _hunted() -> Iterator[BudgetPlan]:
    return chain([turning(Period.MONTH)], map(budget_plan, range(40)))
