"""What schedules cost a worker that waits: processor time as a share of a core, with the look at them and without."""

from __future__ import annotations

import asyncio
import time
from unittest.mock import patch

from backstay import Backstay, wiring
from backstay.core.models import NewSchedule
from backstay.engine.scheduler import Scheduler

SECONDS = 30.0
WARM_UP_SECONDS = 3.0

_at: dict[str, str] = {}


def prepare(url: str) -> None:
    _at["url"] = url
    asyncio.run(wiring.migrate(url))


def _app() -> Backstay:
    made = Backstay(_at["url"])

    @made.handler()
    async def work(item: object) -> None:
        """Nothing: none of the schedules fires while it is measured."""

    return made


async def _idle_percent() -> float:
    app = _app()
    async with app, app.working():
        await asyncio.sleep(WARM_UP_SECONDS)
        before, started = time.process_time(), time.perf_counter()
        await asyncio.sleep(SECONDS)
        return (time.process_time() - before) / (time.perf_counter() - started) * 100


async def _add(schedules: int) -> None:
    app = _app()
    async with app:
        store = (await app.open()).store
        for number in range(schedules):
            await store.schedules.add(NewSchedule(f"yearly-{number}", "work", "0 0 1 1 *"), app.settings.owner)


async def _never(_: Scheduler) -> None:
    """A worker that does not know of schedules."""


def idle(schedules: int) -> dict[str, float]:
    """The difference is what the schedules cost."""
    with patch.object(Scheduler, "run_once", _never):
        without = asyncio.run(_idle_percent())
    asyncio.run(_add(schedules))
    together = asyncio.run(_idle_percent())
    return {"core_percent": together - without, "with_percent": together, "without_percent": without}
