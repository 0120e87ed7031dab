"""A fleet on PostgreSQL, RabbitMQ and Redis, whose every part dies and whose every link is cut while it works."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from backstay import Job, Result
from backstay.core.errors import DatabaseUnreachable
from backstay.store.outbox import HINT_ITEMS_MAX
from tests.databases import Leaping, Site
from tests.stories.broker_faults import CONCURRENCY, WORKERS, Fault, Weather, servers, weather
from tests.stories.stage import by_ref, paid_twice, until
from tests.stories.test_kills import Seen, check_all_there
from tests.stories.test_outages import ended

pytestmark = pytest.mark.slow

KINDS = ("askable", "unaskable")
SUCCESSES = """
    SELECT times, count(*) FROM (
        SELECT count(*) AS times FROM attempts WHERE outcome = 'succeeded' GROUP BY item_id
    ) AS each_item GROUP BY times
"""
STILL_SECONDS_MAX = 90.0
NAMED_MIN = 50  # items that messages have brought before it begins


class Storm(NamedTuple):
    items: int  # of each kind
    rounds: int
    swallows: bool  # whether links swallow what is sent as well, instead of being cut
    calm_seconds: tuple[float, float]
    seconds_max: float  # that a call takes
    seed: int


SHORT = Storm(items=300, rounds=1, swallows=False, calm_seconds=(0.1, 0.5), seconds_max=2.5, seed=21)
LONG = Storm(items=10_000, rounds=4, swallows=True, calm_seconds=(0.2, 1.0), seconds_max=0.6, seed=22)


async def watch(sky: Weather, jobs: Mapping[str, Job], seen: Seen) -> None:
    """What was committed once is seen again and again; the database may be away meanwhile. The server is asked too, for
    it goes to Redis and the database only when it is."""
    while True:
        for job in jobs.values():
            try:
                async for result in job.results():
                    seen.add(job, result)
            except DatabaseUnreachable:
                break
        await sky.told("/readyz?verbose")
        await asyncio.sleep(0.5)


async def rage(sky: Weather, storm: Storm) -> None:
    """Servers and processes die one after the other, and beside that links are cut, whoever is dead just then."""
    for _ in range(storm.rounds):
        holes = sky.holes() if storm.swallows else {}
        await asyncio.gather(blow(sky, storm, sky.deaths()), blow(sky, storm, {**sky.cuts(), **holes}))


async def blow(sky: Weather, storm: Storm, faults: Mapping[str, Fault]) -> None:
    order = list(faults)
    sky.rng.shuffle(order)
    for what in order:
        await asyncio.sleep(sky.rng.uniform(*storm.calm_seconds))
        await sky.blow(what, faults[what])


@pytest.mark.parametrize("storm", [SHORT, pytest.param(LONG, marks=pytest.mark.storm)], ids=["short", "long"])
async def test_every_part_dies_and_every_link_is_cut_and_each_item_ends_once(tmp_path: Path, storm: Storm) -> None:
    with servers() as found:
        async with weather(found, tmp_path, storm.seed) as sky:
            for kind in KINDS:
                await sky.stage.manners(kind, seconds_min=0.05, seconds_max=storm.seconds_max, refuses=0.02)
            jobs = {kind: await sky.stage.submit(kind, range(storm.items)) for kind in KINDS}
            seen = Seen()
            watching = asyncio.create_task(watch(sky, jobs, seen))
            await until(lambda: named(sky, NAMED_MIN), "messages bring items")
            await rage(sky, storm)
            await all_ended(jobs)
            watching.cancel()
            await check(sky, storm, jobs, seen)
            await check_calm(sky)


async def all_ended(jobs: Mapping[str, Job]) -> None:
    """However long it takes, as long as items end."""
    done = 0
    while not await ended(jobs):
        beyond = partial(items_done, jobs, done)
        done = await until(beyond, f"more than {done} items have ended", STILL_SECONDS_MAX)


async def items_done(jobs: Mapping[str, Job], before: int) -> int | None:
    """How many items have ended, if it is more than before; while the database is away nobody can say."""
    try:
        done = sum([(await job.show()).done for job in jobs.values()])
    except DatabaseUnreachable:
        return None
    return done if done > before or await ended(jobs) else None


async def named(sky: Weather, items: int) -> bool:
    return sky.named() >= items


async def check(sky: Weather, storm: Storm, jobs: Mapping[str, Job], seen: Seen) -> None:
    results = {kind: await sky.stage.results(job) for kind, job in jobs.items()}
    for kind, job in jobs.items():
        check_all_there(results[kind], storm.items)
        for result in results[kind].values():
            seen.add(job, result)
    assert await Site(sky.stage.url, Leaping()).rows(SUCCESSES) == [(1, len(KINDS) * storm.items)]
    assert seen.changed == [], "no committed result changes"
    assert paid_twice(await sky.stage.bill("askable")) == []
    await check_bill(sky, results["unaskable"])
    await check_server(sky, jobs["askable"], storm.items)
    check_blown(sky, storm)


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
    """The server, whose Redis died and came back, says what the database says, and has Redis again."""

    async def says_so() -> bool:
        ready, shown = await sky.told("/readyz?verbose"), await sky.told(f"/api/jobs/{job.id}")
        there = {"database": "ok", "redis": "ok"}
        return bool(ready and ready["checks"] == there and shown and shown["succeeded"] == items)

    await until(says_so, "the server has found everything again")


def check_blown(sky: Weather, storm: Storm) -> None:
    """The storm was one: every link was cut while somebody used it, and messages were lost and told of again."""
    assert {name for name, connections in sky.hit.items() if connections} == sky.links.keys()
    assert {gust.what for gust in sky.gusts} >= {*sky.deaths(), *sky.cuts(), *(sky.holes() if storm.swallows else ())}
    assert sky.published() >= len(KINDS) * storm.items / HINT_ITEMS_MAX
    assert sky.saw_wipes()
    assert set(sky.ends) <= {DatabaseUnreachable.exit_code}, "nobody ended for another reason than a database away"


async def check_calm(sky: Weather) -> None:
    """When all is well again, messages bring items as before."""
    before = sky.named()

    async def brought_by_messages() -> bool:
        job = await sky.stage.submit("askable", range(HINT_ITEMS_MAX))
        await job.wait(timeout_seconds=60)
        return sky.named() > before

    await until(brought_by_messages, "messages bring items again")
