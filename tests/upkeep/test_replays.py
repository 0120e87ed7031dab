"""Replays: each item once, as fast as was said, with who had it done; a dry run changes nothing."""

import asyncio
import json
from dataclasses import replace

import pytest

from backstay.core.ids import item_id
from backstay.core.models import Flaw
from backstay.store.dead_letters import LetterFilter, ReplayRequest
from tests.store.store_rig import WRONG
from tests.upkeep.upkeep_rig import DAY_MS, Desk, ids

ALL = LetterFilter()
EVE = ReplayRequest("eve")


async def due(desk: Desk, job: int) -> list[int | None]:
    """After how many milliseconds each of a job's items comes back."""
    rows = await desk.site.rows(f"SELECT due_at FROM items WHERE job_id = {job} ORDER BY id")
    return [None if row[0] is None else row[0] - desk.site.clock.ms for row in rows]


async def test_items_come_back_at_the_rate_without_anyone_staying_awake(desk: Desk) -> None:
    job = await desk.fail(4)
    assert (await desk.store.replays.replay("ann", ALL, ReplayRequest("eve", 2))).items == 4
    assert await due(desk, job) == [None, 500, 1_000, 1_500]
    came = []
    for _ in range(4):
        came.append(len(await desk.scene.claim()))
        await desk.site.advance(0.5)
    assert came == [1, 1, 1, 1]


async def test_the_same_filter_again_goes_on_behind_what_still_comes_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstay.store.dead_letters.CHUNK_ITEMS", 1)
    monkeypatch.setattr("backstay.store.dead_letters.REPLAY_ITEMS_MAX", 2)
    job = await desk.fail(4)
    first = await desk.store.replays.replay("ann", ALL, ReplayRequest("eve", 1))
    await desk.site.advance(0.5)
    second = await desk.store.replays.replay("ann", ALL, ReplayRequest("bob", 1))
    assert [(one.items, one.more) for one in (first, second)] == [(2, True), (2, True)]
    assert sorted(await due(desk, job), key=lambda ms: ms or -1_000) == [None, 500, 1_500, 2_500]


async def test_a_job_and_its_items_have_their_time_from_when_they_are_back(desk: Desk) -> None:
    job = await desk.fail(3, job_timeout_ms=HOUR_MS, deadline_ms=HOUR_MS // 2)
    await desk.store.replays.replay("ann", ALL, ReplayRequest("eve", 0.001))
    now = desk.site.clock.ms
    assert (await desk.scene.job(job)).timeout_at == now + HOUR_MS + 2_000_000
    assert (await desk.scene.item(job, 2)).deadline_at == now + HOUR_MS // 2 + 2_000_000


HOUR_MS = 3_600_000


async def test_what_would_come_back_after_a_week_is_left_for_another_call(desk: Desk) -> None:
    await desk.fail(3)
    slow = ReplayRequest("eve", 1000 / (4 * DAY_MS))
    done = await desk.store.replays.replay("ann", ALL, slow)
    assert (done.items, done.more) == (1, True)
    assert (await desk.store.replays.replay("ann", ALL, slow)).items == 0
    await desk.site.advance(4 * DAY_MS / 1000)
    assert (await desk.store.replays.replay("ann", ALL, slow)).items == 1


async def test_named_items_that_are_left_for_another_call_are_told_of(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of them did not fail, so there is nothing to do about it."""
    monkeypatch.setattr("backstay.store.dead_letters.CHUNK_ITEMS", 1)
    job, other = await desk.fail(3), await desk.scene.submit()
    named = [*(item_id(job, n) for n in range(3)), item_id(other, 0)]
    slow = ReplayRequest("eve", 1000 / (4 * DAY_MS))
    done = await desk.store.replays.replay_some("ann", ALL, named, slow)
    assert (done.items, done.more) == (1, True)


async def test_a_replay_by_flaw_is_one_of_its_own(desk: Desk) -> None:
    plain, flawed = await desk.fail(1), await desk.scene.ended(replace(WRONG, flaw=Flaw.TRUNCATED))
    rate = 1 / 60
    for wanted in (LetterFilter(job_id=plain), LetterFilter(flaw=Flaw.TRUNCATED)):
        assert (await desk.store.replays.replay("ann", wanted, ReplayRequest("eve", rate))).items == 1
    assert [await due(desk, job) for job in (plain, flawed)] == [[None], [None]], "neither waits for the other"
    told = [json.loads(row.filter) for row in await desk.store.replays.page("ann", None, 10)]
    assert told == [{"flaw": str(Flaw.TRUNCATED)}, {"job": str(plain)}]


async def test_the_same_replay_twice_makes_one_requeue(desk: Desk) -> None:
    job = await desk.fail(3)
    stores = [await desk.site.open_store() for _ in range(3)]
    done = await asyncio.gather(*(store.replays.replay("ann", ALL, ReplayRequest("eve", 100)) for store in stores))
    assert sum(one.items for one in done) == 3
    assert (await desk.store.replays.replay("ann", ALL, EVE)).number is None
    assert (await desk.scene.job(job)).failed == 0
    assert sum(row.items for row in await desk.store.replays.page("ann", None, 10)) == 3
    await desk.scene.auditor.check()


async def test_a_dry_run_changes_nothing(desk: Desk) -> None:
    job = await desk.fail(3)
    before = await desk.scene.everything()
    assert await desk.store.replays.replay("ann", ALL, None) == (3, False, None)
    assert await desk.store.replays.replay_some("ann", ALL, ids(job, 0, 7), None) == (1, False, None)
    assert await desk.scene.everything() == before
    assert await desk.store.replays.page("ann", None, 10) == []


async def test_who_had_it_done_and_when_is_kept_and_told_by_each_item(desk: Desk) -> None:
    job = await desk.fail(2)
    await desk.store.replays.replay("ann", LetterFilter(job, "GW_4XX", 1_000), ReplayRequest("eve", 2))
    [kept] = await desk.store.replays.page("ann", None, 10)
    assert (kept.id, kept.by, kept.at, kept.items, kept.rate) == (1, "eve", desk.site.clock.ms, 2, 2.0)
    assert json.loads(kept.filter) == {"job": str(job), "code": "GW_4XX", "older_than_seconds": 1.0}
    assert kept.until_at == desk.site.clock.ms + 1_000
    [event] = await desk.store.events.oldest(f"item:{item_id(job, 1)}")
    assert (event.act, event.detail) == ("replayed", "replay 1 by eve")
    assert await desk.store.replays.page("bob", None, 10) == []


async def test_another_owners_letters_are_not_replayed(desk: Desk) -> None:
    job = await desk.fail(2, owner="bob")
    assert (await desk.store.replays.replay("ann", ALL, EVE)).items == 0
    assert (await desk.store.replays.replay_some("ann", ALL, ids(job, 0), EVE)).items == 0
    assert await desk.scene.states(job) == ["failed", "failed"]


async def test_archived_letters_are_not_replayed(desk: Desk) -> None:
    job = await desk.fail(2)
    await desk.archive()
    assert (await desk.store.replays.replay("ann", ALL, EVE)).items == 0
    assert (await desk.store.replays.replay_some("ann", ALL, ids(job, 0), EVE)).items == 0
    await desk.restore()
    assert (await desk.store.replays.replay("ann", ALL, EVE)).items == 2
    for item in await desk.scene.claim():
        await desk.scene.settle(item, WRONG)
    assert await desk.here() == ids(job, 1, 0)
