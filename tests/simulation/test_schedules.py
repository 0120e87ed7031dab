"""Each firing happens once, whatever befalls the workers and ticks that make it; and a missing safeguard is noticed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from backstay.clock import cron
from backstay.core.models import MissedPolicy, NewSchedule
from backstay.engine import scheduler
from backstay.engine.scheduler import ON_TIME_MS, key_of
from backstay.engine.tick import Tick
from backstay.store.schedules import Firing, Schedules
from backstay.store.store import Store
from tests.databases import Site
from tests.engine.rig import Rig
from tests.simulation.ablations import altered
from tests.simulation.schedules import (
    SchedulePlan,
    ScheduleWorld,
    frozen_before_a_pause,
    pauses_in,
    run_schedules,
    schedule_plan,
)
from tests.simulation.world import Failure, digest

SEEDS = 4
PROBES = ("a tick ran", "fire committed, its answer lost", "frozen", "killed", "thawed")
MINUTE_MS = 60_000


def test_no_seeded_world_of_schedules_breaks_a_promise_and_every_rare_situation_is_reached() -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS):
        reached += run_schedules(schedule_plan(seed)).probes
    assert [probe for probe in PROBES if not reached[probe]] == []


@pytest.mark.slow
def test_many_worlds_of_schedules_break_no_promise() -> None:
    _run_all(40)


@pytest.mark.slow
def test_the_same_seed_tells_the_same_story_of_schedules() -> None:
    for seed in range(3):
        assert digest(run_schedules(schedule_plan(seed))) == digest(run_schedules(schedule_plan(seed)))


def struck(step: int, what: str) -> SchedulePlan:
    """Two workers for a quarter of an hour; the first is struck at one suspension point."""
    plan = SchedulePlan(f"{what} {step}", minutes=15, workers=2)
    setattr(plan, f"{what}_at", step)
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("what", ["kill", "freeze"])
def test_a_kill_or_a_freeze_at_any_suspension_point_loses_and_repeats_no_firing(what: str) -> None:
    whole = ScheduleWorld(struck(0, what))
    whole.run()
    assert whole.first is not None
    points = range(1, min(whole.first.steps, 300))
    assert len(points) >= 200
    assert sum(run_schedules(struck(step, what)).probes["killed" if what == "kill" else "frozen"] for step in points)


@pytest.mark.slow
def test_60_ticks_and_five_workers_fire_each_firing_of_two_days_once() -> None:
    plan = SchedulePlan("two days", minutes=3_000, workers=5, tick_minutes=50, kills=0.3, freezes=0.1, watched=False)
    plan.pauses = pauses_in(180_000, 5, Random(1))
    world = ScheduleWorld(plan)
    trace = world.run()
    assert world.ticks >= 60
    assert trace.probes["killed"] > 30
    assert trace.probes["frozen"] > 6


@pytest.mark.slow
async def test_200_ticks_and_five_workers_on_each_database_fire_each_firing_of_a_week_once(site: Site) -> None:
    """Their own connections, their own time, 50 minutes a round; in each round some are killed half-way."""
    rig = Rig(site, await site.open_store(), tick_items_max=100)

    @rig.app.handler()
    async def work(item: Any) -> str:
        return "done"

    policies = {"all": MissedPolicy.ALL, "once": MissedPolicy.ONCE, "skip": MissedPolicy.SKIP}
    for name, missed in policies.items():
        await rig.store.schedules.add(NewSchedule(name, "work", "*/10 * * * *", "Europe/Berlin", missed=missed), "ann")
    rng, start, killed = Random(7), site.clock.ms, 0
    crews = [await _crew(rig, site) for _ in range(6)]
    for _ in range(200):
        await site.advance(3_000)
        running = [asyncio.create_task(_look(crew, is_tick=number == 5)) for number, crew in enumerate(crews)]
        for number in rng.sample(range(6), 2):
            await _kill_soon(running[number], rng.randint(0, 12))
            killed += running[number].cancelled()
        await asyncio.gather(*running, return_exceptions=True)
    await crews[0].scheduler.run_all()
    assert killed > 50
    made = Counter(row[0] for row in await site.rows("SELECT idempotency_key FROM jobs"))
    due = list(cron.firings_between("*/10 * * * *", "Europe/Berlin", start + 1, site.clock.ms))
    assert len(due) == 1_000
    assert [made[key_of("all", at)] for at in due] == [1] * len(due)
    last_of_round = [max(at for at in due if at <= start + n * 3_000_000) for n in range(1, 201)]
    assert {key for key in made if key.startswith("schedule:once:")} == {key_of("once", at) for at in last_of_round}
    on_time = {key_of("skip", at) for n, at in enumerate(last_of_round, 1) if start + n * 3_000_000 - at <= ON_TIME_MS}
    assert {key for key in made if key.startswith("schedule:skip:")} == on_time
    assert set(made.values()) == {1}


async def _crew(rig: Rig, site: Site) -> Any:
    engine = rig.engine(heart=False)
    engine.parts.store = await site.open_store()
    return engine


async def _look(engine: Any, is_tick: bool) -> None:
    await (Tick(engine).run() if is_tick else engine.scheduler.run_all())


async def _kill_soon(task: "asyncio.Task[None]", steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])


async def _fire_in_two_steps(self: Schedules, firing: Firing) -> list[int] | None:
    """As it must not be: the schedule is advanced, and then its jobs are made."""
    won = await _fire(self, firing._replace(jobs=()))
    if won is None:
        return None
    store = Store(self._db)
    return [(await store.submissions.open(job, chunk)).id for job, chunk in firing.jobs]


_fire = Schedules.fire
GUARD = "AND version = :version AND paused_at IS NULL"


@contextmanager
def _without_guard_and_key() -> Iterator[None]:
    numbers = count()
    plain = scheduler.key_of
    with (
        altered("advance_schedule", GUARD),
        patch.object(scheduler, "key_of", lambda name, at: f"{plain(name, at)}{next(numbers)}"),
    ):
        yield


ABLATIONS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "the version that a firing was read at": lambda: altered("advance_schedule", GUARD),
    "the version and the key of a firing": _without_guard_and_key,
    "the one transaction of a firing and its job": lambda: patch.object(Schedules, "fire", _fire_in_two_steps),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_safeguard_of_schedules_switched_off_is_noticed(name: str) -> None:
    with ABLATIONS[name](), pytest.raises(Failure):
        _run_all(40)


def _run_all(seeds: int) -> None:
    for seed in range(seeds):
        run_schedules(schedule_plan(seed))
        run_schedules(frozen_before_a_pause(100 + seed))
