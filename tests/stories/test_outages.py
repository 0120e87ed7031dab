"""The database dies, the provider goes down: workers wait it out and go on by themselves."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from backstay import Job, wiring
from backstay.core.breaker import BreakerState, act_of
from backstay.core.errors import DatabaseUnreachable
from backstay.core.ids import item_id
from backstay.store.job_views import JobView
from tests.servers.postgres import PrivatePostgres
from tests.stories.app import BRISK
from tests.stories.stage import Stage, paid_twice, until

pytestmark = pytest.mark.slow

ITEMS = 150
MANY = 200
CONCURRENCY = 10


async def ended(jobs: Mapping[str, Job]) -> list[JobView] | None:
    """The jobs if all of them have ended; while the database is away nobody can say."""
    try:
        views = [await job.show() for job in jobs.values()]
    except DatabaseUnreachable:
        return None
    return views if all(view.ended for view in views) else None


async def test_postgres_killed_under_running_workers_loses_nothing_and_they_go_on_by_themselves(
    tmp_path: Path,
) -> None:
    with PrivatePostgres() as server:
        url = server.create_database()
        await wiring.migrate(url)
        async with Stage(url, tmp_path) as stage:
            for kind in ("askable", "task"):
                await stage.manners(kind, seconds_min=0.2, seconds_max=0.5)
            jobs = {kind: await stage.submit(kind, range(ITEMS)) for kind in ("askable", "task")}
            workers = [stage.worker(20) for _ in range(2)]
            for worker in workers:
                await stage.working(worker)
            await until(lambda: some_done(jobs["askable"]), "some items are done")
            for _ in range(2):
                await asyncio.to_thread(server.kill9)
                assert await ended(jobs) is None
                await asyncio.to_thread(server.restart)
                await until(lambda: some_done(jobs["askable"]), "the database is back")
            views = await until(lambda: ended(jobs), "all jobs have ended", seconds=90)
            assert [view.succeeded for view in views] == [ITEMS, ITEMS]
            for job in jobs.values():
                results = await stage.results(job)
                assert {at: (result.value or {}).get("payload") for at, result in results.items()} == {
                    at: at for at in results
                }
            assert paid_twice(await stage.bill()) == []
            assert [worker.poll() for worker in workers] == [None, None], "the same workers as before"
            assert stage.plain_lines("worker") == [], "what the driver logs is no traceback in our log"


async def some_done(job: Job) -> bool:
    try:
        return (await job.show()).done >= 5
    except DatabaseUnreachable:
        return False


async def test_a_provider_that_is_down_costs_next_to_no_attempts_and_work_resumes_by_itself(
    database_url: str, tmp_path: Path
) -> None:
    async with Stage(database_url, tmp_path) as stage:
        await stage.manners("breakable", down=True, gathers=2 * CONCURRENCY)  # nobody is refused before both call
        workers = [stage.worker(CONCURRENCY) for _ in range(2)]
        for worker in workers:
            await stage.working(worker)
        job = await stage.submit("breakable", range(MANY))

        async def openings() -> list[int]:
            events = await stage.store.events.oldest("provider:breakable")
            return [event.at for event in events if event.act == act_of(BreakerState.OPEN)]

        async def opened_thrice() -> bool:
            return len(await openings()) >= 3

        await until(opened_thrice, "the breaker has opened, and two probes have failed")
        await stage.manners("breakable", down=False)
        assert (await job.wait(timeout_seconds=60)).succeeded == MANY, "nothing failed for good"

        refused, opened = await stage.turned_away("breakable"), await openings()
        assert {pid for pid, _ in refused} == {worker.pid for worker in workers}
        probes = [call for call in refused if call[1] * 1000 > opened[0] + BRISK.open_ms / 2]
        assert len(probes) <= BRISK.probes_max * (len(opened) - 1), "while it is open nobody calls, and then a few"
        assert len(refused) - len(probes) <= MANY / 2, "both have heard of it soon"
        spent = sum(result.attempts for result in (await stage.results(job)).values())
        assert spent - MANY == len(refused) - len(probes), "probes are free"
        items = [await stage.store.item_views.get(item_id(job.id, position), "local") for position in range(MANY)]
        assert {item.error_code for item in items} == {None}
