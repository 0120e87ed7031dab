"""Workers that stand still: one that slept through its lease writes nothing, a blocked event loop loses no lease."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from backstay import Job
from backstay.core.ids import item_id
from backstay.store.databases.database import is_postgres
from backstay.store.item_views import AttemptView
from backstay.wiring import sqlite_path
from tests.databases import fresh_database
from tests.stories.app import LIMITS
from tests.stories.stage import Stage, by_ref, paid_twice, terminate, until

pytestmark = pytest.mark.slow

database_url = fresh_database("postgres", later="sqlite")

ITEMS = 10


def holds_the_lock(url: str) -> bool:
    """Whether somebody is in the middle of a write to an SQLite file."""
    if is_postgres(url):
        return False
    connection = sqlite3.connect(sqlite_path(url), timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False


async def put_to_sleep(url: str, worker: subprocess.Popen[str]) -> None:
    """Stops a process, but not inside a write: that would be a story about a locked file."""

    async def asleep() -> bool:
        worker.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
        if holds_the_lock(url):
            worker.send_signal(signal.SIGCONT)
            return False
        return True

    await until(asleep, "the worker sleeps without a lock")


async def attempts_of(stage: Stage, job: Job) -> list[list[AttemptView]]:
    return [await stage.store.item_views.attempts(item_id(job.id, position)) for position in range(ITEMS)]


@pytest.mark.parametrize("kind", ["askable", "unaskable"])
async def test_a_worker_that_slept_through_its_lease_writes_nothing(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    async with Stage(database_url, tmp_path) as stage:
        await stage.manners(kind, holding=True)
        job = await stage.submit(kind, range(ITEMS))
        zombie = stage.worker(ITEMS)
        await stage.in_flight(kind, ITEMS)
        await put_to_sleep(database_url, zombie)
        await stage.manners(kind, holding=False)
        successor = stage.worker(ITEMS)
        assert (await job.wait(timeout_seconds=60)).succeeded == ITEMS
        results, attempts = await stage.results(job), await attempts_of(stage, job)

        zombie.send_signal(signal.SIGCONT)
        woke_ms = time.time() * 1000

        async def beats_again() -> bool:
            return (await stage.working(zombie)).seen_at > woke_ms

        await until(beats_again, "the zombie is awake")
        terminate(zombie)
        assert await stage.ended(zombie) == 0, "it has said all that it had to say"
        assert await stage.results(job) == results
        assert await attempts_of(stage, job) == attempts
        paid = by_ref(await stage.bill(kind)).values()
        if kind == "askable":
            assert paid_twice(await stage.bill(kind)) == []
        else:
            assert {tuple(charge.worker for charge in charges) for charges in paid} == {(zombie.pid, successor.pid)}
            assert {result.repeats for result in results.values()} == {1}


async def test_a_handler_that_blocks_the_event_loop_beyond_the_lease_keeps_its_item(
    database_url: str, tmp_path: Path
) -> None:
    async with Stage(database_url, tmp_path) as stage:
        job = await stage.submit("blocking", [LIMITS.lease_seconds + 4])
        blocked = stage.worker(1)
        holder = await stage.working(blocked)
        item = item_id(job.id, 0)

        async def held() -> bool:
            return ((await stage.store.item_views.get(item, "local")).leased_by or "").startswith(holder.id)

        await until(held, "the blocking item is claimed")
        thief = stage.worker(1)
        other = await stage.submit("echo", ["the thief is at work"])
        await other.wait(timeout_seconds=30)
        assert await held(), "the handler still blocks, so the thief did the other item"
        assert thief.poll() is None

        async def over_or_expired() -> str | None:
            seen = await stage.store.item_views.get(item, "local")
            expired = seen.lease_expires_at is not None and seen.lease_expires_at <= seen.now
            return "expired" if expired else "over" if seen.finished_at is not None else None

        assert await until(over_or_expired, "the blocking item has ended") == "over"
        (result,) = (await stage.results(job)).values()
        assert (result.value, result.attempts, result.repeats) == (blocked.pid, 1, 0)
        assert await stage.acts(item) == [], "nobody rescued it meanwhile"
