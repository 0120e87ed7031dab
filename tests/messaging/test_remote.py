"""Work done by someone else over RabbitMQ: a request goes out, the answer comes once or often, early, late or never."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook as Seal

from tests.messaging.remote_rig import KEY, MessageRemote, message_work, sending
from tests.servers.fault_proxy import FaultProxy
from tests.servers.rabbitmq import PrivateRabbitMQ


@pytest.fixture
async def remote(database_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ) -> AsyncIterator[MessageRemote]:
    async with message_work(database_url, tmp_path / "data", rabbitmq) as made:
        yield made


async def test_a_request_goes_out_signed_and_its_answer_ends_the_item(remote):
    asked = await remote.ask(priority=7)
    assert asked.body["payload"] == {"n": 1}
    assert asked.body["task"].startswith(f"{remote.job}-0/")
    assert asked.body["attempt"] == 1
    assert asked.body["deadline_at"] == (await remote.item())["deadline_at"]
    message = asked.message
    assert (message.type, message.message_id, message.priority) == ("request", asked.body["id"], 7)
    assert (message.content_type, message.delivery_mode, message.expiration) == ("application/json", 2, None)
    secret = (await remote.rig.ada.get("/api/remote/secret")).json["secret"]
    assert Seal(secret).verify(message.body, {name: str(value) for name, value in message.headers.items()})
    assert await remote.state() == "processing"
    await remote.told(asked, status="succeeded", result={"grade": 7})
    await remote.ended("succeeded")
    assert [line["result"] for line in await remote.results()] == [{"grade": 7}]


@pytest.mark.slow
async def test_progress_is_shown_while_it_is_worked_on_and_the_last_word_stands(remote):
    asked = await remote.ask()
    for percent in range(100):
        await remote.worker.tell(asked, status="progress", progress=percent)
    await remote.told(asked, status="failed", error={"code": "NOT_PDF"})  # behind them: of one item all are in order
    assert [kind for kind, *_ in await remote.kept()] == ["progress", "failed"]
    assert (await remote.item())["progress"] == 99


@pytest.mark.slow
async def test_an_answer_that_is_early_is_not_lost(remote, rabbitmq, monkeypatch):
    """It is there before the broker has confirmed the request."""
    async with FaultProxy.of(rabbitmq.url) as proxy:
        sending(monkeypatch, proxy)
        await remote.ask()
        await remote.submit({"n": 2})
        proxy.delay(1.0)
        working = asyncio.get_running_loop().create_task(remote.rig.work())
        asked = await remote.worker.request()
        await remote.told(asked, status="succeeded", result="quick")
        assert await remote.state() == "submitting"
        await working
        assert await remote.state() == "succeeded"


async def test_the_same_answer_twice_counts_once(remote):
    asked = await remote.ask()
    await remote.worker.tell(asked, status="succeeded", result=1)
    await remote.told(asked, status="succeeded", result=1)
    await remote.ended("succeeded")
    await remote.worker.tell(asked, status="succeeded", result=1)
    await remote.told(asked, status="progress", progress=1)
    assert [kind for kind, *_ in await remote.kept()] == ["succeeded", "progress"]
    assert [line["result"] for line in await remote.results()] == [1]
    assert await remote.late() == []


async def test_of_the_same_answer_over_http_and_as_a_message_one_is_kept(
    sqlite_file_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ
) -> None:
    async with message_work(sqlite_file_url, tmp_path, rabbitmq, public_url="https://backstay.example") as remote:
        asked = await remote.ask()
        await remote.told(asked, status="succeeded", result=[1])
        address = f"/callbacks/{asked.body['task']}/{asked.body['tag']}"
        reply = await remote.say(address, status="succeeded", result=[1])
        assert reply.json == {"accepted": True, "late": False, "repeated": True}
        [(_, _, _, body)] = await remote.kept()
        assert json.loads(body) == {"status": "succeeded", "result": [1]}, "a tag is not kept"


@pytest.mark.slow
async def test_a_failure_that_may_be_tried_again_is_sent_again_as_a_new_request(remote):
    first = await remote.ask()
    await remote.told(first, status="failed", error={"code": "GW_5XX", "message": "the model is busy"})
    await remote.ended("queued")
    await remote.rows("UPDATE items SET due_at = NULL")
    await remote.rig.work()
    second = await remote.worker.request()
    assert (first.body["attempt"], second.body["attempt"]) == (1, 2)
    assert first.body["id"] != second.body["id"], "that it failed was answered: to ask anew is no repeat"
    assert first.body["tag"] != second.body["tag"]


@pytest.mark.slow
async def test_three_failures_are_enough(remote):
    asked = await remote.ask()
    for _ in range(2):
        await remote.told(asked, status="failed", error={"code": "GW_TIMEOUT"})
        await remote.ended("queued")
        await remote.rows("UPDATE items SET due_at = NULL")
        await remote.rig.work()
        asked = await remote.worker.request()
    await remote.told(asked, status="failed", error={"code": "GW_TIMEOUT"})
    await remote.ended("failed")


@pytest.mark.slow
async def test_a_failure_for_good_fails_the_item(remote):
    asked = await remote.ask()
    await remote.told(asked, status="failed", error={"code": "NOT_PDF", "message": "that is a picture"})
    await remote.ended("failed")
    item = await remote.item()
    assert (item["error_code"], item["message"]) == ("NOT_PDF", "that is a picture")


async def test_a_kind_has_a_deadline_of_its_own_and_never_is_an_answer_too(remote):
    await remote.submit(handler="remote.writing")
    item = await remote.item()
    assert item["deadline_at"] - item["created_at"] == 1_200_000
    await remote.rig.work()
    await remote.worker.request()
    await remote.pass_deadline()
    await remote.ended("failed")
    assert (await remote.item())["error_code"] == "GW_TIMEOUT"


async def test_a_late_result_is_kept_and_counts_when_an_admin_says_so(remote):
    asked = await remote.miss_deadline_of()
    before = await remote.item()
    await remote.told(asked, status="succeeded", result={"grade": 9})
    await remote.rig.work()
    assert await remote.item() == {**before, "flaw": "late"}
    [late] = await remote.late()
    accepted = await remote.rig.ada.post(f"/api/late-results/{late['id']}/accept")
    assert (accepted.status, accepted.json["item_state"]) == (200, "succeeded")
    job = await remote.shown_job()
    assert (job["state"], job["succeeded"], job["failed"]) == ("completed", 1, 0)
    assert [line["result"] for line in await remote.results()] == [{"grade": 9}]


async def test_the_headers_of_an_item_go_with_its_request(remote):
    item = {"exchange": remote.worker.exchange, "routing_key": KEY, "payload": 1, "headers": {"x-tenant": "a"}}
    remote.job = await remote.rig.submit("remote", [item])
    await remote.rig.work()
    assert (await remote.worker.request()).message.headers["x-tenant"] == "a"
