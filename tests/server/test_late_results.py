"""What comes too late is kept and shown, changes nothing by itself, and counts when an admin says so."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.core.ids import read_item
from backstay.store.keys import Role
from tests.databases import Leaping, Site
from tests.server.remote_rig import Remote, remote_work
from tests.store.audit import Auditor


@pytest.fixture
async def remote(database_url: str, tmp_path: Path) -> AsyncIterator[Remote]:
    async with remote_work(database_url, tmp_path / "data") as made:
        yield made


async def test_a_result_after_the_deadline_is_kept_as_late_and_changes_nothing(remote):
    address = await remote.miss_deadline()
    before, job = await remote.item(), await remote.shown_job()
    assert (before["state"], before["error_code"]) == ("failed", "GW_TIMEOUT")
    assert before["timed_out_at"] is not None
    reply = await remote.say(address, status="succeeded", result={"grade": 9})
    assert reply.json == {"accepted": True, "late": True, "repeated": False}
    await remote.rig.work()
    assert await remote.item() == {**before, "flaw": "late"}
    assert await remote.shown_job() == job
    [late] = await remote.late()
    assert (late["item"], late["is_late"], late["accepted_at"]) == (f"{remote.job}-0", True, None)
    shown = (await remote.rig.ada.get(f"/api/late-results/{late['id']}")).json
    assert shown["result"] == {"grade": 9}


async def test_a_late_result_that_utf_8_cannot_say_is_shown_and_accepted(remote):
    address = await remote.miss_deadline()
    body = b'{"status": "succeeded", "result": {"grade": "\\ud800"}}'
    assert (await remote.rig.holder(None).post(address, data=body)).status == 202
    [late] = await remote.late()
    shown = await remote.rig.ada.get(f"/api/late-results/{late['id']}")
    assert (shown.status, shown.json["result"]) == (200, {"grade": "\ud800"})
    assert (await remote.rig.ada.post(f"/api/late-results/{late['id']}/accept")).status == 200


async def test_a_result_that_waited_past_the_deadline_is_late_too(remote):
    address = await remote.send(deadline_seconds=60)
    assert (await remote.say(address, status="succeeded", result=1)).json["late"] is False
    await remote.pass_deadline()
    await remote.ended("failed")
    assert len(await remote.late()) == 1


async def test_a_result_between_the_deadline_and_the_sweep_is_late(remote):
    address = await remote.send(deadline_seconds=60)
    await remote.pass_deadline()
    assert (await remote.say(address, status="succeeded", result=1)).json["late"] is True
    await remote.ended("failed")


async def test_late_progress_and_late_failures_change_nothing_and_are_no_results(remote):
    address = await remote.miss_deadline()
    before = await remote.item()
    assert (await remote.say(address, status="progress", progress=99)).json["late"] is True
    assert (await remote.say(address, status="failed", error={"code": "NOT_PDF"})).json["late"] is True
    assert await remote.item() == before
    assert await remote.late() == []


async def test_an_accepted_result_makes_the_item_succeed_with_it_and_the_books_are_right(remote):
    auditor = Auditor(Site(remote.rig.made.url, Leaping()))
    address = await remote.miss_deadline()
    await remote.say(address, status="succeeded", result={"grade": 9})
    await auditor.check()
    [late] = await remote.late()
    accepted = await remote.rig.ada.post(f"/api/late-results/{late['id']}/accept")
    assert accepted.status == 200
    assert accepted.json["item_state"] == "succeeded"
    assert accepted.json["accepted_by"].startswith("key ")
    await auditor.check()
    item, job = await remote.item(), await remote.shown_job()
    assert (item["state"], item["error_code"], item["progress"]) == ("succeeded", None, 100)
    assert (job["state"], job["succeeded"], job["failed"]) == ("completed", 1, 0)
    assert [line["result"] for line in await remote.results()] == [{"grade": 9}]
    events = await remote.rows(f"SELECT act FROM events WHERE subject = 'item:{read_item(late['item'])}'")
    assert ("late_accepted",) in events


async def test_accepting_twice_is_accepting_once(remote):
    address = await remote.miss_deadline()
    await remote.say(address, status="succeeded", result=1)
    [late] = await remote.late()
    first = await remote.rig.ada.post(f"/api/late-results/{late['id']}/accept")
    second = await remote.rig.ada.post(f"/api/late-results/{late['id']}/accept")
    assert first.json == second.json
    assert (await remote.shown_job())["succeeded"] == 1


async def test_of_two_late_results_only_one_can_be_accepted(remote):
    address = await remote.miss_deadline()
    await remote.say(address, status="succeeded", result=1)
    await remote.say(address, status="succeeded", result=2)
    second, first = await remote.late()
    assert (await remote.rig.ada.post(f"/api/late-results/{first['id']}/accept")).status == 200
    refused = await remote.rig.ada.post(f"/api/late-results/{second['id']}/accept")
    assert refused.status == 409
    assert "only a failed item" in refused.json["detail"]
    assert [line["result"] for line in await remote.results()] == [1]


async def test_an_item_that_is_tried_again_takes_no_late_result(remote):
    address = await remote.miss_deadline()
    await remote.say(address, status="succeeded", result=1)
    [late] = await remote.late()
    assert (await remote.rig.ada.post(f"/api/items/{remote.job}-0/retry")).status == 200
    assert (await remote.rig.ada.post(f"/api/late-results/{late['id']}/accept")).status == 409


async def test_a_late_result_is_its_owner_s_and_counts_by_an_admin_s_word_only(remote):
    address = await remote.miss_deadline()
    await remote.say(address, status="succeeded", result=1)
    [late] = await remote.late()
    path = f"/api/late-results/{late['id']}"
    assert (await remote.rig.bob.get("/api/late-results")).json["data"] == []
    for reply in (await remote.rig.bob.get(path), await remote.rig.bob.post(f"{path}/accept")):
        assert reply.status == 404
    assert (await remote.rig.visitor("ada", Role.WRITE).post(f"{path}/accept")).status == 403
    assert (await remote.rig.visitor("ada", Role.READ).get(path)).status == 200
    for nonsense in ("x", "0", "9" * 30, "\u0661"):
        assert (await remote.rig.ada.get(f"/api/late-results/{nonsense}")).status == 404


async def test_late_results_come_in_pages(remote):
    address = await remote.miss_deadline()
    for number in range(5):
        await remote.say(address, status="succeeded", result=number)
    first = (await remote.rig.ada.get("/api/late-results", params={"limit": "3"})).json
    rest = (await remote.rig.ada.get("/api/late-results", params={"limit": "3", "cursor": first["next_cursor"]})).json
    numbers = [int(late["id"]) for late in first["data"] + rest["data"]]
    assert len(numbers) == 5
    assert numbers == sorted(numbers, reverse=True)
    assert rest["next_cursor"] is None
