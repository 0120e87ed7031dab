"""Fixtures for pytest: `backstay` runs an application on an empty database, `practice` is a provider.

pytest loads this module in every project that has Backstay installed, so it loads the rest at the first use only.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.practice import Practice
    from backstay.practice.bill import Bill, Counts
    from backstay.sync import SyncBackstay


@dataclass(frozen=True)
class RunningPractice:
    """A practice provider that serves on this machine; `base_url` is for clients of OpenAI."""

    base_url: str
    _provider: "Practice"

    @property
    def bill(self) -> "Bill":
        """What it has charged so far."""
        return self._provider.bill

    @property
    def counts(self) -> "Counts":
        """What it has got and answered: `counts.calls`, `counts.statuses`, `counts.limited`."""
        return self._provider.counts

    def change(self, **faults: object) -> None:
        """Other faults from now on: `practice.change(fail=0.5)`."""
        self._provider.change(**faults)


@pytest.fixture
def backstay(tmp_path: Path) -> "Iterator[Callable[[Backstay], SyncBackstay]]":
    """`backstay(tasks.app)` is your application on an empty SQLite file, with a worker that does what is submitted.
    After the test it has its own database again."""
    with ExitStack() as stack:
        count = 0

        def start(app: "Backstay") -> "SyncBackstay":
            nonlocal count
            count += 1
            return stack.enter_context(_run_worker(app, tmp_path / f"backstay-{count}.db"))

        yield start


@contextmanager
def _run_worker(app: "Backstay", file: Path) -> "Iterator[SyncBackstay]":
    from backstay.sync import SyncBackstay

    settings, client = app.settings, app._client
    app.settings, app._client = settings.model_copy(update={"database_url": f"sqlite:///{file}"}), None
    try:
        with SyncBackstay(app) as running:
            worker = app.working(grace_seconds=0)  # what still runs when the test ends is of no interest
            running.run(worker.__aenter__())
            try:
                yield running
            finally:
                running.run(worker.__aexit__(None, None, None))
    finally:
        app.settings, app._client = settings, client


@pytest.fixture
def practice() -> Iterator[RunningPractice]:
    """The practice provider on a free port: `practice.base_url`."""
    from backstay.practice import Practice

    provider = Practice()
    serving, loop = provider.serving(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="backstay-practice", daemon=True)
    thread.start()
    try:
        base_url = asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result()
        try:
            yield RunningPractice(base_url, provider)
        finally:
            asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
