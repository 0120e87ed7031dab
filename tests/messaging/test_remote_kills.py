"""Backstay's own worker, as a process with a broker, is killed while requests and callbacks are under way."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import AMQPError

from tests.databases import fresh_database
from tests.messaging.remote_rig import KEY, MessageRemote, message_work
from tests.servers.fault_proxy import FaultProxy
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.stories.runs import COMMAND
from tests.stories.stage import until

database_url = fresh_database("postgres", later="sqlite")

SECRET = "s" * 32


@pytest.fixture
async def remote(database_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ) -> AsyncIterator[MessageRemote]:
    async with message_work(database_url, tmp_path / "data", rabbitmq, secret_key=SECRET) as made:
        yield made


@contextmanager
def worker(remote: MessageRemote, broker_url: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process on the same database; the service here only takes items in and shows them."""
    environment = {
        **os.environ,
        "BACKSTAY_SECRET_KEY": SECRET,
        "BACKSTAY_BROKER_URL": broker_url,
        "BACKSTAY_BROKER_PREFIX": remote.prefix,
        "BACKSTAY_POLL_INTERVAL_SECONDS": "0.05",
        "BACKSTAY_WORKER_LEASE_TTL_SEC": "3",
    }
    with log.open("ab") as words:
        command = [*COMMAND, "worker", "--db", remote.rig.made.url]
        process = subprocess.Popen(command, env=environment, stdout=words, stderr=words)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def ended(remote: MessageRemote, log: Path) -> None:
    async def there() -> bool:
        return await remote.state() == "succeeded"

    await until(there, f"the item has succeeded; see {log}")


@pytest.mark.slow
async def test_killed_between_publish_and_settle_the_request_is_sent_again_under_the_same_id(
    remote, rabbitmq, tmp_path
):
    log = tmp_path / "worker.log"
    async with FaultProxy.of(rabbitmq.url) as proxy:
        with worker(remote, proxy.url(rabbitmq.url), log) as first:
            await remote.submit({"n": 1})
            await remote.worker.tell(await remote.worker.request(), status="succeeded", result=1)
            await ended(remote, log)
            proxy.delay(2.0)  # from when the request is there until its confirm is
            await remote.submit({"n": 2})
            before = await remote.worker.request()
            first.kill()
            first.wait()
    assert await remote.state() == "submitting"
    with worker(remote, rabbitmq.url, log):
        after = await remote.worker.request()
        assert before.body["id"] == after.body["id"] == before.message.message_id == after.message.message_id
        assert before.body["task"] != after.body["task"]
        for asked in (after, before, after):
            await remote.worker.tell(asked, status="succeeded", result="done")
        await ended(remote, log)
        await remote.told(before, status="progress", progress=1)  # behind all others
    assert [line["result"] for line in await remote.results()] == ["done"]
    job = await remote.shown_job()
    assert (job["state"], job["succeeded"], job["total"]) == ("completed", 1, 1)
    assert (await remote.item())["repeats"] == 1
    assert await remote.worker.waiting() == 0


@pytest.mark.slow
async def test_an_answer_to_a_request_whose_sender_was_killed_spares_the_repeat(remote, rabbitmq, tmp_path):
    log = tmp_path / "worker.log"
    async with FaultProxy.of(rabbitmq.url) as proxy:
        with worker(remote, proxy.url(rabbitmq.url), log) as first:
            await remote.submit({"n": 1})
            await remote.worker.tell(await remote.worker.request(), status="succeeded", result=1)
            await ended(remote, log)
            proxy.delay(2.0)
            await remote.submit({"n": 2})
            asked = await remote.worker.request()
            first.kill()
            first.wait()
    await remote.told(asked, status="succeeded", result="done")
    with worker(remote, rabbitmq.url, log):
        await ended(remote, log)
    assert await remote.worker.waiting() == 0
    assert [line["result"] for line in await remote.results()] == ["done"]


@pytest.mark.slow
async def test_callbacks_that_came_while_nobody_was_there_are_read_by_the_next(
    database_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ
) -> None:
    log, prefix = tmp_path / "worker.log", rabbitmq.prefix()
    given = {"secret_key": SECRET, "broker_prefix": prefix}
    async with message_work(database_url, tmp_path / "data", rabbitmq, **given) as remote:
        asked = await remote.ask()
        job = remote.job
    async with message_work(database_url, tmp_path / "data", rabbitmq, **given, broker_url=None) as remote:
        remote.job, remote.prefix = job, prefix
        await remote.worker.tell(asked, status="succeeded", result=5)
        with worker(remote, rabbitmq.url, log):
            await ended(remote, log)
        assert [line["result"] for line in await remote.results()] == [5]


async def reopened(url: str) -> AbstractConnection | None:
    try:
        return await aio_pika.connect(url)
    except (OSError, AMQPError):
        return None


@pytest.mark.slow  # a second broker; the storm kills one as well
async def test_with_the_broker_killed_and_restarted_every_item_ends_once(sqlite_file_url: str, tmp_path: Path) -> None:
    """What it has confirmed is on its disk, and what was taken from it may come again, under the same id."""
    with PrivateRabbitMQ() as node:
        async with message_work(sqlite_file_url, tmp_path / "data", node) as remote:
            items = [{"exchange": remote.worker.exchange, "routing_key": KEY, "payload": n} for n in range(10)]
            remote.job = await remote.rig.submit("remote", items)
            await remote.rig.work()
            for asked in [await remote.worker.request() for _ in range(5)]:
                await remote.worker.tell(asked, status="succeeded", result=asked.body["payload"])
            node.kill()
            node.restart()
            async with await until(lambda: reopened(node.url), "the broker is back") as connection:
                remote.worker.channel = await connection.channel()
                remote.worker.queue = await remote.worker.channel.get_queue(remote.worker.exchange)

                async def over() -> bool:
                    if await remote.worker.waiting():
                        asked = await remote.worker.request()
                        await remote.worker.tell(asked, status="succeeded", result=asked.body["payload"])
                    await remote.rig.work()
                    return bool((await remote.shown_job())["state"] == "completed")

                await until(over, "the job has ended")
            assert [line["result"] for line in await remote.results()] == list(range(10))
