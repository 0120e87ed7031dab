"""An idle worker hears of new items from other processes: at once by NOTIFY, and soon enough without it."""

from pathlib import Path

import asyncpg
import pytest

from backstay.store.databases.database import is_postgres
from tests.stories.patient_worker import NEVER_SECONDS
from tests.stories.stage import Stage, until

pytestmark = pytest.mark.slow

SOON_SECONDS = 10.0


async def test_an_idle_worker_is_woken_by_notify_long_before_it_would_look(postgres_url: str, tmp_path: Path) -> None:
    assert SOON_SECONDS < NEVER_SECONDS / 10
    async with Stage(postgres_url, tmp_path) as stage:
        await stage.working(stage.patient_worker())
        await until(lambda: listening(stage, 1), "the worker listens")
        for number in range(3):
            job = await stage.submit("echo", [number])
            view = await job.wait(timeout_seconds=SOON_SECONDS)
            assert view.succeeded == 1


async def test_where_no_hint_comes_through_looking_is_enough(database_url: str, tmp_path: Path) -> None:
    async with Stage(database_url, tmp_path) as stage:
        await stage.working(stage.worker(BACKSTAY_DATABASE_URL=deaf(database_url)))
        for number in range(2):
            job = await stage.submit("echo", [number])
            view = await job.wait(timeout_seconds=SOON_SECONDS)
            assert view.succeeded == 1
        assert not await listening(stage, 1)


def deaf(url: str) -> str:
    return f"{url}?listen=off" if is_postgres(url) else url


async def listening(stage: Stage, workers: int) -> bool:
    """Whether so many connections wait for hints; on SQLite there are none."""
    if not is_postgres(stage.url):
        return False
    connection = await asyncpg.connect(stage.url)
    try:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        return int(await connection.fetchval(asked)) >= workers
    finally:
        await connection.close()
