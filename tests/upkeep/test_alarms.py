"""Alarms: each is raised above its bound and not at it, told once whoever notices, and over when its cause is."""

import asyncio
from typing import Literal

import asyncpg
import pytest

from backstay.clock import new_id
from backstay.core.alarms import Alarm, AlarmReading
from backstay.core.events import AlarmChanged, Event
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.upkeep.loop import LOOK_MS, AlarmWatch
from tests.engine.provider import HttpError, Provider
from tests.engine.rig import Rig
from tests.store.store_rig import WRONG
from tests.upkeep.upkeep_rig import DAY_MS, Desk

HOUR = 3_600.0


class Watching:
    """Several processes that look at one database, and all that they told."""

    def __init__(self, desk: Desk, watches: list[AlarmWatch], told: list[Event]) -> None:
        self.desk = desk
        self.watches = watches
        self._told = told

    async def look(self) -> list[AlarmReading]:
        """What all of them tell when they look at once, twice."""
        for _ in range(2):
            await asyncio.gather(*(each.look() for each in self.watches))
        told = [event.reading for event in self._told if isinstance(event, AlarmChanged)]
        self._told.clear()
        return told

    async def raised(self) -> dict[Alarm, int]:
        return {one.reading.alarm: one.reading.value for one in await self.desk.store.alarms.all_raised()}


async def watching(desk: Desk, **settings: int) -> Watching:
    told: list[Event] = []
    bus = Bus()
    bus.subscribe(told.append)
    stores = [await desk.site.open_store() for _ in range(3)]
    return Watching(desk, [AlarmWatch(store, Settings(owner="ann", **settings), bus) for store in stores], told)  # type: ignore[arg-type]


async def test_dead_letters_of_a_day_are_told_once_and_once_when_they_are_over(desk: Desk) -> None:
    watch = await watching(desk, dead_letter_alarm=3)
    await desk.fail(3)
    assert await watch.look() == []
    await desk.fail(5)
    assert await watch.look() == [AlarmReading(Alarm.DEAD_LETTERS, 8, 3)]
    await desk.fail(1)
    assert await watch.look() == []
    assert await watch.raised() == {Alarm.DEAD_LETTERS: 9}  # the newest figure is shown
    await desk.site.advance(DAY_MS / 1000)
    assert await watch.look() == [AlarmReading(Alarm.DEAD_LETTERS, 0, 3)]
    assert await watch.raised() == {}
    [known] = await desk.store.alarms.all_known()
    assert known.cleared_at == known.raised_at + DAY_MS + 2 * 610_000


async def test_an_alarm_that_only_a_newer_version_knows_is_passed_over(desk: Desk) -> None:
    await desk.site.rows("INSERT INTO alarms (name, value, bound, raised_at) VALUES ('of_tomorrow', 1, 0, 1)")
    assert await desk.store.alarms.all_known() == []


async def test_an_alarm_comes_back(desk: Desk) -> None:
    watch = await watching(desk, dead_letter_alarm=1)
    for _ in range(2):
        await desk.fail(2)
        assert [reading.is_raised for reading in await watch.look()] == [True]
        await desk.site.advance(DAY_MS / 1000)
        assert [reading.is_raised for reading in await watch.look()] == [False]


async def test_items_whose_time_was_over_count_and_not_those_that_a_provider_answered_too_late(desk: Desk) -> None:
    watch = await watching(desk, alarm_timeouts=2)
    rig = Rig(desk.site, await desk.site.open_store(), job_timeout_seconds=10_000)
    late = rig.serves(Provider(), "late", retry="none")
    late.script = [HttpError(504)] * 4
    await rig.submit(range(4), "late")
    await rig.tick()
    assert await desk.site.rows("SELECT DISTINCT state, error_code FROM items") == [("failed", "GW_TIMEOUT")]
    assert await watch.look() == []
    stuck = rig.serves(Provider(), "stuck", retry="timed")
    stuck.script = [HttpError(502)] * 9
    await rig.submit(["too old"], "stuck")
    await rig.tick()
    await desk.site.advance(rig.limits.item_timeout_seconds + 1)
    await rig.tick()
    await rig.submit(["never begun"], "late", deadline_seconds=60)
    await desk.site.advance(61)
    await rig.tick()
    assert await watch.look() == []
    stuck.script = [HttpError(429, "3000")] * 9
    await rig.submit(["of a job that is over"], "stuck")
    await rig.tick()
    await desk.site.advance(rig.limits.job_timeout_seconds + 1)
    await rig.tick()
    assert await watch.look() == [AlarmReading(Alarm.ITEM_TIMEOUTS, 3, 2)]


async def test_more_than_a_tenth_of_the_jobs_failed(desk: Desk) -> None:
    watch = await watching(desk)
    await desk.scene.ended(WRONG)
    for _ in range(8):
        await desk.scene.ended()
    assert await watch.look() == []  # of nine jobs one says nothing yet
    await desk.scene.ended()
    assert await watch.look() == []  # a tenth is not more than a tenth
    await desk.scene.ended(WRONG)
    assert await watch.look() == [AlarmReading(Alarm.FAILED_JOBS, 19, 10)]
    for _ in range(9):
        await desk.scene.ended()
    assert await watch.look() == [AlarmReading(Alarm.FAILED_JOBS, 10, 10)]


Way = Literal["well", "full", "failed", "killed"]


async def invoke(desk: Desk, times: int, way: Way = "well") -> None:
    for _ in range(times):
        name = new_id()
        await desk.store.invocations.begin(name, 0, 0)
        if way == "failed":
            await desk.store.invocations.fail(name, "a bug")
        elif way != "killed":
            await desk.store.invocations.end(name, 1, way == "full")


async def test_invocations_that_failed_or_were_killed(desk: Desk) -> None:
    watch = await watching(desk)
    await invoke(desk, 18)
    await invoke(desk, 1, "failed")
    assert await watch.look() == []  # of nineteen one says nothing yet
    await invoke(desk, 1)
    assert await watch.look() == []  # a twentieth is not more than a twentieth
    await invoke(desk, 1, "killed")
    assert await watch.look() == []  # it may be running
    await desk.site.advance(61)
    assert await watch.look() == [AlarmReading(Alarm.INVOCATION_ERRORS, 10, 5)]
    await invoke(desk, 19)
    assert await watch.look() == [AlarmReading(Alarm.INVOCATION_ERRORS, 5, 5)]


async def test_chains_that_often_end_with_work_left(desk: Desk) -> None:
    watch = await watching(desk)
    await invoke(desk, 2, "full")
    assert await watch.look() == []
    await invoke(desk, 1, "full")
    assert await watch.look() == [AlarmReading(Alarm.CHAIN_DEPTH, 3, 2)]
    await desk.site.advance(HOUR)
    assert await watch.look() == [AlarmReading(Alarm.CHAIN_DEPTH, 0, 2)]


async def test_messages_that_do_not_leave(desk: Desk) -> None:
    watch = await watching(desk)
    await desk.store.outbox.open_sink()
    await desk.scene.submit(3)
    await desk.site.advance(60)
    assert await watch.look() == []
    await desk.site.advance(1)
    assert await watch.look() == [AlarmReading(Alarm.OUTBOX_LAG, 61, 60)]
    await desk.store.outbox.close_sink()
    assert await watch.look() == [AlarmReading(Alarm.OUTBOX_LAG, 0, 60)]


@pytest.mark.slow
async def test_a_transaction_that_stays_open_is_named(desk: Desk) -> None:
    if not desk.site.is_postgres:
        pytest.skip("SQLite keeps no row versions")
    watch = await watching(desk, alarm_transaction_seconds=1)
    holder = await asyncpg.connect(desk.site.url, server_settings={"application_name": "report"})
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.execute("SELECT pg_sleep(2)")
        [reading] = await watch.look()
        assert (reading.alarm, reading.bound, reading.value >= 2) == (Alarm.OLD_TRANSACTION, 1, True)
        pid = await holder.fetchval("SELECT pg_backend_pid()")
        assert f"(process {pid} of user postgres, application 'report', whose last query began at 20" in reading.words
        [standing] = await desk.store.alarms.all_raised()
        assert standing.reading.detail in reading.words
        await holder.execute("COMMIT")
        assert await watch.look() == [AlarmReading(Alarm.OLD_TRANSACTION, 0, 1)]
    finally:
        await holder.close()


async def test_of_many_processes_one_looks_for_all(desk: Desk) -> None:
    watch = await watching(desk, dead_letter_alarm=1)
    await asyncio.gather(*(each.run_once() for each in watch.watches))
    await desk.fail(2)
    await desk.site.rows(f"UPDATE duties SET until_at = {desk.site.clock.ms + LOOK_MS}")
    await asyncio.gather(*(each.run_once() for each in watch.watches))
    assert await watch.raised() == {}  # somebody has looked just now
    await desk.site.advance(LOOK_MS / 1000)
    await asyncio.gather(*(each.run_once() for each in watch.watches))
    assert await watch.raised() == {Alarm.DEAD_LETTERS: 2}


@pytest.mark.parametrize("alarm", Alarm)
def test_every_alarm_says_what_is_too_much(alarm: Alarm) -> None:
    assert AlarmReading(alarm, 1_234, 100).words.startswith("1,234")
    assert "100" in AlarmReading(alarm, 1_234, 100).words
