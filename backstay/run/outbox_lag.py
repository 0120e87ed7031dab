"""Tells how far behind the relays of an outbox are, as long as one of them runs here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backstay.client import Client
from backstay.clock import Tasks
from backstay.core.events import OutboxLag, Trouble

LAG_SECONDS: Final = 5.0


async def tell_lag(client: Client, sink: str) -> None:
    lag = await client.store.outbox.lag(sink)
    client.bus.emit(OutboxLag(sink, lag.rows, lag.age_ms))


@asynccontextmanager
async def lag_told(client: Client, sink: str) -> AsyncIterator[None]:
    """While the block runs, every few seconds; any number of processes may do it."""
    tasks = Tasks()

    async def tell_on() -> None:
        while True:
            try:
                await tell_lag(client, sink)
            except Exception as error:
                client.bus.emit(Trouble("outbox", f"{type(error).__name__}: {error}"))
            await client.clock.sleep(LAG_SECONDS)

    tasks.spawn(tell_on(), name=f"lag of {sink}")
    try:
        yield
    finally:
        await tasks.stop()
