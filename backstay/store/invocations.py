"""The work of ticks, one row each, because a process that lives for minutes cannot be scraped for metrics."""

from typing import Final, NamedTuple

from backstay.store.database import Database
from backstay.store.queries import Ask, Script, one
from backstay.store.rows import record

KEPT_MS: Final = 14 * 86_400_000
GRACE_MS: Final = 60_000  # how long a tick may overrun before it counts as killed


@record
class Lately(NamedTuple):
    """Recent ticks, their chains, the chains that reached the depth limit with work left, and failures."""

    ticks: int
    chains: int
    chains_full: int
    failed: int


class Invocations:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def begin(self, invocation: str, depth: int, seconds: float) -> None:
        await self._db.write(lambda: _begin(invocation, depth, round(seconds * 1000) + GRACE_MS))

    async def end(self, invocation: str, items: int, was_full: bool) -> None:
        values = {"id": invocation, "items": items, "was_full": int(was_full)}
        await self._db.write(one("end_invocation", values))

    async def fail(self, invocation: str, error: str) -> None:
        """Marks a tick as failed: its follow-up could not be requested, even if the tick itself had ended well."""
        await self._db.write(one("fail_invocation", {"id": invocation, "error": error}))

    async def lately(self, age_ms: int) -> Lately:
        [found] = await self._db.read(one("invocations_lately", {"age_ms": age_ms}))
        return found  # type: ignore[no-any-return]


def _begin(invocation: str, depth: int, span_ms: int) -> Script[None]:
    yield Ask("begin_invocation", {"id": invocation, "depth": depth, "span_ms": span_ms})
    yield Ask("forget_invocations", {"age_ms": KEPT_MS})
