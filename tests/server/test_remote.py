"""Work done by someone else: a signed request goes out, the answer comes in once or often, early, late or never."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook as Seal

from backstay.app import Backstay
from backstay.core.errors import UsageError
from backstay.core.limits import Limits
from backstay.remote.work import read_kinds, remote_here
from tests.server.receiver import Visit
from tests.server.remote_rig import Remote, remote_work


@pytest.fixture
async def remote(database_url: str, tmp_path: Path) -> AsyncIterator[Remote]:
    async with remote_work(database_url, tmp_path / "data") as made:
        yield made


async def test_a_request_goes_out_signed_and_its_answer_ends_the_item(remote):
    address = await remote.send()
    visit = remote.receiver.visits[0]
    asked = json.loads(visit.body)
    assert asked["payload"] == {"n": 1}
    assert asked["item"] == f"{remote.job}-0"
    assert asked["attempt"] == 1
    secret = (await remote.rig.ada.get("/api/remote/secret")).json["secret"]
    assert Seal(secret).verify(visit.body, visit.headers) == asked
    assert await remote.state() == "processing"
    reply = await remote.say(address, status="succeeded", result={"grade": 7})
    assert reply.status == 202
    assert reply.json == {"accepted": True, "late": False, "repeated": False}
    await remote.rig.work()
    assert await remote.state() == "succeeded"
    [line] = await remote.results()
    assert line["result"] == {"grade": 7}


async def test_progress_is_shown_while_it_is_worked_on(remote):
    address = await remote.send()
    for percent in (10, 55):
        assert (await remote.say(address, status="progress", progress=percent)).status == 202
    assert (await remote.item())["progress"] == 55
    assert await remote.state() == "processing"


async def test_an_answer_that_is_early_is_not_lost(remote):
    async def early(visit: Visit) -> web.Response:
        await remote.say(remote.address(visit), status="succeeded", result="quick")
        return web.Response(status=202)

    remote.receiver.answer = early
    await remote.send()
    assert await remote.state() == "succeeded"


async def test_the_same_answer_twice_counts_once(remote):
    address = await remote.send()
    first = await remote.say(address, status="succeeded", result=1)
    second = await remote.say(address, status="succeeded", result=1)
    assert (first.json["repeated"], second.json["repeated"]) == (False, True)
    await remote.rig.work()
    third = await remote.say(address, status="succeeded", result=1)
    assert third.json == {"accepted": True, "late": True, "repeated": True}
    assert [line["result"] for line in await remote.results()] == [1]
    assert await remote.late() == []


async def test_a_failure_that_may_be_tried_again_is_sent_again(remote):
    address = await remote.send()
    await remote.say(address, status="failed", error={"code": "GW_5XX", "message": "the model is busy"})
    await remote.rig.work()
    assert await remote.state() == "queued"
    await remote.rows("UPDATE items SET due_at = NULL")
    await remote.rig.work()
    assert await remote.state() == "processing"
    first, second = (json.loads(visit.body) for visit in remote.receiver.visits)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["callback_url"] != second["callback_url"]


async def test_a_failure_for_good_fails_the_item(remote):
    address = await remote.send()
    await remote.say(address, status="failed", error={"code": "NOT_PDF", "message": "that is a picture"})
    await remote.rig.work()
    item = await remote.item()
    assert (item["state"], item["error_code"], item["message"]) == ("failed", "NOT_PDF", "that is a picture")


async def test_the_answer_to_an_earlier_try_spares_the_next_one(remote):
    remote.receiver.says(503)
    await remote.submit()
    await remote.rig.work()
    assert await remote.state() == "queued"
    address = remote.address(remote.receiver.visits[0])  # it said no, and did the work all the same
    assert (await remote.say(address, status="succeeded", result="done")).json["late"] is False
    await remote.rows("UPDATE items SET due_at = NULL")
    await remote.rig.work()
    assert await remote.state() == "succeeded"
    assert len(remote.receiver.visits) == 1


async def test_an_old_try_s_failure_does_not_fail_the_new_one(remote):
    remote.receiver.says(503)
    await remote.submit()
    await remote.rig.work()
    remote.receiver.says(202)
    await remote.rows("UPDATE items SET due_at = NULL")
    await remote.rig.work()
    old, new = (remote.address(visit) for visit in remote.receiver.visits)
    await remote.say(old, status="failed", error={"code": "NOT_PDF", "message": "no"})
    await remote.rig.work()
    assert await remote.state() == "processing"
    await remote.say(new, status="succeeded", result=2)
    await remote.rig.work()
    assert await remote.state() == "succeeded"


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404])
async def test_a_refusal_fails_this_item_and_holds_up_no_other(remote, status):
    remote.receiver.says(status, "no")
    await remote.submit()
    await remote.rig.work()
    await remote.rows("UPDATE items SET due_at = NULL")  # a 403 may be of the account, and is tried once more
    await remote.rig.work()
    item = await remote.item()
    assert item["state"] == "failed"
    assert f"answered {status}" in item["message"]
    remote.receiver.says(202)
    await remote.send()
    assert await remote.state() == "processing"


async def test_a_worker_beside_the_service_does_remote_work_if_it_knows_address_and_key(remote):
    beside = Backstay(remote.rig.made.url, limits=Limits(poll_interval_seconds=0.01))
    known = remote.rig.made.settings.model_dump(include={"data", "public_url", "inside_hosts"})
    async with beside, remote_here(beside, await beside.open()):
        assert "remote" not in beside.handlers
    beside.settings = beside.settings.model_copy(update=known)
    await remote.submit({"n": 1})
    async with beside, remote_here(beside, await beside.open()):
        await beside.tick()
        visit = remote.receiver.visits[0]
        assert (await remote.say(remote.address(visit), status="succeeded", result=5)).status == 202
        await beside.tick()
    assert await remote.state() == "succeeded"
    secret = (await remote.rig.ada.get("/api/remote/secret")).json["secret"]
    assert Seal(secret).verify(visit.body, visit.headers)


@pytest.mark.parametrize(
    ("settings", "options", "sent"),
    [
        ({"remote_cost": 0.01}, {"budget_micros": 25_000}, 2),
        ({"remote_rate": "1/h"}, {}, 1),
        ({}, {}, 4),
    ],
    ids=["a budget", "a rate", "neither"],
)
async def test_requests_are_sent_as_a_budget_and_a_rate_allow(
    sqlite_file_url: str, tmp_path: Path, settings: dict[str, Any], options: dict[str, Any], sent: int
) -> None:
    async with remote_work(sqlite_file_url, tmp_path / "data", **settings) as remote:
        items = [{"url": remote.receiver.url, "payload": number} for number in range(4)]
        remote.job = await remote.rig.submit("remote", items, **options)
        await remote.rig.work()
        assert len(remote.receiver.visits) == sent
        for visit in remote.receiver.visits:
            await remote.say(remote.address(visit), status="succeeded", result=1)
        await remote.rig.work()
        shown = await remote.shown_job()
        assert (shown["succeeded"], shown["spent_micros"]) == (sent, 20_000 if options else 0)


def test_kinds_are_read_with_their_deadlines():
    assert read_kinds(" writing:1200, speaking : 3600,") == {"writing": 1200.0, "speaking": 3600.0}
    for wrong in ("writing", "writing:", "writing:0", "writing:x", ":5", "a b:5", "a:1,a:2", "a:99999999999"):
        with pytest.raises(UsageError, match="remote_kinds"):
            read_kinds(wrong)


async def test_a_kind_has_a_deadline_of_its_own(remote):
    await remote.submit(handler="remote.writing")
    item = await remote.item()
    assert item["deadline_at"] - item["created_at"] == 1_200_000
    await remote.submit()
    item = await remote.item()
    assert item["deadline_at"] - item["created_at"] == 3_600_000
