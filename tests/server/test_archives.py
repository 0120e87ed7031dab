"""Archives and replays over HTTP: who did what, what an archived item shows, and nothing that breaks on one."""

from typing import Any

from backstay.core.callbacks import Callback, Kind
from backstay.core.ids import item_range
from backstay.store.keys import Role
from tests.server.rig import Rig
from tests.server.test_jobs import problem


async def archived_job(rig: Rig) -> str:
    """Its first two items failed and are in an archive; the third succeeded."""
    job = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {"code": "NOT_PDF"}, {}])
    await rig.work()
    reply = await rig.ada.post("/api/dead-letters/archive", json={"job": job})
    assert reply.json == {"items": 2}
    return job


async def test_who_replayed_what_and_how_fast_is_listed(rig: Rig) -> None:
    job = await rig.submit("refuse", [1, 2])
    await rig.work()
    key = rig.keys["ada", Role.WRITE]
    given = {"job": job, "rate": 0.5}
    done = (await rig.holder(key).post("/api/dead-letters/replay", json=given)).json
    assert (done["items"], done["replay"], done["dry_run"]) == (2, "1", False)
    page = (await rig.ada.get("/api/dead-letters/replays")).json
    [row] = page["data"]
    assert (row["by"], row["items"], row["rate"], row["filter"]) == (key.split("_")[1], 2, 0.5, {"job": job})
    story = (await rig.ada.get(f"/api/items/{job}-1/timeline")).json["timeline"]
    assert story[-1]["detail"] == f"replay 1 by {row['by']}"
    item = (await rig.ada.get(f"/api/items/{job}-1")).json
    assert item["due_at"] - row["at"] in range(1_900, 2_100)
    assert (await rig.bob.get("/api/dead-letters/replays")).json["data"] == []


async def test_a_rate_beyond_its_bounds_is_refused(sqlite_rig: Rig) -> None:
    for rate in (0, -1, 100_000, "x"):
        problem(await sqlite_rig.ada.post("/api/dead-letters/replay", json={"rate": rate}), 422)


async def test_an_archived_item_says_so_wherever_it_is_shown(rig: Rig) -> None:
    job = await archived_job(rig)
    assert (await rig.ada.get("/api/dead-letters")).json["data"] == []
    assert (await rig.ada.get("/api/dead-letters/groups")).json["items"] == 0
    shown = (await rig.ada.get(f"/api/dead-letters/{job}-1")).json
    assert (shown["archive"], shown["payload"], shown["error_code"]) == ("1", None, "NOT_PDF")
    item = (await rig.ada.get(f"/api/items/{job}-1", params={"include": "payload"})).json
    assert (item["archive"], item["payload"]) == ("1", {"archived": True})
    for path in (f"/api/items/{job}-1/why", f"/api/items/{job}-1/timeline", f"/api/jobs/{job}/items"):
        assert (await rig.ada.get(path)).status == 200
    assert problem(await rig.ada.get(f"/api/items/{job}-1/result"), 409)["code"] == "NOT_PDF"
    view = (await rig.ada.get(f"/api/jobs/{job}")).json
    assert (view["failed"], view["succeeded"], view["total"]) == (2, 1, 3)
    lines = (await rig.ada.get(f"/api/jobs/{job}/results", params={"payload": "true"})).lines
    assert [line["payload"] for line in lines] == [{"archived": True}, {"archived": True}, {}]
    assert "in archive 1" in lines[0]["message"]


async def test_an_archived_item_is_restored_before_it_is_retried(rig: Rig) -> None:
    job = await archived_job(rig)
    for path in (f"/api/items/{job}-0/retry", f"/api/jobs/{job}/retry"):
        assert "restore" in problem(await rig.ada.post(path), 409)["hint"]
    [archive] = (await rig.ada.get("/api/dead-letters/archives")).json["data"]
    assert (archive["items"], archive["restored_at"]) == (2, None)
    path = f"/api/dead-letters/archives/{archive['id']}/restore"
    problem(await rig.bob.post(path), 404)
    problem(await rig.visitor("ada", Role.WRITE).post(path), 403)
    assert (await rig.ada.post(path)).json == {"id": "1", "items": 2}
    assert (await rig.ada.post(path)).json == {"id": "1", "items": 0}
    assert (await rig.ada.get(f"/api/dead-letters/{job}-1")).json["payload"] == {"code": "NOT_PDF"}
    assert (await rig.ada.post(f"/api/items/{job}-0/retry")).status == 200


async def test_a_file_that_is_gone_is_a_problem_and_no_crash(sqlite_rig: Rig) -> None:
    await archived_job(sqlite_rig)
    async for name in sqlite_rig.service.artifacts.names("archives"):
        await sqlite_rig.service.artifacts.delete(name)
    problem(await sqlite_rig.ada.post("/api/dead-letters/archives/1/restore"), 409)


async def test_a_deleted_job_takes_its_archives_with_it(rig: Rig) -> None:
    job = await archived_job(rig)
    assert (await rig.ada.delete(f"/api/jobs/{job}")).status in (200, 204)
    assert (await rig.ada.get("/api/dead-letters/archives")).json["data"] == []
    assert [name async for name in rig.service.artifacts.names("archives")] == []


async def test_without_a_filter_what_is_over_the_bounds_goes(rig: Rig) -> None:
    await rig.submit("refuse", [1, 2, 3])
    await rig.work()
    archive = "/api/dead-letters/archive"
    assert (await rig.ada.post(archive, json={})).json == {"items": 0}
    settings = rig.made.settings
    rig.made.settings = settings.model_copy(update={"dead_letter_items": 1})
    assert (await rig.ada.post(archive, json={})).json == {"items": 0}  # its job has only just ended
    assert (await rig.ada.post(archive, json={"code": "NOT_PDF"})).json == {"items": 0}
    assert (await rig.bob.post(archive, json={"older_than_seconds": 0})).json == {"items": 0}
    assert (await rig.ada.post(archive, json={"older_than_seconds": 0})).json == {"items": 3}


async def test_the_figures_tell_of_the_alarm(rig: Rig) -> None:
    rig.made.settings = rig.made.settings.model_copy(update={"dead_letter_alarm": 2})
    await rig.submit("refuse", [1, 2])
    await rig.work()
    assert (await rig.ada.get("/api/stats")).json["dead_letters"] == {"alarm": 2, "raised": False}
    await rig.submit("refuse", [3])
    await rig.work()
    assert (await rig.ada.get("/api/stats")).json["dead_letters"] == {"alarm": 2, "raised": True}


async def test_a_late_message_about_an_archived_item_waits_for_its_restore(rig: Rig) -> None:
    job = await archived_job(rig)
    first = item_range(int(job))[0]
    await rig.service.store.inbox.receive(first, 1, Callback(Kind.SUCCEEDED, '{"result": 7}'))
    [late] = (await rig.ada.get("/api/late-results")).json["data"]
    path = f"/api/late-results/{late['id']}/accept"
    assert "in archive 1" in problem(await rig.ada.post(path), 409)["detail"]
    await rig.ada.post("/api/dead-letters/archives/1/restore")
    accepted: Any = await rig.ada.post(path)
    assert accepted.status == 200
