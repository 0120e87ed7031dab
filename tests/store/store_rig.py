"""The words of the store's tests: submit, claim and settle in a line each, on a store whose books are audited."""

import hashlib
from collections.abc import Sequence
from random import Random
from typing import Any

from backstay.core.decide import decide
from backstay.core.failures import ErrorCode, Failure, FailureKind, policy_named
from backstay.core.ids import item_id
from backstay.core.limits import Limits
from backstay.core.models import Claimed, Delivery, Failed, Outcome, Settlement, Submitted, Succeeded, Terms
from backstay.core.states import StopReason
from backstay.store.item_views import ItemDetail
from backstay.store.items import Want
from backstay.store.job_views import JobView
from backstay.store.settle import Settled
from backstay.store.store import Store
from backstay.store.submissions import Chunk, NewJob, OpenJob
from tests.databases import Site
from tests.store.audit import AuditedDatabase, Auditor

LEASE_MS = 90_000
RECONCILE_MS = 150_000
HOURS_48_MS = 172_800_000

OK = Succeeded('"done"')
TASK = Submitted("task-1", "account-1")
BROKEN = Failed(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, "502"))
WRONG = Failed(Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, "400"))


class Scene:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.auditor = Auditor(site)
        self.store = Store(AuditedDatabase(site.database(), self.auditor))

    async def submit(self, items: int = 1, last: bool = True, **options: Any) -> int:
        """A job of so many items; returns its id."""
        return (await self.open_job(items, last, **options)).id

    async def open_job(self, items: int = 1, last: bool = True, **options: Any) -> OpenJob:
        return await self.store.submissions.open(new_job(**options), chunk(0, items, last))

    async def claim(
        self, items: int = 100, worker: str = "w1", handler: str = "echo", lease_ms: int = LEASE_MS
    ) -> list[Claimed]:
        want = Want(handler, items, RECONCILE_MS)
        return (await self.store.items.claim([want], worker, lease_ms)).items

    async def settle(self, item: Claimed, outcome: Outcome, **terms: Any) -> Settled:
        return await self.store.items.settle([decided(item, outcome, self.site.clock.ms, **terms)])

    async def ended(self, outcome: Outcome = OK, items: int = 1, **options: Any) -> int:
        """A job all of whose items came to this."""
        job = await self.submit(items, **options)
        for item in await self.claim(items):
            await self.settle(item, outcome, retry="none")
        return job

    async def processing(self, items: int = 1, **options: Any) -> list[Claimed]:
        """Items that a provider took as tasks."""
        await self.submit(items, **options)
        claimed = await self.claim(items)
        for n, item in enumerate(claimed):
            await self.settle(item, Submitted(f"task-{n}", "account-1"))
        return claimed

    async def end(self, job_id: int, by: str) -> None:
        """Ends what waits of a job: by a deadline of ten minutes that it has, by its own time limit, or by a cancel."""
        if by == "cancel":
            await self.store.jobs.cancel(job_id, "ann")
            await self.store.sweeps.end_stopped(job_id, StopReason.CANCEL)
            return
        await self.site.advance(601 if by == "deadline" else HOURS_48_MS / 1000)
        await self.store.sweeps.expire()
        await self.store.sweeps.stop_overdue()
        if by == "timeout":
            await self.store.sweeps.end_stopped(job_id, StopReason.TIMEOUT)

    async def job(self, job_id: int, owner: str = "ann") -> JobView:
        return await self.store.job_views.get(job_id, owner)

    async def item(self, job_id: int, position: int = 0, owner: str = "ann") -> ItemDetail:
        return await self.store.item_views.get(item_id(job_id, position), owner)

    async def states(self, job_id: int) -> list[str]:
        rows = await self.site.rows(f"SELECT state FROM items WHERE job_id = {job_id} ORDER BY id")
        return [row[0] for row in rows]

    async def everything(self) -> list[tuple[Any, ...]]:
        """Every row that a refused verb must leave as it was."""
        return [
            row
            for table, key in (("items", "id"), ("jobs", "id"), ("attempts", "item_id, fence"), ("events", "id"))
            for row in await self.site.rows(f"SELECT * FROM {table} ORDER BY {key}")
        ]


def decided(
    item: Claimed,
    outcome: Outcome,
    now_ms: int,
    retry: str = "queue",
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
    askable: bool = False,
) -> Settlement:
    terms = Terms(policy_named(retry), delivery, Limits(), askable)
    return decide(item, outcome, terms, now_ms, Random(1))


def new_job(**options: Any) -> NewJob:
    values = {"handler": "echo", "owner": "ann", "ref_seed": "seed", "job_timeout_ms": HOURS_48_MS, **options}
    return NewJob(**values)


def chunk(position: int, items: int, last: bool, word: str = "body") -> Chunk:
    bodies = [f'"{word}-{position + n}"' for n in range(items)]
    return Chunk(position, bodies, digest_of(bodies, position, word), last)


def digest_of(bodies: Sequence[str], position: int, word: str) -> str:
    earlier = [f'"{word}-{n}"' for n in range(position)]
    return hashlib.sha256("\n".join([*earlier, *bodies]).encode()).hexdigest()
