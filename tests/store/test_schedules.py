"""Schedules in the database: what a row says, and that a firing and its jobs are one transaction."""

import asyncio
from dataclasses import replace

import pytest

from backstay.clock import cron
from backstay.core.errors import NotAllowed, NotFound, UsageError
from backstay.core.models import MissedPolicy, NewSchedule
from backstay.store.queries import SQLITE, queries_for
from backstay.store.schedules import DueSchedule, Firing
from tests.databases import Site
from tests.store.store_rig import Scene, chunk, new_job

EVERY_FIVE = NewSchedule("report", "echo", "*/5 * * * *", "Europe/Berlin")
HANDLERS = ["echo"]


async def due_one(scene: Scene) -> DueSchedule:
    await scene.store.schedules.add(EVERY_FIVE, "ann")
    await scene.site.advance(300)
    [due] = await scene.store.schedules.due(HANDLERS)
    return due


def firing(due: DueSchedule, jobs: int = 1) -> Firing:
    made = [(new_job(idempotency_key=f"firing-{number}"), chunk(0, 1, True)) for number in range(jobs)]
    return Firing(due, made, due.next_at, cron.next_after(due.cron, due.timezone, due.now))


async def test_a_new_schedule_is_due_at_its_next_time_and_not_before(scene: Scene) -> None:
    made = await scene.store.schedules.add(EVERY_FIVE, "ann")
    assert made.next_at is not None
    assert made.next_at % 300_000 == 0
    assert 0 < made.next_at - made.now <= 300_000
    assert await scene.store.schedules.due(HANDLERS) == []
    assert await scene.store.schedules.next_in_ms(HANDLERS) == made.next_at - made.now
    await scene.site.advance((made.next_at - made.now) / 1000)
    assert await scene.store.schedules.next_in_ms(HANDLERS) == 0
    assert [due.name for due in await scene.store.schedules.due(HANDLERS)] == ["report"]


async def test_only_schedules_of_the_handlers_that_are_asked_for_are_due(scene: Scene) -> None:
    await due_one(scene)
    assert await scene.store.schedules.due(["other"]) == []
    assert await scene.store.schedules.next_in_ms(["other"]) is None
    assert await scene.store.schedules.next_in_ms(["other", "echo"]) == 0


async def test_a_firing_is_made_once_however_many_try_at_once(scene: Scene) -> None:
    due = await due_one(scene)
    made = await asyncio.gather(*(scene.store.schedules.fire(firing(due)) for _ in range(5)))
    assert sorted(len(jobs) for jobs in made if jobs is not None) == [1]
    assert await scene.site.one("SELECT count(*) FROM jobs") == 1
    found = await scene.store.schedules.get("report", "ann")
    assert (found.last_at, found.last_job) == (due.next_at, await scene.site.one("SELECT id FROM jobs"))
    assert await scene.store.schedules.due(HANDLERS) == []


async def test_a_firing_that_breaks_half_way_leaves_the_schedule_as_it_was(scene: Scene) -> None:
    due = await due_one(scene)
    before = await scene.site.rows("SELECT * FROM schedules")
    broken = firing(due, jobs=2)
    bad = (new_job(handler=None), chunk(0, 1, True))
    with pytest.raises(Exception, match=r"(?i)null"):
        await scene.store.schedules.fire(broken._replace(jobs=[*broken.jobs, bad]))
    assert await scene.site.rows("SELECT * FROM schedules") == before
    assert await scene.site.one("SELECT count(*) FROM jobs") == 0
    assert await scene.store.schedules.fire(firing(due, jobs=2)) is not None


@pytest.mark.parametrize("change", ["pause", "remove", "declare"])
async def test_a_firing_that_was_read_before_a_change_is_not_made(scene: Scene, change: str) -> None:
    due, schedules = await due_one(scene), scene.store.schedules
    if change == "declare":
        await schedules.declare(NewSchedule("report", "echo", "0 0 * * *"), "ann")
    else:
        await getattr(schedules, change)("report", "ann")
    assert await schedules.fire(firing(due)) is None
    assert not await schedules.fail(due, "it cannot", 1_000)
    assert await scene.site.one("SELECT count(*) FROM jobs") == 0


async def test_a_paused_schedule_is_not_due_and_resumes_without_what_it_missed(scene: Scene) -> None:
    schedules = scene.store.schedules
    await due_one(scene)
    paused = await schedules.pause("report", "ann")
    assert (paused.paused_at, paused.next_at) == (paused.now, None)
    assert await schedules.due(HANDLERS) == []
    await scene.site.advance(86_400)
    assert (await schedules.pause("report", "ann")).paused_at == paused.paused_at
    resumed = await schedules.resume("report", "ann")
    assert resumed.paused_at is None
    assert resumed.next_at == cron.next_after(resumed.cron, resumed.timezone, resumed.now)
    assert await schedules.resume("report", "ann") == resumed, "once more changes nothing"


async def test_code_that_is_started_again_changes_nothing_and_keeps_what_was_missed(scene: Scene) -> None:
    schedules = scene.store.schedules
    await schedules.declare(EVERY_FIVE, "ann")
    first = await schedules.get("report", "ann")
    await scene.site.advance(3_600)
    await schedules.declare(EVERY_FIVE, "ann")
    again = await schedules.get("report", "ann")
    assert (again.next_at, again.created_at) == (first.next_at, first.created_at)
    assert again.declared_at == again.now
    assert [due.next_at for due in await schedules.due(HANDLERS)] == [first.next_at]


async def test_a_line_that_the_code_changed_counts_from_now_on(scene: Scene) -> None:
    schedules = scene.store.schedules
    await schedules.declare(EVERY_FIVE, "ann")
    await scene.site.advance(3_600)
    await schedules.declare(NewSchedule("report", "other", "0 0 * * *", payload="[1]", missed=MissedPolicy.ALL), "ann")
    found = await schedules.get("report", "ann")
    assert (found.handler, found.cron, found.timezone, found.payload) == ("other", "0 0 * * *", "UTC", "[1]")
    assert found.missed is MissedPolicy.ALL
    assert found.next_at == cron.next_after("0 0 * * *", "UTC", found.now)
    assert await schedules.due(["other", "echo"]) == []


async def test_another_payload_in_the_code_leaves_the_times_as_they_are(scene: Scene) -> None:
    schedules = scene.store.schedules
    await schedules.declare(EVERY_FIVE, "ann")
    before = await schedules.get("report", "ann")
    await scene.site.advance(3_600)
    await schedules.declare(replace(EVERY_FIVE, payload="[2]"), "ann")
    found = await schedules.get("report", "ann")
    assert (found.payload, found.next_at) == ("[2]", before.next_at)
    assert [due.next_at for due in await schedules.due(HANDLERS)] == [before.next_at]


async def test_a_start_of_the_same_code_keeps_an_error_and_other_code_clears_it(scene: Scene) -> None:
    schedules = scene.store.schedules
    await schedules.fail(await due_one(scene), "it cannot", 60_000)
    await schedules.declare(EVERY_FIVE, "ann")
    assert (await schedules.get("report", "ann")).error == "it cannot"
    assert await schedules.due(HANDLERS) == []
    await schedules.declare(replace(EVERY_FIVE, payload="[2]"), "ann")
    assert (await schedules.get("report", "ann")).error is None
    assert len(await schedules.due(HANDLERS)) == 1


async def test_what_a_person_paused_stays_paused_whatever_the_code_says(scene: Scene) -> None:
    schedules = scene.store.schedules
    await schedules.declare(EVERY_FIVE, "ann")
    await schedules.pause("report", "ann")
    await schedules.declare(EVERY_FIVE, "ann")
    await schedules.declare(NewSchedule("report", "echo", "0 0 * * *"), "ann")
    found = await schedules.get("report", "ann")
    assert found.paused_at is not None
    assert (found.cron, found.next_at) == ("0 0 * * *", None)
    await scene.site.advance(100_000)
    assert await schedules.due(HANDLERS) == []
    assert (await schedules.resume("report", "ann")).next_at is not None


async def test_an_error_is_noted_and_the_schedule_waits(scene: Scene) -> None:
    due, schedules = await due_one(scene), scene.store.schedules
    assert await schedules.fail(due, "the payload does not fit", 60_000)
    found = await schedules.get("report", "ann")
    assert (found.error, found.error_at, found.next_at) == ("the payload does not fit", found.now, due.next_at)
    assert await schedules.due(HANDLERS) == []
    await scene.site.advance(60)
    [again] = await schedules.due(HANDLERS)
    await schedules.fire(firing(again))
    assert (await schedules.get("report", "ann")).error is None


async def test_a_name_is_taken_once_by_each_owner(scene: Scene) -> None:
    schedules = scene.store.schedules
    await schedules.add(EVERY_FIVE, "ann")
    with pytest.raises(NotAllowed, match="a schedule named report exists already"):
        await schedules.add(EVERY_FIVE, "ann")
    await schedules.add(EVERY_FIVE, "bob")
    await schedules.remove("report", "ann")
    assert [found.name for found in await schedules.page("bob")] == ["report"]


async def test_another_owners_schedule_does_not_exist(scene: Scene) -> None:
    schedules = scene.store.schedules
    await schedules.add(EVERY_FIVE, "ann")
    before = await scene.site.rows("SELECT * FROM schedules")
    for verb in (schedules.get, schedules.pause, schedules.resume, schedules.remove):
        with pytest.raises(NotFound, match="no schedule report"):
            await verb("report", "bob")
    assert await schedules.page("bob") == []
    assert await scene.site.rows("SELECT * FROM schedules") == before


async def test_an_owner_cannot_have_more_than_the_bound(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstay.store.schedules.SCHEDULES_MAX", 2)
    for name in ("a", "b"):
        await scene.store.schedules.add(NewSchedule(name, "echo", "* * * * *"), "ann")
    with pytest.raises(NotAllowed, match="at most 2 schedules"):
        await scene.store.schedules.add(NewSchedule("c", "echo", "* * * * *"), "ann")


async def test_an_idle_look_reads_only_the_index(sqlite_site: Site) -> None:
    sql = queries_for(SQLITE)["schedules_next"].sql.replace(":batch", "'[]'").replace(":now", "1")
    plan = " ".join(row[3] for row in await sqlite_site.rows(f"EXPLAIN QUERY PLAN {sql}"))
    assert "SEARCH schedules USING COVERING INDEX ix_schedules_due (handler=? AND due_at>?)" in plan


async def test_a_page_continues_after_a_name(scene: Scene) -> None:
    for name in ("c", "a", "b"):
        await scene.store.schedules.add(NewSchedule(name, "echo", "* * * * *"), "ann")
    first = await scene.store.schedules.page("ann", n=2)
    assert [found.name for found in first] == ["a", "b"]
    assert [found.name for found in await scene.store.schedules.page("ann", "b")] == ["c"]


async def test_a_zone_that_this_machine_no_longer_has_is_an_error_and_changes_nothing(site: Site, scene: Scene) -> None:
    await scene.store.schedules.add(EVERY_FIVE, "ann")
    await scene.store.schedules.pause("report", "ann")
    await site.rows("UPDATE schedules SET timezone = 'Atlantis/Capital'")
    with pytest.raises(UsageError, match="there is no time zone"):
        await scene.store.schedules.resume("report", "ann")
    assert (await scene.store.schedules.get("report", "ann")).paused_at is not None
