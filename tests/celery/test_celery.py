"""Items through Celery: its messages are hints, the database decides."""

import asyncio
from pathlib import Path

import pytest

from tests.celery.rig import NEVER_SECONDS, shop_on
from tests.celery.shop import DELAY_MS
from tests.servers.rabbitmq import PrivateRabbitMQ

ONLY_MESSAGES = {"SHOP_DATABASE_SECONDS": str(NEVER_SECONDS)}
POOLS = {"prefork": ("--concurrency", "2"), "threads": ("--pool", "threads", "-c", "2"), "solo": ("--pool", "solo")}


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
async def test_celery_carries_items_to_its_workers(
    pool: str, tmp_path: Path, postgres_url: str, rabbitmq: PrivateRabbitMQ
) -> None:
    async with shop_on(tmp_path, postgres_url, rabbitmq) as shop:
        process = await shop.started(*POOLS[pool], **ONLY_MESSAGES)
        await shop.ended(await shop.backstay.submit("convert", ["first"]))  # a worker looks once when it starts
        await shop.until(lambda: shop.messages == 1, "its message is through")
        before = shop.run_by_messages
        job = await shop.backstay.submit("convert", range(200))
        assert await shop.ended(job) == list(range(200))
        await shop.until(lambda: shop.messages == 5, "its messages are through")
        assert shop.run_by_messages - before == 200
        shop.celery.send_task("shop.greet", ("Ann",), queue=shop.queue)
        await shop.until(lambda: "greeted Ann" in shop.told, "Celery's own task has run")
        assert shop.stop(process) == 0
    assert all(times == 1 for times in shop.told.values())
    assert len(shop.told) == 202


@pytest.mark.slow
async def test_items_end_once_on_sqlite_too(tmp_path: Path, sqlite_file_url: str, rabbitmq: PrivateRabbitMQ) -> None:
    async with shop_on(tmp_path, sqlite_file_url, rabbitmq) as shop:
        await shop.started()
        job = await shop.backstay.submit("convert", range(500))
        assert await shop.ended(job) == list(range(500))
    assert set(shop.told.values()) == {1}


@pytest.mark.slow
async def test_a_retry_waits_its_time_in_the_database(
    tmp_path: Path, postgres_url: str, rabbitmq: PrivateRabbitMQ
) -> None:
    async with shop_on(tmp_path, postgres_url, rabbitmq) as shop:
        await shop.started()
        job = await shop.backstay.submit("flaky", range(20))
        assert await shop.ended(job) == list(range(20))
        view = await job.show()
        assert view.finished_at is not None
        assert DELAY_MS <= view.finished_at - view.created_at < DELAY_MS + 10_000
    assert shop.told == {f"flaky {item}": 2 if item % 10 == 0 else 1 for item in range(20)}


@pytest.mark.slow
async def test_a_copy_of_a_message_does_nothing(tmp_path: Path, postgres_url: str, rabbitmq: PrivateRabbitMQ) -> None:
    async with shop_on(tmp_path, postgres_url, rabbitmq) as shop:
        await shop.started(**ONLY_MESSAGES)
        job = await shop.backstay.submit("convert", range(10))
        await shop.ended(job)
        await shop.until(lambda: shop.messages == 1, "the message is through")
        run = shop.run_by_messages
        for _ in range(3):
            shop.send("convert", [f"{job.id}-{position}" for position in range(10)])
        shop.send("nobody knows it", [f"{job.id}-0"])
        await shop.until(lambda: shop.messages == 5, "the copies are through")
        assert shop.run_by_messages == run
    assert set(shop.told.values()) == {1}


@pytest.mark.slow
async def test_what_a_killed_worker_held_is_done_by_the_next(
    tmp_path: Path, postgres_url: str, rabbitmq: PrivateRabbitMQ
) -> None:
    async with shop_on(tmp_path, postgres_url, rabbitmq) as shop:
        first = await shop.started()
        job = await shop.backstay.submit("gated", range(5))
        await shop.until(lambda: len(shop.told) == 5, "all are under way")
        first.kill()
        first.wait()
        (tmp_path / "gate").touch()
        await shop.started()
        assert await shop.ended(job) == list(range(5))
        view = await job.show()
        assert (view.succeeded, view.failed) == (5, 0)
    assert set(shop.told.values()) == {2}  # the outcome of the first try is not known, so it is tried again


@pytest.mark.slow
async def test_a_warm_shutdown_hands_back_what_it_cannot_finish(
    tmp_path: Path, postgres_url: str, rabbitmq: PrivateRabbitMQ
) -> None:
    async with shop_on(tmp_path, postgres_url, rabbitmq) as shop:
        first = await shop.started(BACKSTAY_SHUTDOWN_SECONDS="1")
        job = await shop.backstay.submit("gated", range(3))
        await shop.until(lambda: len(shop.told) == 3, "all are under way")
        assert shop.stop(first) == 0
        view = await job.show()
        assert (view.processing, view.done) == (0, 0)
        (tmp_path / "gate").touch()
        await shop.started()
        assert await shop.ended(job) == list(range(3))
        results = [result async for result in job.results()]
        assert [result.attempts for result in results] == [1, 1, 1]


@pytest.mark.slow
async def test_a_warm_shutdown_finishes_what_it_can(
    tmp_path: Path, postgres_url: str, rabbitmq: PrivateRabbitMQ
) -> None:
    async with shop_on(tmp_path, postgres_url, rabbitmq) as shop:
        process = await shop.started()
        job = await shop.backstay.submit("gated", range(3))
        await shop.until(lambda: len(shop.told) == 3, "all are under way")
        process.terminate()
        await shop.until(lambda: "Warm shutdown" in shop.log, "it was told to stop")
        (tmp_path / "gate").touch()
        assert process.wait(30) == 0
        assert (await job.show()).succeeded == 3


@pytest.mark.slow
async def test_a_wiped_broker_loses_no_item(tmp_path: Path, postgres_url: str, rabbitmq: PrivateRabbitMQ) -> None:
    async with shop_on(tmp_path, postgres_url, rabbitmq) as shop:
        client = await shop.backstay.open()
        async with shop.bridge.relaying(client):
            job = await shop.backstay.submit("convert", range(1_000))
            while (await client.store.outbox.lag("work")).rows:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.02)
        assert shop.depth() == 20
        rabbitmq.wipe()
        await shop.started()
        assert await shop.ended(job) == list(range(1_000))
        assert shop.messages == 0
    assert set(shop.told.values()) == {1}
