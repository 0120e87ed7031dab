"""The primary of a PostgreSQL pair dies for good, again and again, and its standby takes over under load."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from backstay import Job, wiring
from backstay.core.errors import DatabaseUnreachable
from tests.databases import Leaping, Site
from tests.servers.postgres_pair import PostgresPair
from tests.store.audit import Auditor
from tests.stories.stage import Stage, by_ref, paid_twice, until
from tests.stories.test_broker_storms import all_ended
from tests.stories.test_kills import Seen, check_all_there

pytestmark = pytest.mark.slow

KINDS = ("askable", "unaskable")
WORKERS = 2
CONCURRENCY = 16
BACK_SECONDS = 120.0


class Storm(NamedTuple):
    items: int  # of each kind
    promotions: int
    alone_seconds: float  # at most, until the new primary has a standby
    seed: int


SHORT = Storm(items=400, promotions=3, alone_seconds=1.0, seed=31)
LONG = Storm(items=10_000, promotions=20, alone_seconds=5.0, seed=32)


@asynccontextmanager
async def on_pair(synchronous: bool, folder: Path, seed: int) -> AsyncIterator[tuple[PostgresPair, Stage]]:
    pair = PostgresPair(synchronous)
    with await asyncio.to_thread(pair.__enter__):
        name = pair.primary.create_database().rpartition("/")[2]
        url = pair.url(name)
        await wiring.migrate(url)
        async with Stage(url, folder, seed) as stage:
            yield pair, stage


async def watch(jobs: Mapping[str, Job], seen: Seen) -> None:
    """What was committed once is seen again and again; the database may be away meanwhile."""
    while True:
        for job in jobs.values():
            try:
                async for result in job.results():
                    seen.add(job, result)
            except DatabaseUnreachable:
                break
        await asyncio.sleep(0.3)


async def fail_over(pair: PostgresPair, jobs: Mapping[str, Job], storm: Storm, rng: Random) -> None:
    """When some more items are done; afterwards the database takes writes again."""
    before = await until(lambda: total_done(jobs), "some items are done", BACK_SECONDS)
    least = min(before + storm.items // (storm.promotions + 1), 2 * storm.items - 1)

    async def further() -> bool:
        return (await total_done(jobs)) >= least

    await until(further, f"{least} items are done", BACK_SECONDS)
    await asyncio.to_thread(pair.fail_over)
    await asyncio.sleep(rng.uniform(0, storm.alone_seconds))
    await asyncio.to_thread(pair.add_standby)


async def total_done(jobs: Mapping[str, Job]) -> int:
    try:
        return sum([(await job.show()).done for job in jobs.values()])
    except DatabaseUnreachable:
        return 0


async def survive(pair: PostgresPair, stage: Stage, storm: Storm, seen: Seen | None) -> dict[str, Job]:
    rng = Random(storm.seed)
    for kind in KINDS:
        await stage.manners(kind, seconds_min=0.05, seconds_max=0.4, refuses=0.02)
    jobs = {kind: await stage.submit(kind, range(storm.items)) for kind in KINDS}
    workers = [stage.worker(CONCURRENCY) for _ in range(WORKERS)]
    watching = asyncio.create_task(watch(jobs, Seen() if seen is None else seen))
    for _ in range(storm.promotions):
        await fail_over(pair, jobs, storm, rng)
    await all_ended(jobs)
    watching.cancel()
    assert [worker.poll() for worker in workers] == [None] * WORKERS, "the same workers as before"
    return jobs


async def check_books(pair: PostgresPair, stage: Stage) -> None:
    await Auditor(Site(pair.primary.url(stage.url.rpartition("/")[2]), Leaping())).check()


@pytest.mark.parametrize("storm", [SHORT, pytest.param(LONG, marks=pytest.mark.storm)], ids=["short", "long"])
async def test_a_synchronous_standby_takes_over_and_nothing_is_lost_or_repeated_silently(
    tmp_path: Path, storm: Storm
) -> None:
    async with on_pair(True, tmp_path, storm.seed) as (pair, stage):
        seen = Seen()
        jobs = await survive(pair, stage, storm, seen)
        results = {kind: await stage.results(job) for kind, job in jobs.items()}
        for kind, job in jobs.items():
            check_all_there(results[kind], storm.items)
            for result in results[kind].values():
                seen.add(job, result)
        assert seen.changed == [], "no committed result changes"
        await check_books(pair, stage)
        assert paid_twice(await stage.bill("askable")) == []
        for charges in by_ref(await stage.bill("unaskable")).values():
            result = results["unaskable"][charges[0].payload]
            assert len(charges) - 1 <= result.repeats + result.attempts - 1, "no repeat is hidden"


async def test_an_asynchronous_standby_may_forget_and_the_books_are_right_afterwards(tmp_path: Path) -> None:
    async with on_pair(False, tmp_path, SHORT.seed) as (pair, stage):
        jobs = await survive(pair, stage, SHORT, None)
        for job in jobs.values():
            check_all_there(await stage.results(job), SHORT.items)
        await check_books(pair, stage)
