"""Starts what needs the database, and waits until PostgreSQL can be reached: machines come up in any order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from backstay.app import Backstay
from backstay.clock import Clock
from backstay.core.errors import DatabaseRefused, DatabaseUnreachable
from backstay.core.events import Trouble
from backstay.store.urls import is_postgres, shown

T = TypeVar("T")

AGAIN_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 1.5  # then it says what it waits for, though nothing has failed yet


@asynccontextmanager
async def started(app: Backstay, make: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
    """`async with started(app, make)` is `async with make()` that waits for PostgreSQL at its start."""
    async with AsyncExitStack() as stack:
        yield await enter(stack, app, make)


async def enter(stack: AsyncExitStack, app: Backstay, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
    """Enters what needs the database, again and again for at most `start_wait_seconds`."""
    if not is_postgres(app.url) or app.settings.start_wait_seconds == 0:
        return await stack.enter_async_context(make())
    clock, seconds = Clock(), app.settings.start_wait_seconds
    give_up_at = clock.monotonic() + seconds
    said: set[str] = set()

    def say(why: str) -> None:
        if why not in said:
            said.add(why)
            app.bus.emit(Trouble("start", f"waiting up to {seconds:g} s for {shown(app.url)}: {why}"))

    while True:
        silent = asyncio.get_running_loop().call_later(SILENT_SECONDS, say, "it has not answered yet")
        try:
            return await stack.enter_async_context(make())
        except DatabaseRefused:
            raise
        except DatabaseUnreachable as error:
            if clock.monotonic() >= give_up_at:
                raise DatabaseUnreachable(f"{error.message} (after {seconds:g} s)", hint=_HINT) from error
            say(error.message)
        finally:
            silent.cancel()
        await clock.sleep(AGAIN_SECONDS)


_HINT: Final = "check the database URL and the server; to wait longer, set BACKSTAY_START_WAIT_SECONDS"
