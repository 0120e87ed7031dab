"""Workers whose clocks are hours ahead, hours behind, or set while they run: the clock of PostgreSQL decides."""

import asyncio
import itertools
import time
from datetime import datetime
from pathlib import Path

import pytest

from backstay.core.ids import item_id
from tests.databases import Site, Ticker
from tests.servers.faketime import WrongClock
from tests.stories.stage import Stage, paid_twice, until
from tests.stories.test_kills import check_all_there, in_flight_at_a_kill

pytestmark = pytest.mark.slow
ITEMS = 40
RESCUE_SECONDS = 20.0  # a lease of 5 s, and a sweep every 5 s
DEADLINE_SECONDS = 4.0
HOUR_MS = 3_600_000


async def set_again_and_again(clock: WrongClock) -> None:
    for hours in itertools.cycle((5, -5, 0, 30, -2)):
        clock.set(hours)
        await asyncio.sleep(0.4)


async def test_wrong_clocks_of_workers_change_nothing(postgres_url: str, tmp_path: Path) -> None:
    site = Site(postgres_url, Ticker())
    async with Stage(postgres_url, tmp_path, seed=21) as stage:
        clocks = [WrongClock(tmp_path / f"{hours}.clock", hours) for hours in (3, -3, 0)]
        jumping = asyncio.create_task(set_again_and_again(clocks[-1]))
        await stage.store.providers.hold("breakable", "its items end by their deadline", 3_600)
        workers = [stage.worker(8, **clock.environment) for clock in clocks] + [stage.worker(8)]
        names = [(await stage.working(worker)).id for worker in workers]
        for kind in ("askable", "unaskable"):
            await stage.manners(kind, seconds_min=0.2, seconds_max=0.6, refuses=0.1, throttles=0.05)
        late = await stage.submit("breakable", [1], deadline_seconds=DEADLINE_SECONDS)
        jobs = [await stage.submit(kind, range(ITEMS)) for kind in ("task", "rated")]
        await stage.backstay.schedules.add("echo", "* * * * *", name="minutely", missed="all")
        for victim, name in zip(workers[:3], names[:3], strict=True):
            jobs += [await stage.submit(kind, range(ITEMS)) for kind in ("askable", "unaskable")]
            await calls_of(stage, victim.pid)
            stage.kill9(victim)
            await rescued(site, name)
            workers.append(stage.worker(8, **clocks[0].environment))
        for job in jobs:
            assert (await job.wait(timeout_seconds=60)).done == ITEMS
        assert (await late.wait(timeout_seconds=60)).failed == 1
        jumping.cancel()
        for job in jobs:
            check_all_there(await stage.results(job), ITEMS)
            await check_attempts(stage, job.id)
        assert paid_twice(await stage.bill("askable")) == []
        assert paid_twice(await stage.bill("task")) == []
        for charges in paid_twice(await stage.bill("unaskable")):
            assert all(in_flight_at_a_kill(stage, charge) for charge in charges[:-1]), "a lease was stolen"
        await check_rate(stage)
        await check_deadline(site, late.id)
        await check_firings(stage)
        apart = [hours_apart(line["timestamp"]) for line in stage.spoken("worker")]
        assert min(apart) < -2, "no clock was behind"
        assert max(apart) > 2, "no clock was ahead"


def hours_apart(timestamp: str) -> float:
    """How far a time in a log is ahead of the right one."""
    return (datetime.fromisoformat(timestamp).timestamp() - time.time()) / 3_600


async def calls_of(stage: Stage, pid: int) -> None:
    """Waits until a process has calls under way."""

    async def calling() -> bool:
        return any(charge.worker == pid and charge.ended_at is None for charge in await stage.bill())

    await until(calling, "the worker calls the provider")


async def rescued(site: Site, worker: str) -> None:
    """Waits until no item is left in the hands of a worker that was killed."""
    held = f"SELECT count(*) FROM items WHERE state = 'submitting' AND leased_by LIKE '{worker}:%'"

    async def is_rescued() -> bool:
        return bool(await site.one(held) == 0)

    await until(is_rescued, "its items are taken over", RESCUE_SECONDS)


async def check_attempts(stage: Stage, job_id: int) -> None:
    """Retries begin neither before the attempt that failed has ended nor hours later."""
    for position in range(ITEMS):
        attempts = await stage.store.item_views.attempts(item_id(job_id, position))
        for first, then in itertools.pairwise(attempts):
            assert 0 <= then.started_at - first.ended_at < HOUR_MS / 60, (first, then)


async def check_rate(stage: Stage) -> None:
    times = sorted(charge.at for charge in await stage.bill("rated"))
    assert max(sum(at <= each < at + 1 for each in times) for at in times) <= 5 + 10, "five a second, and a late burst"
    assert times[-1] - times[0] > (ITEMS - 15) / 5


async def check_deadline(site: Site, job_id: int) -> None:
    asked = f"SELECT error_code, finished_at - created_at FROM items WHERE job_id = {job_id}"
    [(code, took_ms)] = await site.rows(asked)
    assert code == "GW_TIMEOUT"
    assert 0 <= took_ms - DEADLINE_SECONDS * 1000 < RESCUE_SECONDS * 1000


async def check_firings(stage: Stage) -> None:
    """The schedule has fired at the minutes of the right clock that have passed, each once."""
    schedule = await stage.backstay.schedules.show("minutely")
    jobs = [job for job in await stage.store.job_views.page("local") if job.handler == "echo"]
    minutes = (int(time.time() * 1000) // 60_000) - schedule.created_at // 60_000
    assert minutes - 1 <= len(jobs) <= minutes
