"""Jobs take turns while real workers do them, and no priority is starved."""

import asyncio

import pytest

from backstay import Backstay
from backstay.client import Job
from backstay.clock import Tasks
from backstay.testing import rehearsal, virtual_time
from backstay.testing.rehearsal import drain


def an_app(seconds: float, concurrency: int) -> Backstay:
    app = Backstay("sqlite:///never-made.db")

    @app.handler("work", concurrency=concurrency, timeout=600)
    async def work(item: int) -> int:
        await asyncio.sleep(seconds)
        return item

    return app


async def finish(app: Backstay, job: Job) -> float:
    """How long the job takes from now on."""
    began = asyncio.get_running_loop().time()
    await job.wait()
    return asyncio.get_running_loop().time() - began


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "concurrency", "gap_seconds"),
    [(10, 1, 60), (10, 1, 3_600), (10, 1, 20_000), (1, 1, 60), (1, 1, 3_600), (0.1, 100, 20)],
)
@virtual_time
async def test_ten_items_take_turns_with_a_big_job(seconds: float, concurrency: int, gap_seconds: int) -> None:
    app = an_app(seconds, concurrency)
    async with rehearsal(app) as clock:
        big = await app.submit("work", range(40_000))
        tasks = Tasks()
        working = tasks.spawn(drain(app, hours_max=1_000))
        await clock.sleep(gap_seconds)
        took = await finish(app, await app.submit("work", range(10)))
        turns = (10 + 10 + concurrency) / concurrency + 1
        assert took <= turns * seconds + 2, "a second until the queue's turn is told, and one until it is seen"
        assert not (await big.show()).ended
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@virtual_time
async def test_a_low_priority_is_not_starved_by_an_endless_high_one() -> None:
    app = an_app(seconds=1, concurrency=1)
    async with rehearsal(app):
        await app.submit("work", range(20_000), priority=9)
        low = await app.submit("work", range(5), priority=0)
        tasks = Tasks()
        working = tasks.spawn(drain(app, hours_max=1_000))
        took = await finish(app, low)
        assert 20 < took < 600, "one claim in twenty starts below the highest priority"
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
