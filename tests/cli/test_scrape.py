"""What the database says is looked at again and again, whatever a look comes upon."""

import asyncio
import sqlite3
from collections.abc import Callable

import pytest

from backstay import Backstay, wiring
from backstay.cli import running
from backstay.clock import Clock, Tasks
from backstay.core.events import Event, Trouble
from backstay.observe.metrics import Metrics


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - a gauge tells nobody
            await asyncio.sleep(0.01)


async def test_a_look_that_breaks_is_told_and_the_next_one_comes(
    sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "REFRESH_SECONDS", 0.01)
    store, app, metrics, tasks = await wiring.open_store(sqlite_file_url), Backstay(sqlite_file_url), Metrics(), Tasks()
    told: list[Event] = []
    app.bus.subscribe(told.append)
    connection = sqlite3.connect(sqlite_file_url.removeprefix("sqlite:///"), timeout=30)
    with connection:
        connection.execute("INSERT INTO providers (name, state, since_at, calls) VALUES ('acme', 'open', 1, 'no list')")
    tasks.spawn(running.refresh(store, Clock(), metrics, app))
    await until(lambda: any(isinstance(event, Trouble) and "JSONDecodeError" in event.message for event in told))
    with connection:
        connection.execute("DELETE FROM providers")
    connection.close()
    shown = metrics.registry.get_sample_value
    await until(lambda: shown("backstay_alarm", {"alarm": "outbox_lag"}) == 0)
    await tasks.stop()
    await store.close()
