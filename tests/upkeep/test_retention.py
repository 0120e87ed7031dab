"""Retention: the oldest go by age, by number and by size, each owner's for itself, and never what is still in use."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from backstay.artifacts import artifacts_at
from backstay.client import Client
from backstay.core.errors import UsageError
from backstay.core.events import Event, LettersArchived
from backstay.core.limits import Limits
from backstay.observe.bus import Bus
from backstay.settings import Settings, load
from backstay.store.archives import Archives
from backstay.upkeep.loop import ARCHIVE_MS, DeadLetterUpkeep, RetentionBounds, bounds_of
from tests.databases import Site
from tests.store.store_rig import WRONG, Scene
from tests.upkeep.upkeep_rig import DAY_MS, WIDE, Desk, ids

HOUR = 3_600


async def test_what_failed_long_ago_goes(desk: Desk) -> None:
    old = await desk.fail(2)
    await desk.site.advance(3 * DAY_MS / 1000)
    young = await desk.fail(2)
    await desk.site.advance(4 * DAY_MS / 1000)
    assert await desk.retention().run_once() == 0  # an hour's slack, so that files are not small
    assert await desk.retention().run_once(exact=True) == 2
    assert await desk.here() == ids(young, 1, 0)
    await desk.site.advance(3 * DAY_MS / 1000 + HOUR)
    assert await desk.retention().run_once() == 2
    assert (await desk.here(), len(await desk.archives())) == ([], 2)
    assert await desk.scene.states(old) == ["failed", "failed"]


async def test_above_the_number_the_oldest_go(desk: Desk) -> None:
    first, second = await desk.fail(4), await desk.fail(3)
    bounds = WIDE._replace(items=5)
    assert await desk.retention(bounds).run_once() == 2
    assert await desk.here() == ids(second, 2, 1, 0) + ids(first, 3, 2)
    assert await desk.retention(bounds).run_once() == 0


async def test_a_little_more_goes_than_must(desk: Desk) -> None:
    await desk.fail(45)
    assert await desk.retention(WIDE._replace(items=40)).run_once() == 7
    assert len(await desk.here()) == 38


async def test_above_the_size_the_oldest_go(desk: Desk) -> None:
    first, second = await desk.fail(3), await desk.fail(3)
    await desk.site.rows(f"UPDATE requests SET body = '\"{'ü' * 499}\"'")  # a thousand bytes each
    assert await desk.retention(WIDE._replace(bytes=4_000)).run_once(exact=True) == 3
    assert await desk.here() == ids(second, 2, 1, 0)
    assert first != second


async def test_bounds_are_each_owners_own(desk: Desk) -> None:
    await desk.fail(3, owner="bob")
    await desk.fail(2, owner="ann")
    assert await desk.retention(WIDE._replace(items=2)).run_once() == 1
    assert (len(await desk.here("ann")), len(await desk.here("bob"))) == (2, 2)
    assert await desk.retention(WIDE._replace(items=0)).run_once(owner="bob") == 2
    assert (len(await desk.archives("ann")), len(await desk.archives("bob"))) == (0, 2)


async def test_items_of_a_job_that_goes_on_stay(desk: Desk) -> None:
    job = await desk.scene.submit(2)
    await desk.scene.settle((await desk.scene.claim(1))[0], WRONG)
    await desk.site.advance(30 * DAY_MS / 1000)
    assert await desk.retention(WIDE._replace(items=0)).run_once(exact=True) == 0
    assert await desk.here() == ids(job, 0)


async def test_what_was_restored_stays_for_its_time(desk: Desk) -> None:
    await desk.fail(2)
    await desk.site.advance(8 * DAY_MS / 1000)
    assert await desk.retention().run_once() == 2
    assert await desk.restore(keep_ms=DAY_MS) == 2
    assert await desk.retention().run_once() == 0
    await desk.site.advance(DAY_MS / 1000 + 1)
    assert await desk.retention().run_once() == 2


async def test_one_pass_takes_a_bounded_number(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PAGE_ITEMS", 3), ("PASS_ITEMS_MAX", 4), ("ARCHIVE_ITEMS_MAX", 2)):
        monkeypatch.setattr(f"backstay.upkeep.loop.{name}", value)
    await desk.fail(10)
    tight = desk.retention(WIDE._replace(items=0))
    assert [await tight.run_once() for _ in range(4)] == [4, 4, 2, 0]
    assert [archive.items for archive in await desk.archives()] == [2] * 5


async def test_of_many_processes_one_makes_a_pass(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0
    plain = Archives.newest

    async def counted(self: Archives, *given: int) -> object:
        nonlocal passes
        passes += 1
        return await plain(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Archives, "newest", counted)
    told: list[Event] = []
    crowd = [await watch(desk, told, dead_letter_items=0) for _ in range(3)]
    await asyncio.gather(*(each.run_once() for each in crowd))
    assert passes == 1
    await desk.fail(2)
    await desk.site.advance(ARCHIVE_MS / 1000)
    await asyncio.gather(*(each.run_once() for each in crowd))
    assert told == [LettersArchived(2)]


async def watch(desk: Desk, told: list[Event], **settings: int) -> DeadLetterUpkeep:
    """One of several processes that look after the same database."""
    bus = Bus()
    bus.subscribe(told.append)
    client = Client(await desk.site.open_store(), "ann", Limits(), desk.site.clock, bus)
    return DeadLetterUpkeep(client, desk.artifacts, Settings(**settings), bus)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_memory_does_not_grow_with_what_is_archived_and_restored(sqlite_site: Site, tmp_path: Path) -> None:
    scene = Scene(sqlite_site)
    await scene.store.open()
    try:
        desk = Desk(scene, artifacts_at(str(tmp_path / "data")))
        await desk.fail(48)
        await sqlite_site.rows("UPDATE requests SET body = '\"' || hex(zeroblob(1000000)) || '\"'")
        archiving, gone = await peak_mb(desk.archive())
        restoring, back = await peak_mb(_restore_all(desk))
        assert (gone, back) == (48, 48)
        assert await sqlite_site.one("SELECT min(length(body)) FROM requests") == 2_000_002
        assert max(archiving, restoring) < 60, "of 96 MB"
    finally:
        await scene.store.close()


async def _restore_all(desk: Desk) -> int:
    archives = await desk.archives()
    assert len(archives) == 2, "one file holds 64 MB of letters"
    return sum([await desk.restore(archive.id) for archive in archives])


async def peak_mb(work: "asyncio.Future[int] | object") -> tuple[float, int]:
    tracemalloc.start()
    try:
        done = await work  # type: ignore[misc]
        return tracemalloc.get_traced_memory()[1] / 1e6, done
    finally:
        tracemalloc.stop()


def test_the_bounds_are_settings() -> None:
    assert bounds_of(load(environ={})) == RetentionBounds(7 * DAY_MS, 10_000, 1 << 30)
    environ = {
        f"BACKSTAY_DEAD_LETTER_{name}": value for name, value in (("DAYS", "0.5"), ("ITEMS", "7"), ("BYTES", "9"))
    }
    assert bounds_of(load(environ=environ)) == RetentionBounds(DAY_MS // 2, 7, 9)
    assert load(environ={"BACKSTAY_DEAD_LETTER_ALARM": "5"}).dead_letter_alarm == 5


@pytest.mark.parametrize(("name", "value"), [("DAYS", "0"), ("ITEMS", "-1"), ("BYTES", "x"), ("ALARM", "0")])
def test_a_bound_that_means_nothing_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"dead_letter_{name.lower()}"):
        load(environ={f"BACKSTAY_DEAD_LETTER_{name}": value})
