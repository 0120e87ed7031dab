"""Pruning: old jobs go, each owner's own, with a complete archive before; what cannot go stays and stops nobody."""

import asyncio
import hashlib
import io
import json
from typing import Any

import pytest

from backstay.client import Client
from backstay.core.errors import UsageError
from backstay.core.events import Event, JobsPruned
from backstay.core.ids import item_id, show_item
from backstay.core.limits import Limits
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.store.jobs import Pruning
from backstay.upkeep import loop
from backstay.upkeep.archivist import ORPHAN_MS, zstd
from backstay.upkeep.loop import HELD, JobUpkeep, PrunedJob, Pruner, PruneRules
from tests.store.store_rig import OK
from tests.upkeep.upkeep_rig import DAY_MS, Desk

DAY = DAY_MS / 1000
TABLES = ("jobs", "items", "requests", "attempts", "events", "inbox", "copies", "item_keys")


class Killed(BaseException):
    """Stands for the end of the process."""


def rules(**changes: Any) -> PruneRules:
    return PruneRules(**{"age_ms": 30 * DAY_MS, "keep": None, "archive": True, **changes})


def pruner(desk: Desk, **changes: Any) -> Pruner:
    return Pruner(desk.store, desk.artifacts, desk.site.clock, rules(**changes))


async def run(desk: Desk, **changes: Any) -> list[PrunedJob]:
    return [one async for one in pruner(desk, **changes).run()]


async def jobs(desk: Desk) -> list[int]:
    return [job for (job,) in await desk.site.rows("SELECT id FROM jobs ORDER BY id")]


async def blobs(desk: Desk) -> list[str]:
    return sorted([name async for name in desk.artifacts.names("job-archives")])


async def lines_of(desk: Desk, blob: str) -> list[dict[str, Any]]:
    whole = b"".join([piece async for piece in desk.artifacts.get(blob)])
    archive = [one for one in await desk.site.rows("SELECT blob, bytes, digest FROM job_archives") if one[0] == blob]
    assert archive == [(blob, len(whole), hashlib.sha256(whole).hexdigest())]
    return [json.loads(line) for line in zstd().ZstdFile(io.BytesIO(whole)).read().splitlines()]


async def test_an_old_job_goes_and_its_archive_has_everything(desk: Desk) -> None:
    done = await desk.scene.ended(items=2, owner="ann")
    failed = await desk.fail(2)
    assert await desk.archive(failed) == 2  # the texts of its items are in an archive of dead letters
    await desk.site.advance(31 * DAY)
    young = await desk.scene.ended(owner="ann")
    first, second = await run(desk)
    assert (first.job_id, first.items, second.job_id, second.items) == (done, 2, failed, 2)
    assert await jobs(desk) == [young]
    for table in ("items", "requests", "attempts"):
        assert await desk.site.one(f"SELECT count(*) FROM {table}") == 1
    head, *items = await lines_of(desk, first.archive or "")
    assert (head["job"]["id"], head["job"]["state"], head["owner"]) == (done, "completed", "ann")
    assert [one["item"] for one in items] == [show_item(item_id(done, n)) for n in (0, 1)]
    assert [(one["state"], one["attempts"][-1]["result"]) for one in items] == [("succeeded", '"done"')] * 2
    _, *letters = await lines_of(desk, second.archive or "")
    assert [(one["state"], one["error_code"], len(one["attempts"])) for one in letters] == [("failed", "GW_4XX", 2)] * 2
    assert all("archived" not in one["request"] for one in letters)
    assert await desk.blobs() == []  # the letters are in the job's archive now
    await desk.site.advance(2 * ORPHAN_MS / 1000)
    assert await desk.archivist.sweep() == 0


async def test_what_cannot_be_deleted_stays_and_the_others_go(desk: Desk) -> None:
    first = await desk.scene.ended(owner="ann")
    waited_for = await desk.scene.ended(owner="ann")
    lost = await desk.fail(1)
    await desk.archive(lost)
    last = await desk.scene.ended(owner="ann")
    batched = await desk.scene.ended(owner="ann")
    running = await desk.scene.submit(1, owner="ann")
    await desk.site.rows(
        "INSERT INTO batches (id, owner, status, endpoint, input_file_id, completion_window, created_at, expires_at,"
        f" job_id) VALUES ('b', 'ann', 'finalizing', 'e', 'f', '24h', 1, 1, {batched}) RETURNING 1"
    )
    await desk.site.rows(
        "INSERT INTO job_links (job_id, number, after_id, takes, feeds)"
        f" VALUES ({running}, 0, {waited_for}, 'succeeded', 0) RETURNING 1"
    )
    [blob] = await desk.blobs()
    await desk.artifacts.delete(blob)  # a file of dead letters is lost: the job cannot be archived
    await desk.site.advance(31 * DAY)
    done = {one.job_id: one for one in await run(desk)}
    assert await jobs(desk) == [waited_for, lost, batched, running]
    assert [job for job, one in done.items() if one.skipped is None] == [first, last]
    assert done[waited_for].skipped == done[batched].skipped == HELD
    assert "archive 1 is gone" in (done[lost].skipped or "")
    assert len(await blobs(desk)) == 2


async def test_each_owner_keeps_as_many_and_nobody_elses_are_touched(desk: Desk) -> None:
    mine = [await desk.scene.ended(owner="ann") for _ in range(3)]
    others = [await desk.scene.ended(owner=owner) for owner in ("ben", "cid", "cid")]
    await desk.site.advance(DAY)
    assert await run(desk, age_ms=None, keep=1, owner="ann", archive=False) == [
        PrunedJob(job, "ann", 1) for job in mine[:2]
    ]
    assert await jobs(desk) == [mine[2], *others]
    assert [one.job_id for one in await run(desk, age_ms=None, keep=1, archive=False)] == [others[1]]
    assert await run(desk, age_ms=None, keep=0, owner="", archive=False) == []
    assert await jobs(desk) == [mine[2], others[0], others[2]]
    assert await blobs(desk) == []


async def test_a_job_that_has_just_ended_stays(desk: Desk) -> None:
    job = await desk.scene.ended(owner="ann")
    assert await run(desk, age_ms=None, keep=0) == []
    assert [one.job_id for one in await run(desk, age_ms=None, keep=0, quiet_ms=0)] == [job]


async def test_a_kill_between_archive_and_deletion_loses_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await desk.scene.ended(items=3, owner="ann")
    await desk.site.advance(31 * DAY)
    before = {table: await desk.rows(table, "1") for table in TABLES}

    async def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Pruning, "remove", killed)
        with pytest.raises(Killed):
            await run(desk)
    assert {table: await desk.rows(table, "1") for table in TABLES} == before
    assert len(await blobs(desk)) == 1  # nobody's
    with monkeypatch.context() as patch:
        patch.setattr(loop, "delete_artifacts", killed)
        with pytest.raises(Killed):
            await run(desk)
    [(blob,)] = await desk.site.rows("SELECT blob FROM job_archives")
    assert await desk.site.one("SELECT count(*) FROM items") == 3  # it has disappeared, but is not yet deleted
    assert len(await lines_of(desk, blob)) == 4
    assert await run(desk) == []
    assert [await desk.rows(table, "1") for table in TABLES] == [[]] * len(TABLES)
    assert len(await blobs(desk)) == 2
    await desk.site.advance(2 * ORPHAN_MS / 1000)
    assert await desk.archivist.sweep() == 1
    assert await blobs(desk) == [blob]
    assert blob.split("-")[2] == str(job)


async def test_a_job_that_is_retried_while_it_is_archived_stays(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await desk.fail(1)
    await desk.site.advance(31 * DAY)
    plain = Pruning.items
    retried = False

    async def items(self: Pruning, *given: Any) -> Any:
        nonlocal retried
        found = await plain(self, *given)
        if not retried:
            retried = True
            await desk.store.jobs.retry(job, "ann")
            [again] = await desk.scene.claim()
            await desk.scene.settle(again, OK)
        return found

    monkeypatch.setattr(Pruning, "items", items)
    [skipped] = await run(desk)
    assert "has changed" in (skipped.skipped or "")
    assert (await jobs(desk), await blobs(desk)) == ([job], [])


async def test_deletion_goes_in_small_steps(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STEP_ITEMS", 2)
    monkeypatch.setattr(loop, "PAGE_JOBS", 1)
    chosen = [await desk.scene.ended(items=5, owner=owner) for owner in ("ann", "ann", "ben")]
    await desk.site.advance(31 * DAY)
    left = list[int]()
    plain = type(desk.store.jobs).purge_some

    async def counted(self: Any, *given: Any) -> bool:
        more = await plain(self, *given)
        left.append(await desk.site.one("SELECT count(*) FROM items"))
        return more

    monkeypatch.setattr(type(desk.store.jobs), "purge_some", counted)
    assert [one.job_id for one in await run(desk)] == [chosen[0], chosen[2], chosen[1]]  # the owners take turns
    assert left == [13, 11, 10, 10, 8, 6, 5, 5, 3, 1, 0, 0]


async def test_of_many_processes_one_makes_a_pass(desk: Desk) -> None:
    told: list[Event] = []
    crowd = [keeper(desk, told, job_days=30, job_archive=True) for _ in range(3)]
    await desk.scene.ended(items=2, owner="ann")
    await desk.site.advance(31 * DAY)
    await asyncio.gather(*(each.run_once() for each in crowd))
    assert told == [JobsPruned(1, 2, 0)]
    await keeper(desk, told).run_once()
    assert told == [JobsPruned(1, 2, 0)]


def settings(**given: Any) -> Settings:
    return Settings(**given)


def keeper(desk: Desk, told: list[Event], **given: Any) -> JobUpkeep:
    return JobUpkeep(client(desk, told), desk.artifacts, settings(**given), client(desk, told).bus)


def client(desk: Desk, told: list[Event]) -> Client:
    bus = Bus()
    bus.subscribe(told.append)
    return Client(desk.store, "ann", Limits(), desk.site.clock, bus)


async def test_a_short_process_prunes_as_well(desk: Desk) -> None:
    """A tick may end at once."""
    told: list[Event] = []
    await desk.scene.ended(owner="ann")
    await desk.site.advance(31 * DAY)
    mine = client(desk, told)
    async with loop.upkeep(mine, None, settings(job_days=30), mine.bus):
        pass
    assert told == [JobsPruned(1, 1, 0)]
    assert await jobs(desk) == []


async def test_an_archive_needs_a_place(desk: Desk) -> None:
    with pytest.raises(UsageError, match="no place for files"):
        Pruner(desk.store, None, desk.site.clock, rules())
