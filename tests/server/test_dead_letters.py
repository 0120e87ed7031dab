"""Dead letters over HTTP: groups by error, pages, one, and replay by a filter, idempotently."""

import asyncio
from typing import Any

import pytest

from tests.server.rig import Rig
from tests.server.test_jobs import problem


async def failed_jobs(rig: Rig) -> tuple[str, str]:
    """Five failed items: two and three."""
    first = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {}, {"code": "NOT_PDF"}])
    second = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {"code": "GW_4XX"}, {"code": "TOO_LARGE"}])
    await rig.work()
    return first, second


async def listed(rig: Rig, **wanted: str) -> list[str]:
    found, cursor = [], None
    while True:
        params = {"limit": "2", **wanted, **({"cursor": cursor} if cursor else {})}
        page = (await rig.ada.get("/api/dead-letters", params=params)).json
        found += [item["id"] for item in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def replayed(rig: Rig, **wanted: Any) -> tuple[int, bool]:
    reply = await rig.ada.post("/api/dead-letters/replay", json=wanted)
    assert reply.status == 200, reply
    return reply.json["items"], reply.json["more"]


async def test_failed_items_are_grouped_by_why_they_failed(rig: Rig) -> None:
    first, second = await failed_jobs(rig)
    found = (await rig.ada.get("/api/dead-letters/groups")).json
    assert (found["items"], found["jobs"], found["complete"]) == (5, 2, True)
    groups = {group["error_code"]: group for group in found["groups"]}
    assert {code: group["items"] for code, group in groups.items()} == {"GW_4XX": 3, "NOT_PDF": 1, "TOO_LARGE": 1}
    assert (groups["GW_4XX"]["oldest"], groups["GW_4XX"]["newest"]) == (f"{first}-0", f"{second}-1")
    assert (await rig.ada.get("/api/dead-letters/groups", params={"job": first})).json["items"] == 2
    assert (await rig.bob.get("/api/dead-letters/groups")).json["items"] == 0


async def test_failed_items_are_listed_over_all_jobs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await failed_jobs(rig)
    everything = [f"{second}-2", f"{second}-1", f"{second}-0", f"{first}-2", f"{first}-0"]
    assert await listed(rig) == everything
    assert await listed(rig, code="GW_4XX") == [f"{second}-1", f"{second}-0", f"{first}-0"]
    assert await listed(rig, job=first) == everything[3:]
    assert await listed(rig, older_than_seconds="3600") == []
    for bound in ("LOOKED_MAX", "JOBS_MAX"):
        monkeypatch.setattr(f"backstay.store.dead_letters.{bound}", 1)
    assert await listed(rig) == everything
    assert await listed(rig, code="NOT_PDF") == [f"{first}-2"]
    assert (await rig.bob.get("/api/dead-letters")).json["data"] == []


async def test_a_dead_letter_shows_what_it_asked(rig: Rig) -> None:
    first, _ = await failed_jobs(rig)
    shown = (await rig.ada.get(f"/api/dead-letters/{first}-2")).json
    assert (shown["error_code"], shown["payload"]) == ("NOT_PDF", {"code": "NOT_PDF"})
    problem(await rig.ada.get(f"/api/dead-letters/{first}-1"), 404)
    problem(await rig.bob.get(f"/api/dead-letters/{first}-2"), 404)


async def test_a_replay_by_filter_is_counted_first_and_queues_each_item_once(rig: Rig) -> None:
    first, second = await failed_jobs(rig)
    assert await replayed(rig, code="GW_4XX", dry_run=True) == (3, False)
    assert (await rig.ada.get(f"/api/jobs/{second}")).json["failed"] == 3
    assert await replayed(rig, code="GW_4XX") == (3, False)
    assert await replayed(rig, code="GW_4XX") == (0, False)
    counted = [(await rig.ada.get(f"/api/jobs/{job}")).json for job in (first, second)]
    assert [(job["failed"], job["state"]) for job in counted] == [(1, "running"), (1, "running")]
    item = (await rig.ada.get(f"/api/items/{second}-1")).json
    assert (item["state"], item["attempts"]) == ("queued", 0)
    await rig.work()
    assert (await rig.ada.get(f"/api/jobs/{second}")).json["failed"] == 3


async def test_a_replay_keeps_to_job_age_and_ids(rig: Rig) -> None:
    first, second = await failed_jobs(rig)
    assert await replayed(rig, job=first, dry_run=True) == (2, False)
    assert await replayed(rig, older_than_seconds=3600) == (0, False)
    some = [f"{first}-0", f"{first}-1", f"{second}-0", f"{second}-0", "99-1"]
    assert await replayed(rig, ids=some, dry_run=True) == (2, False)
    assert await replayed(rig, ids=some, job=second) == (1, False)
    assert await replayed(rig, ids=some) == (1, False)
    bobs = await rig.bob.post("/api/dead-letters/replay", json={"ids": [f"{first}-2"]})
    assert bobs.json["items"] == 0
    assert await replayed(rig) == (3, False)


async def test_two_replays_at_once_queue_each_item_once(rig: Rig) -> None:
    job = await rig.submit("refuse", list(range(100)))
    await rig.work()
    both = await asyncio.gather(replayed(rig, job=job), replayed(rig, job=job), replayed(rig, code="GW_4XX"))
    assert sum(items for items, _ in both) == 100
    view = (await rig.ada.get(f"/api/jobs/{job}")).json
    assert (view["failed"], view["total"]) == (0, 100)


async def test_one_call_replays_a_bounded_number(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstay.store.dead_letters.CHUNK_ITEMS", 2)
    monkeypatch.setattr("backstay.store.dead_letters.REPLAY_ITEMS_MAX", 4)
    await rig.submit("refuse", list(range(7)))
    await rig.work()
    assert await replayed(rig, dry_run=True) == (4, True)
    assert await replayed(rig) == (4, True)
    assert await replayed(rig) == (3, False)


async def test_items_of_a_job_that_is_being_cancelled_are_left(rig: Rig) -> None:
    job = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {"code": "GW_4XX"}])
    await rig.work()
    await rig.ada.post(f"/api/items/{job}-1/retry")
    await rig.service.store.jobs.cancel(int(job), "ada")
    assert await replayed(rig, job=job, dry_run=True) == (0, False)
    assert await replayed(rig, ids=[f"{job}-0"]) == (0, False)


@pytest.mark.parametrize(
    "given", [{"job": "x"}, {"code": "ODD"}, {"ids": []}, {"ids": ["x"]}, {"older_than_seconds": -1}, {"colour": 1}, []]
)
async def test_a_filter_that_means_nothing_is_refused(sqlite_rig: Rig, given: Any) -> None:
    reply = await sqlite_rig.ada.post("/api/dead-letters/replay", json=given)
    assert reply.status in (404, 422), reply
