"""What workers, ticks and services do besides for all: they look at the alarms and after dead letters."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backstay.artifacts import Artifacts
from backstay.client import Client
from backstay.clock import Tasks
from backstay.core.events import Trouble
from backstay.observe.bus import Bus
from backstay.run.alarms import AlarmWatch
from backstay.run.letters import Letters
from backstay.settings import Settings

LOOK_SECONDS: Final = 60.0


@asynccontextmanager
async def upkeep(client: Client, artifacts: Artifacts | None, settings: Settings, bus: Bus) -> AsyncIterator[None]:
    """Every minute while the block runs. At alarms also before it: a tick may be over within the minute."""
    alarms, letters = AlarmWatch(client.store, settings, bus), Letters(client, artifacts, settings, bus)
    tasks = Tasks()

    async def look(part: AlarmWatch | Letters, name: str) -> None:
        try:
            await part.run_once()
        except Exception as error:
            bus.emit(Trouble(name, f"{type(error).__name__}: {error}"))

    async def look_on() -> None:
        while True:
            await client.clock.sleep(LOOK_SECONDS)
            await look(alarms, "alarms")
            await look(letters, "dead letters")

    await look(alarms, "alarms")
    tasks.spawn(look_on())
    try:
        yield
    finally:
        await tasks.stop()
