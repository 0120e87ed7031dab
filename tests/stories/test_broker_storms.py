"""A fleet on PostgreSQL, RabbitMQ and Redis, whose every part dies and whose every link is cut while it works."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from backstay import Job, Result
from backstay.core.errors import DatabaseUnreachable
from backstay.core.ids import item_id
from tests.stories.stage import by_ref, paid_twice, until
from tests.stories.test_kills import Seen, check_all_there
from tests.stories.test_outages import ended
from tests.stories.weather import CONCURRENCY, WORKERS, Weather, servers, weather

KINDS = ("askable", "unaskable")


class Storm(NamedTuple):
    items: int  # of each kind
    rounds: int
    swallows: bool  # whether links swallow what is sent as well, instead of being cut
    calm_seconds: tuple[float, float]
    seconds_max: float  # that a call takes
    seed: int


SHORT = Storm(items=400, rounds=1, swallows=False, calm_seconds=(0.1, 0.5), seconds_max=2.5, seed=21)
LONG = Storm(items=10_000, rounds=4, swallows=True, calm_seconds=(0.2, 1.0), seconds_max=0.6, seed=22)


async def watch(jobs: Mapping[str, Job], seen: Seen) -> None:
    """What was committed once is seen again and again; the database may be away meanwhile."""
    while True:
        for job in jobs.values():
            try:
                async for result in job.results():
                    seen.add(job, result)
            except DatabaseUnreachable:
                break
        await asyncio.sleep(0.5)


async def rage(sky: Weather, storm: Storm) -> None:
    for _ in range(storm.rounds):
        kinds = [kind for kind in sky.kinds() if storm.swallows or not kind.startswith("swallow")]
        sky.rng.shuffle(kinds)
        for kind in kinds:
            await asyncio.sleep(sky.rng.uniform(*storm.calm_seconds))
            await sky.blow(kind)


@pytest.mark.parametrize("storm", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
async def test_every_part_dies_and_every_link_is_cut_and_each_item_ends_once(tmp_path: Path, storm: Storm) -> None:
    with servers() as found:
        async with weather(found, tmp_path, storm.seed) as sky:
            await sky.stage.working(sky.workers[0])
            for kind in KINDS:
                await sky.stage.manners(kind, seconds_min=0.05, seconds_max=storm.seconds_max, refuses=0.02)
            jobs = {kind: await sky.stage.submit(kind, range(storm.items)) for kind in KINDS}
            seen = Seen()
            watching = asyncio.create_task(watch(jobs, seen))
            await rage(sky, storm)
            await until(lambda: ended(jobs), "all jobs have ended", seconds=60 + storm.items / 10)
            watching.cancel()
            await check(sky, storm, jobs, seen)


async def check(sky: Weather, storm: Storm, jobs: Mapping[str, Job], seen: Seen) -> None:
    results = {kind: await sky.stage.results(job) for kind, job in jobs.items()}
    for kind, job in jobs.items():
        check_all_there(results[kind], storm.items)
        for result in results[kind].values():
            seen.add(job, result)
        for position in range(storm.items):
            attempts = await sky.stage.views.attempts(item_id(job.id, position))
            assert sum(attempt.outcome == "succeeded" for attempt in attempts) == 1
    assert seen.changed == [], "no committed result changes"
    assert paid_twice(await sky.stage.bill("askable")) == []
    await check_bill(sky, results["unaskable"])
    await check_server(sky, jobs["askable"], storm.items)


async def check_bill(sky: Weather, results: Mapping[int, Result]) -> None:
    """What cannot be asked about is paid again only where a fault cut it off, and each time it is written down."""
    repeated = 0
    for charges in by_ref(await sky.stage.bill("unaskable")).values():
        *cut_off, _ = charges
        repeated += len(cut_off)
        for charge in cut_off:
            assert any(gust.may_have_cut(charge.at, charge.ended_at) for gust in sky.gusts), (charge, sky.gusts)
    assert repeated <= len(sky.gusts) * WORKERS * CONCURRENCY
    told = sum(result.repeats + result.attempts - 1 for result in results.values())
    assert repeated <= told, "no repeat is hidden"


async def check_server(sky: Weather, job: Job, items: int) -> None:
    """The server, whose Redis died and came back, says what the database says."""
    async with (
        aiohttp.ClientSession(raise_for_status=True) as http,
        http.get(f"http://127.0.0.1:{sky.port}/api/jobs/{job.id}") as response,
    ):
        assert (await response.json())["succeeded"] == items
