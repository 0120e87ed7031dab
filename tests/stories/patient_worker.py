"""A worker that polls and sweeps every ten minutes: whatever it does sooner, it was told to by a hint."""

import asyncio
import signal

from backstay import wiring
from backstay.engine import worker
from tests.stories.app import backstay

NEVER_SECONDS = 600.0


async def work() -> None:
    wiring.IDLE_SECONDS_POSTGRES = worker.SWEEP_SECONDS = NEVER_SECONDS
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with backstay, backstay.working():
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(work())
