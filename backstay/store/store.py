"""The store: one method per verb, each one script in one transaction, on whichever database."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from backstay.core.breaker import BreakerPolicy, Call
from backstay.core.models import Claimed, Settlement
from backstay.core.pace import Answers, Pace
from backstay.core.states import StopReason
from backstay.store import claim, endpoints, providers, settle, submit, sweep, waiting
from backstay.store.alarms import Alarms
from backstay.store.archives import Archives
from backstay.store.batches import Batches
from backstay.store.claim import Taken, Want
from backstay.store.database import Database
from backstay.store.dead_letters import DeadLetters
from backstay.store.duties import Duties
from backstay.store.files import Files
from backstay.store.inbox import Inbox
from backstay.store.invocations import Invocations
from backstay.store.jobs import Jobs
from backstay.store.keys import Keys
from backstay.store.listing import Listing
from backstay.store.measures import Measures
from backstay.store.outbox import Outbox
from backstay.store.overview import Overview
from backstay.store.providers import Change, Holds
from backstay.store.queries import FEW_ROWS_MAX, Ask, Script, one
from backstay.store.replays import Replays
from backstay.store.replies import Replies
from backstay.store.settle import Settled
from backstay.store.snapshots import Snapshots
from backstay.store.sources import Sources
from backstay.store.submit import Chunk, NewJob, OpenJob
from backstay.store.sweep import Swept
from backstay.store.views import Views
from backstay.store.waiting import Waiting
from backstay.store.webhooks import Webhooks

WORKER_AGE_MS = 7 * 86_400_000


class Store:
    """Every change of state there is. All methods may be called by any number of processes at once."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.views = Views(database.read)
        self.keys = Keys(database)
        self.listing = Listing(database)
        self.dead_letters = DeadLetters(database)
        self.replays, self.archives, self.duties = Replays(database), Archives(database), Duties(database)
        self.jobs = Jobs(database)
        self.files = Files(database)
        self.sources = Sources(database)
        self.batches = Batches(database)
        self.replies = Replies(database)
        self.snapshots = Snapshots(database)
        self.webhooks = Webhooks(database)
        self.inbox = Inbox(database)
        self.outbox = Outbox(database)
        self.measures, self.overview = Measures(database), Overview(database)
        self.invocations, self.alarms = Invocations(database), Alarms(database)

    async def open(self) -> None:
        await self._db.open()

    async def close(self) -> None:
        await self._db.close()

    async def notify(self) -> None:
        await self._db.notify()

    async def listen(self, wake: Callable[[], None]) -> None:
        await self._db.listen(wake)

    # submit

    async def open_job(self, job: NewJob, chunk: Chunk) -> OpenJob:
        plain = chunk.weights is None and job.budget_micros is None and job.handler_then is None
        if self._db.dialect.chained and plain and chunk.last and len(chunk.bodies) <= FEW_ROWS_MAX:
            return await self._db.single(lambda: submit.open_small_job(job, chunk))
        return await self._db.write(lambda: submit.open_job(job, chunk))

    async def reopen_job(self, job: NewJob, opened: OpenJob) -> OpenJob:
        """The job as it is now: whoever submits with the same idempotency key may have added to it."""
        return opened if job.idempotency_key is None else await self._db.read(lambda: submit.job_of_key(job))

    async def add_items(self, handler: str, job: OpenJob, chunk: Chunk) -> None:
        await self._db.write(lambda: submit.add_items(handler, job, chunk))

    # claim, extend, settle

    async def claim(
        self,
        wants: Sequence[Want],
        worker: str,
        lease_ms: int,
        met: Collection[int] = (),
        promoting: bool = True,
        room: int | None = None,
    ) -> Taken:
        if not any(want.paced for want in wants):
            return await self._db.single(lambda: claim.claim(wants, worker, lease_ms, met, promoting, room))
        # In a transaction each: two workers that go by the same paces in another order would wait for each other.
        parts: list[Taken] = []
        for index, want in enumerate(wants):
            left = None if room is None else room - sum(len(part.items) for part in parts)
            share = None if left is None else -(-left // (len(wants) - index))
            one = partial(claim.claim, [want], worker, lease_ms, met, promoting and index == 0, share)
            parts.append(await self._db.write(one))
        return claim.together(parts)

    async def claim_named(
        self, named: Sequence[tuple[Want, Collection[int]]], worker: str, lease_ms: int, met: Collection[int] = ()
    ) -> Taken:
        """Those of the named items, by handler, that can be claimed now; the rest is done, held, or in other hands."""
        return await self._db.single(lambda: claim.claim_named(named, worker, lease_ms, met))

    async def poll(
        self,
        handler: str,
        account: str | None,
        items: int,
        worker: str,
        lease_ms: int,
        met: Collection[int] = (),
        grace_ms: int = 0,
    ) -> Taken:
        return await self._db.write(lambda: claim.poll(handler, account, items, worker, lease_ms, met, grace_ms))

    async def poll_late(
        self, handler: str, account: str | None, items: int, lease_ms: int, late_ms: int
    ) -> list[Claimed]:
        """Tasks whose items have run out of time, for as long as `late_ms` after that."""
        return await self._db.write(lambda: claim.poll_late(handler, account, items, lease_ms, late_ms))

    async def put_off_late(self, looks: Sequence[tuple[int, int, int | None]]) -> None:
        """When to look at such tasks again: (item, fence, in how many milliseconds; None: never)."""
        await self._db.write(one("put_off_late", batch=looks))

    async def rescue(
        self, handler: str, askable: bool, items: int, worker: str, lease_ms: int, met: Collection[int] = ()
    ) -> Taken:
        return await self._db.write(lambda: claim.rescue(handler, askable, items, worker, lease_ms, met))

    async def disown(self, claimed_as: str) -> None:
        """Gives back what one claim won without the worker's knowing: it was committed, its answer never came."""
        await self._db.write(lambda: claim.disown(claimed_as))

    async def extend(self, held: Sequence[tuple[int, int]], lease_ms: int, worker: str) -> set[tuple[int, int]]:
        return await self._db.write(lambda: claim.extend(held, lease_ms, worker))

    async def extend_polls(self, polled: Sequence[tuple[int, int]], lease_ms: int) -> None:
        """Holds on to tasks, given as (item, fence), that their provider is being asked about."""
        await self._db.write(one("extend_polls", {"lease_ms": lease_ms}, polled))

    async def report_progress(self, progress: Sequence[tuple[int, int, int]]) -> set[int]:
        return await self._db.write(lambda: claim.report_progress(progress))

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        if self._db.dialect.chained and settle.are_few(settlements):
            return await self._db.single(lambda: settle.settle_few(settlements))
        return await self._db.write(lambda: settle.settle(settlements))

    async def advance_turns(self, served: Mapping[str, Sequence[int]]) -> None:
        """How far queues have been served: the last order key of each priority, by handler."""
        await self._db.write(lambda: claim.advance_turns(served))

    # sweep

    async def expire(self) -> Swept:
        return await self._db.write(sweep.expire)

    async def move_late(self, poll_ms: int = 0) -> int:
        return await self._db.write(lambda: sweep.move_late(poll_ms))

    async def stop_overdue(self) -> list[int]:
        return await self._db.write(sweep.stop_overdue)

    async def stopping(self, after: int = 0) -> list[tuple[int, StopReason]]:
        """Jobs that were stopped and still have items to end, a page behind the cursor."""
        return await self._db.read(lambda: sweep.stopping(after))

    async def end_stopped(self, job_id: int, reason: StopReason, poll_ms: int = 0) -> Swept:
        """Tasks that are not polled within `poll_ms` are polled now."""
        return await self._db.write(lambda: sweep.end_stopped(job_id, reason, poll_ms))

    # endpoints, paces

    async def save_endpoint(self, name: str, spec: str) -> None:
        await self._db.write(lambda: endpoints.save_endpoint(name, spec))

    async def endpoints(self, open_only: bool = True) -> list[tuple[str, str]]:
        """Where requests go, by handler: of unfinished jobs only, or all there ever were."""
        return await self._db.read(lambda: endpoints.endpoints(open_only))

    async def add_copies(self, copies: Sequence[tuple[int, int, str]]) -> None:
        """Further custom_ids that items answer for: (item, number, custom_id)."""
        await self._db.write(lambda: endpoints.add_copies(copies))

    async def set_pace(self, provider: str, per_minute: tuple[int | None, int | None], concurrency: int) -> None:
        """The limits that a person gave: requests and tokens a minute, and calls at once."""
        await self._db.write(lambda: endpoints.set_pace(provider, *per_minute, concurrency))

    async def judge_pace(self, provider: str, answers: Answers) -> tuple[Pace, int]:
        return await self._db.write(lambda: endpoints.judge_pace(provider, answers))

    async def waiting(self, job_id: int, handler: str, account: str, paces: tuple[str, str]) -> Waiting:
        return await self._db.read(lambda: waiting.waiting(job_id, handler, account, paces))

    # hold, release

    async def holds(self) -> Holds:
        return await self._db.read(providers.holds)

    async def observe(self, provider: str, calls: Sequence[Call], policy: BreakerPolicy) -> Change:
        return await self._db.write(lambda: providers.observe(provider, calls, policy))

    async def cool(self, provider: str, policy: BreakerPolicy) -> Change:
        return await self._db.write(lambda: providers.cool(provider, policy))

    async def hold(self, provider: str, reason: str, seconds: float | None = None) -> Change:
        return await self._db.write(lambda: providers.hold(provider, reason, seconds))

    async def refuse(self, provider: str, reason: str, policy: BreakerPolicy, hold_seconds: float | None) -> Change:
        """Holds a provider that refuses the account: for longer each time, up to `hold_seconds`; None: no end."""
        return await self._db.write(lambda: providers.refuse(provider, reason, policy, hold_seconds))

    async def release(self, provider: str) -> Change:
        return await self._db.write(lambda: providers.release(provider))

    async def take_probe(self, provider: str, probe_seconds: float) -> bool:
        return await self._db.write(lambda: providers.take_probe(provider, probe_seconds))

    async def give_probe(self, provider: str) -> None:
        await self._db.write(lambda: providers.give_probe(provider))

    # workers

    async def greet(self, worker: str, host: str, pid: int, place: str, handlers: str) -> None:
        def script() -> Script[None]:
            values = {"id": worker, "host": host, "pid": pid, "place": place, "handlers": handlers}
            yield Ask("greet_worker", values)
            yield Ask("forget_workers", {"age_ms": WORKER_AGE_MS})

        await self._db.write(script)

    async def bury(self, worker: str, place: str, lives: Callable[[int], bool]) -> int:
        """Ends the leases of workers of this place whose processes are gone; returns how many they were."""
        if not place:
            return 0
        return await self._db.write(lambda: claim.bury(worker, place, lives))

    async def leave(self, worker: str) -> None:
        await self._db.write(one("leave_worker", {"id": worker}))
