"""The database dies, the provider goes down: workers wait it out and go on by themselves."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from backstay import Job, wiring
from backstay.core.breaker import BreakerState
from backstay.core.errors import DatabaseUnreachable
from backstay.core.ids import item_id
from backstay.store.views import JobView
from tests.servers.postgres import PrivatePostgres
from tests.stories.app import BRISK
from tests.stories.stage import Stage, paid_twice, until

ITEMS = 150


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
                assert all(result.value["payload"] == position for position, result in results.items())
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
        await stage.manners("breakable", down=True)
        workers = [stage.worker(10) for _ in range(2)]
        for worker in workers:
            await stage.working(worker)
        job = await stage.submit("breakable", range(60))

        async def openings() -> list[int]:
            events = await stage.views.events("provider:breakable")
            return [event.at for event in events if event.detail and f"-> {BreakerState.OPEN}" in event.detail]

        async def opened_thrice() -> bool:
            return len(await openings()) >= 3

        await until(opened_thrice, "the breaker has opened, and two probes have failed")
        await stage.manners("breakable", down=False)
        assert (await job.wait(timeout_seconds=60)).succeeded == 60, "nothing failed for good"

        refused = await stage.turned_away("breakable")
        opened = await openings()
        assert_held(refused, opened)
        results = await stage.results(job)
        spent = sum(result.attempts for result in results.values())
        assert spent <= 60 + len(refused), "only a call that was made can cost an attempt"
        assert {pid for pid, at in refused if at * 1000 < opened[0] + 700} == {worker.pid for worker in workers}
        items = [await stage.views.item(item_id(job.id, position), "local") for position in range(60)]
        assert {item.error_code for item in items} == {None}


def assert_held(refused: list[tuple[int, float]], opened: list[int]) -> None:
    """While the breaker is open nobody calls, whichever worker saw it open; half a second is for the news to spread."""
    for at in opened:
        window = range(at + 700, at + BRISK.open_ms - 50)
        assert [call for call in refused if int(call[1] * 1000) in window] == []
