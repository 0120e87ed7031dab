"""Archives all dead letters of a database and is killed midway: killed_archivist.py URL PLACE before|after"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from backstay import wiring
from backstay.artifacts import artifacts_at
from backstay.clock import Clock
from backstay.store.archives import ArchiveFile, Archives, Leaving
from backstay.upkeep.loop import Retention, RetentionBounds


async def main(url: str, place: str, moment: str) -> None:
    store = await wiring.open_store(url)
    plain = Archives.add

    async def add(self: Archives, file: ArchiveFile, leaving: Sequence[Leaving]) -> int:
        if moment == "after":
            await plain(self, file, leaving)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead by now")

    Archives.add = add  # type: ignore[method-assign]
    await Retention(store.archives, artifacts_at(place), Clock(), RetentionBounds(1, 0, 0)).run_once(exact=True)


asyncio.run(main(*sys.argv[1:]))
