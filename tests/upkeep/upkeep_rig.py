"""The words of the tests of dead letters: fail, archive and restore in a line each."""

from typing import Any

from backstay.artifacts import Artifacts
from backstay.core.ids import item_id
from backstay.store.archives import Archive
from backstay.store.dead_letters import LetterFilter
from backstay.store.store import Store
from backstay.upkeep.archivist import Archivist
from backstay.upkeep.loop import Retention, RetentionBounds
from tests.store.store_rig import BROKEN, WRONG, Scene, decided

DAY_MS = 86_400_000
WIDE = RetentionBounds(7 * DAY_MS, 10_000, 1 << 30)
MINUTE = 61.0  # after its end a job is left alone for a moment


class Desk:
    def __init__(self, scene: Scene, artifacts: Artifacts) -> None:
        self.scene = scene
        self.site = scene.site
        self.store = scene.store
        self.artifacts = artifacts

    async def fail(self, items: int = 1, owner: str = "ann", **options: Any) -> int:
        """A job that ended a while ago, all of whose items failed at their second try."""
        job = await self.scene.submit(items, owner=owner, **options)
        for outcome in (BROKEN, WRONG):
            claimed = await self.scene.claim(items)
            await self.store.items.settle([decided(item, outcome, self.site.clock.ms) for item in claimed])
            await self.site.advance(MINUTE * 10)
        return job

    def retention(self, bounds: RetentionBounds = WIDE, store: Store | None = None) -> Retention:
        return Retention((store or self.store).archives, self.artifacts, self.site.clock, bounds)

    @property
    def archivist(self) -> Archivist:
        return Archivist(self.store.archives, self.artifacts, self.site.clock)

    async def archive(self, job: int | None = None, owner: str = "ann") -> int:
        return await self.retention().archive(owner, LetterFilter(job))

    async def restore(self, number: int = 1, owner: str = "ann", keep_ms: int = DAY_MS) -> int:
        return await self.archivist.restore(await self.store.archives.archive(number, owner), keep_ms)

    async def archives(self, owner: str = "ann") -> list[Archive]:
        return await self.store.archives.page(owner, None, 100)

    async def blobs(self) -> list[str]:
        return sorted([name async for name in self.artifacts.names("archives")])

    async def here(self, owner: str = "ann") -> list[int]:
        """The dead letters that a list shows, the newest job's last first."""
        return [row.id for row in (await self.store.dead_letters.page(owner, LetterFilter(), None, 1_000))[0]]

    async def rows(self, table: str, order: str) -> list[tuple[Any, ...]]:
        return await self.site.rows(f"SELECT * FROM {table} ORDER BY {order}")

    async def bodies(self) -> list[tuple[Any, ...]]:
        """What must come back byte for byte."""
        return await self.rows("requests", "item_id") + await self.rows("attempts", "item_id, fence")


def ids(job: int, *positions: int) -> list[int]:
    return [item_id(job, position) for position in positions]
