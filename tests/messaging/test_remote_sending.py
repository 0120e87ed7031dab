"""Requests to exchanges that other people named: what cannot be sent is tried again, and is in nobody else's way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backstay.remote.over_messages import CHANNELS_MAX
from tests.messaging.remote_rig import KEY, MessageRemote, message_work, sending
from tests.messaging.rig import until
from tests.servers.fault_proxy import FaultProxy
from tests.servers.rabbitmq import PrivateRabbitMQ


@pytest.fixture
async def remote(sqlite_file_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ) -> AsyncIterator[MessageRemote]:
    async with message_work(sqlite_file_url, tmp_path / "data", rabbitmq) as made:
        yield made


def item(remote: MessageRemote, **parts: Any) -> dict[str, Any]:
    return {"exchange": remote.worker.exchange, "routing_key": KEY, "payload": 1, **parts}


async def tries(remote: MessageRemote, job: str) -> list[tuple[str, str]]:
    rows = await remote.rows(f"SELECT error_code, message FROM attempts WHERE item_id >> 28 = {job} ORDER BY item_id")
    return [(str(code), str(message)) for code, message in rows]


async def states(remote: MessageRemote, job: str) -> dict[str, int]:
    return dict(await remote.rows(f"SELECT state, count(*) FROM items WHERE job_id = {job} GROUP BY state"))


async def test_a_request_that_no_queue_takes_is_tried_again(remote):
    remote.job = await remote.rig.submit("remote", [item(remote, routing_key="nobody")])
    await remote.rig.work()
    assert await remote.state() == "queued"
    [(code, message)] = await tries(remote, remote.job)
    assert code == "GW_5XX"
    assert message.startswith("no queue is bound for requests to exchange")
    exchange = await remote.worker.channel.get_exchange(remote.worker.exchange)
    await remote.worker.queue.bind(exchange, "nobody")
    await remote.rows("UPDATE items SET due_at = NULL")
    await remote.rig.work()
    assert (await remote.worker.request()).body["attempt"] == 2
    assert await remote.state() == "processing"


async def test_missing_exchanges_are_tried_again_and_break_nobody_else_s_connection(remote, monkeypatch):
    """Many at once, because a channel that is closed under many writers takes its connection with it."""
    connections = sending(monkeypatch)
    await remote.ask()
    mixed = [item(remote, exchange="missing-1"), item(remote), item(remote, exchange="missing-2")]
    job = await remote.rig.submit("remote", mixed * 20)
    await remote.rig.work()
    assert await states(remote, job) == {"processing": 20, "queued": 40}
    assert {message for _, message in await tries(remote, job)} == {
        "there is no exchange 'missing-1'",
        "there is no exchange 'missing-2'",
    }
    assert [connection.is_closed for connection in connections] == [False]
    assert await remote.worker.waiting() == 20


async def test_an_exchange_that_goes_away_is_found_again(remote):
    await remote.ask()
    await remote.worker.channel.exchange_delete(remote.worker.exchange)
    job = await remote.rig.submit("remote", [item(remote)])
    await remote.rig.work()
    assert await states(remote, job) == {"queued": 1}
    made = await remote.worker.channel.declare_exchange(remote.worker.exchange, "direct", durable=True)
    await remote.worker.queue.bind(made, KEY)
    await remote.rows("UPDATE items SET due_at = NULL WHERE state = 'queued'")
    await remote.rig.work()
    assert await states(remote, job) == {"processing": 1}


async def test_an_exchange_that_nobody_may_write_to_fails_the_item(remote):
    job = await remote.rig.submit("remote", [item(remote, exchange="amq.rabbitmq.trace")] * 3)
    await remote.rig.work()
    assert await states(remote, job) == {"failed": 3}
    assert {code for code, _ in await tries(remote, job)} == {"FORBIDDEN"}


async def test_a_queue_that_is_full_is_tried_again(remote):
    channel = remote.worker.channel
    full = await channel.declare_queue(
        f"{remote.prefix}-full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    await full.bind(remote.worker.exchange, "full")
    job = await remote.rig.submit("remote", [item(remote, routing_key="full")] * 3)
    await remote.rig.work()
    assert await states(remote, job) == {"processing": 1, "queued": 2}
    assert all("refused" in message for _, message in await tries(remote, job))


async def test_more_exchanges_than_channels_are_served(remote, monkeypatch):
    connections = sending(monkeypatch)
    channel, names = remote.worker.channel, [f"{remote.prefix}-x{n}" for n in range(CHANNELS_MAX + 5)]
    for name in names:
        await remote.worker.queue.bind(await channel.declare_exchange(name, "direct"), KEY)
    job = await remote.rig.submit("remote", [item(remote, exchange=name) for name in names] * 2)
    await remote.rig.work()
    assert await states(remote, job) == {"processing": 2 * len(names)}
    [open_one] = connections
    assert open_one.transport is not None
    channels = open_one.transport.connection.channels
    await until(lambda: len(channels) <= CHANNELS_MAX + 25)


async def test_while_the_broker_is_away_items_wait_and_lose_no_try(remote, rabbitmq, monkeypatch):
    async with FaultProxy.of(rabbitmq.url) as proxy:
        sending(monkeypatch, proxy)
        monkeypatch.setattr("backstay.remote.over_messages.AWAY_SECONDS", 0.0)
        await proxy.cut()
        job = await remote.rig.submit("remote", [item(remote)] * 3)
        await remote.rig.work()
        assert await remote.rows(f"SELECT state, attempt_count FROM items WHERE job_id = {job}") == [("queued", 0)] * 3
        message = (await tries(remote, job))[0][1]
        assert "cannot be reached" in message
        assert "guest:guest" not in message
        await proxy.pass_on()
        await remote.rows("UPDATE items SET due_at = NULL")
        await remote.rig.work()
        assert await states(remote, job) == {"processing": 3}


@pytest.mark.slow
@pytest.mark.parametrize(("delivery", "state"), [("at_least_once", "queued"), ("at_most_once", "failed")])
async def test_a_connection_that_breaks_before_the_confirm_leaves_it_unknown(
    remote, rabbitmq, delivery, state, monkeypatch
):
    async with FaultProxy.of(rabbitmq.url) as proxy:
        sending(monkeypatch, proxy)
        await remote.ask()
        proxy.delay(1.0)
        await remote.submit({"n": 2}, delivery=delivery)
        working = asyncio.get_running_loop().create_task(remote.rig.work())
        first = await remote.worker.request()
        proxy.reset()
        await working
        assert await remote.state() == state
        await proxy.pass_on()
        if state == "queued":
            await remote.rows("UPDATE items SET due_at = NULL WHERE state = 'queued'")
            await remote.rig.work()
            second = await remote.worker.request()
            assert first.body["id"] == second.body["id"] == second.message.message_id
            assert first.body["task"] != second.body["task"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"exchange": 1}, "a remote item must have"),
    ({"url": "https://worker.example/"}, "a remote item must have"),
    ({"exchange": ""}, "must not be empty"),
    ({"exchange": "{prefix}.work"}, "belongs to Backstay"),
    ({"exchange": "{prefix}.callbacks"}, "belongs to Backstay"),
    ({"exchange": "ü" * 128}, "at most 255 bytes"),
    ({"exchange": "a\nb"}, "at most 255 bytes"),
    ({"routing_key": "x" * 256}, "at most 255 bytes"),
    ({"routing_key": None}, "at most 255 bytes"),
    ({"more": 1}, "no field 'more'"),
    ({"headers": []}, "headers must be"),
    ({"headers": {"CC": "elsewhere"}}, "cannot be set"),
    ({"headers": {"bcc": "elsewhere"}}, "cannot be set"),
    ({"headers": {"x-death": "1"}}, "cannot be set"),
    ({"headers": {"Webhook-Signature": "v1,x"}}, "cannot be set"),
    ({"headers": {"Authorization": "Bearer x"}}, "stored in the database"),
    ({"headers": {"x": "a\r\nb"}}, "printable ASCII"),
]


async def test_an_item_that_cannot_be_sent_is_refused_when_it_is_submitted(remote):
    for parts, why in WRONG:
        given = item(remote, **parts)
        if isinstance(given["exchange"], str):
            given["exchange"] = given["exchange"].format(prefix=remote.prefix)
        reply = await remote.rig.ada.post("/api/jobs", json={"handler": "remote", "items": [given]})
        assert reply.status in (400, 422), parts
        assert why in reply.json["detail"], parts


async def test_an_operator_can_say_which_exchanges_may_be_named(sqlite_file_url, tmp_path, rabbitmq):
    async with message_work(sqlite_file_url, tmp_path, rabbitmq, remote_exchanges="grading, other") as remote:
        given = {"handler": "remote", "items": [item(remote)]}
        reply = await remote.rig.ada.post("/api/jobs", json=given)
        assert reply.status in (400, 422)
        assert "BACKSTAY_REMOTE_EXCHANGES" in reply.json["hint"]
        assert await remote.rig.submit("remote", [item(remote, exchange="other")])


async def test_a_service_without_a_broker_says_so(sqlite_file_url, tmp_path, rabbitmq):
    async with message_work(sqlite_file_url, tmp_path, rabbitmq, broker_url=None) as remote:
        reply = await remote.rig.ada.post("/api/jobs", json={"handler": "remote", "items": [item(remote)]})
        assert reply.status in (400, 422)
        assert "BACKSTAY_BROKER_URL" in reply.json["hint"]


async def test_a_request_that_is_too_large_for_a_broker_fails_its_item(remote, monkeypatch):
    monkeypatch.setattr("backstay.remote.over_messages.REQUEST_BYTES_MAX", 1_000)
    job = await remote.rig.submit("remote", [item(remote, payload="x" * 1_000)])
    await remote.rig.work()
    assert [code for code, _ in await tries(remote, job)] == ["TOO_LARGE"]
