"""Workers: which are alive, and the end of leases whose workers are dead."""

from collections.abc import Callable
from typing import Final

from backstay.store.database import Database, writes
from backstay.store.queries import Ask, Script

KEPT_MS: Final = 7 * 86_400_000


class Workers:
    def __init__(self, database: Database) -> None:
        self._db = database

    @writes
    def greet(self, worker: str, host: str, pid: int, place: str, handlers: str) -> Script[None]:
        values = {"id": worker, "host": host, "pid": pid, "place": place, "handlers": handlers}
        yield Ask("greet_worker", values)
        yield Ask("forget_workers", {"age_ms": KEPT_MS})

    async def bury(self, worker: str, place: str, lives: Callable[[int], bool]) -> int:
        """Ends the leases of workers on this machine whose processes are gone; returns how many."""
        return await self._bury(worker, place, lives) if place else 0

    @writes
    def _bury(self, worker: str, place: str, lives: Callable[[int], bool]) -> Script[int]:
        neighbours = yield Ask("neighbours", {"place": place, "id": worker})
        dead = [row["id"] for row in neighbours if not lives(row["pid"])]
        for name in dead:
            yield Ask("bury", {"claims": f"{name}:%"})
            yield Ask("leave_worker", {"id": name})
        return len(dead)

    @writes
    def leave(self, worker: str) -> Script[None]:
        yield Ask("leave_worker", {"id": worker})
