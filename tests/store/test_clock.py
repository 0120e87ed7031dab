"""Whose time it is: PostgreSQL's for every process, this machine's with SQLite."""

import time

import pytest

from backstay import Backstay

HOUR_MS = 3_600_000
APART_MS = 60_000


@pytest.mark.parametrize("hours", [3, -3])
async def test_a_process_whose_clock_is_wrong_has_the_time_of_postgres(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + hours * HOUR_MS * 1_000_000)
    async with Backstay(postgres_url) as app, app.working() as worker:
        for clock in ((await app.open()).clock, worker.engine.parts.clock):
            assert abs(clock.now_ms() - right() // 1_000_000) < APART_MS
        monkeypatch.setattr(time, "time_ns", lambda: right() - hours * HOUR_MS * 1_000_000)
        assert abs(worker.engine.parts.clock.now_ms() - right() // 1_000_000) < APART_MS, "it was set meanwhile"


async def test_with_sqlite_the_clock_of_the_machine_counts(
    sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time_ns
    async with Backstay(sqlite_file_url) as app:
        clock = (await app.open()).clock
        monkeypatch.setattr(time, "time_ns", lambda: right() + HOUR_MS * 1_000_000)
        assert abs(clock.now_ms() - right() // 1_000_000 - HOUR_MS) < APART_MS
