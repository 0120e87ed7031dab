"""The parts that the whole engine uses: store, handlers, limits, clock and bus; and the items that this worker holds,
with the thread that extends their leases."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from backstay.clock import Clock, Tasks
from backstay.core.events import Event, LeasesLost, Trouble
from backstay.core.failures import NAMED, RetryPolicy
from backstay.core.limits import Limits, reconcile_after_ms
from backstay.core.models import Claimed, Delivery, JobTerms, Terms
from backstay.core.states import ItemState
from backstay.handlers.function import Registry, TaskHandler
from backstay.handlers.handler import Context, Handler, Rules
from backstay.observe.bus import Bus
from backstay.store.measures import MeasureSource, Sums
from backstay.store.store import Store

if TYPE_CHECKING:
    from backstay.engine.gate import FirstReplies

JOBS_REMEMBERED_MAX = 10_000


class ItemPlan(NamedTuple):
    """How the items of one job are run and settled: its handler's rules, overridden by its own."""

    handler: Handler
    job: JobTerms
    terms: Terms
    run_seconds: float
    source: MeasureSource  # as what its calls are measured


class Refusal(NamedTuple):
    """A step that the database refuses: since when, when last (on the steady clock), and the error message."""

    since: float
    last: float
    message: str


@dataclass(slots=True)
class Parts:
    store: Store
    registry: Registry
    limits: Limits
    clock: Clock
    rng: Random
    tasks: Tasks
    bus: Bus
    worker: str  # this incarnation's name
    place: str = ""  # the machine of its process id; empty: others cannot check whether it is alive
    policies: Mapping[str, RetryPolicy] = field(default_factory=lambda: NAMED)  # by the name that a job chooses
    owner: str = "local"  # of the schedules in its code
    only_job: int | None = None  # the one job whose items it sends; lost ones of any job are rescued and polled
    only_first: int | None = None  # only this number of that job's items, from its first one
    trial: "FirstReplies | None" = None  # judges the first replies, if no item is to fail because of them
    refusals: dict[str, Refusal] = field(default_factory=dict)  # by the step that the database refuses now
    sums: Sums = field(default_factory=Sums)  # measures of this process that are not stored yet
    _jobs: dict[int, JobTerms] = field(default_factory=dict)
    _older: dict[int, JobTerms] = field(default_factory=dict)
    _plans: dict[tuple[int, str], ItemPlan] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        self.bus.emit(event)

    def note_refusal(self, where: str, message: str) -> None:
        """Emits a refusal, and remembers it until `note_success` of the same step."""
        now = self.clock.monotonic()
        before = self.refusals.get(where)
        trouble = Trouble(where, message)
        self.refusals[where] = Refusal(now if before is None else before.since, now, trouble.message)
        self.emit(trouble)

    def note_success(self, where: str) -> None:
        self.refusals.pop(where, None)

    def known_jobs(self) -> Collection[int]:
        """The jobs whose terms are known; they never change.

        To stay small it forgets old ones, but a generation later: another task may be using them now.
        """
        if len(self._jobs) > JOBS_REMEMBERED_MAX:
            self._older, self._jobs = self._jobs, {}
            self._plans.clear()
        return self._jobs.keys()

    def remember(self, jobs: Iterable[JobTerms]) -> None:
        self._jobs.update((job.id, job) for job in jobs)

    def plan(self, item: Claimed) -> ItemPlan:
        """The plan of a claimed item; items of the same job and handler have the same plan."""
        plan = self._plans.get((item.job_id, item.handler))
        if plan is None:
            job = self._jobs.get(item.job_id) or self._older[item.job_id]
            plan = self._plans[item.job_id, item.handler] = self._make_plan(self.registry[item.handler], job)
        return plan

    def _make_plan(self, handler: Handler, job: JobTerms) -> ItemPlan:
        rules = handler.rules
        path = self._path(handler, job)
        terms = Terms(
            policy=rules.retry if job.retry is None else self.policies[job.retry],
            delivery=rules.delivery if job.delivery is None else Delivery(job.delivery),
            limits=self._limits_of(rules),
            askable=handler.askable,
            fallback=path[1] if len(path) > 1 else None,
            time_shares=len(path) if rules.fallback_after_seconds is not None else 0,
        )
        source = MeasureSource(job.owner, handler.name, handler.provider)
        return ItemPlan(handler, job, terms, self.run_seconds(handler), source)

    def _path(self, handler: Handler, job: JobTerms) -> list[str]:
        """This handler, and those that get the item one after the other if it fails. No item comes to a handler twice;
        so a handler that is not on the path of the job's first one must not lead back."""
        path = self._walk(job.handler, job)
        if handler.name in path:
            return path[path.index(handler.name) :]
        own = self._walk(handler.name, job)
        leads_back = job.handler in own or self._fallback(own[-1], job) is not None
        return [handler.name] if leads_back else own

    def _walk(self, first: str, job: JobTerms) -> list[str]:
        """A handler, its fallback, the fallback of that, and so on, up to the end or a repeat."""
        path = [first]
        while (then := self._fallback(path[-1], job)) is not None and then not in path:
            path.append(then)
        return path

    def _fallback(self, name: str, job: JobTerms) -> str | None:
        own = self.registry[name].rules.fallback if name in self.registry else None
        return (job.fallback or own) if name == job.handler else own

    def _limits_of(self, rules: Rules) -> Limits:
        if rules.item_timeout_seconds is None:
            return self.limits
        return replace(self.limits, item_timeout_seconds=rules.item_timeout_seconds)

    @property
    def lease_ms(self) -> int:
        return self.limits.lease_ms

    def run_seconds(self, handler: Handler) -> float:
        """How long one run of a handler may take. The run of a task handler is one call, that of a function is the
        whole function.

        If the provider can be asked, the run is short enough for another worker to take over in time after a crash.
        """
        if handler.rules.timeout_seconds is not None:
            return handler.rules.timeout_seconds
        limits = self.limits
        seconds = limits.call_timeout_seconds if isinstance(handler, TaskHandler) else limits.handler_timeout_seconds
        return min(seconds, limits.submitting_seconds - limits.around_seconds) if handler.askable else seconds

    def reconcile_ms(self, handler: Handler) -> int:
        """How long after a claim a request that was sent under it may still arrive at the provider."""
        return reconcile_after_ms(self.limits, self.run_seconds(handler))


DEAF_SECONDS = 10.0  # a run may ignore its cancellation for this time


class Cut(StrEnum):
    """Why a run was cut off from outside."""

    TIMEOUT = "timeout"
    LOST = "lost"  # the lease is gone: another worker decides
    STOPPED = "stopped"  # the job was cancelled
    SHUTDOWN = "shutdown"
    APART = "apart"  # an item that may kill the worker runs first, alone


class Flight:
    """The run of one claimed item."""

    __slots__ = ("begun", "context", "cut", "ends", "item", "plan", "probe", "started", "stopping", "task")

    def __init__(self, item: Claimed, plan: ItemPlan, context: Context, started: float) -> None:
        self.item = item
        self.plan = plan
        self.context = context
        self.started = started
        self.ends = started + context.seconds_given
        self.task: asyncio.Task[Any] | None = None
        self.cut: Cut | None = None
        self.begun = False
        self.probe = False  # it tests a provider that failed
        self.stopping = False  # its job was cancelled; a call under way may finish

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    def stop_by(self, end: float) -> None:
        """Lets the run finish until then; one that has not begun is cut off at once."""
        if self.stopping or self.cut is not None:
            return
        self.stopping = self.context.stopped = True
        self.ends = min(self.ends, end)
        if not self.begun:
            self.cut_off(Cut.STOPPED)

    def cut_off(self, why: Cut) -> None:
        """Stops the run. The thread of a sync handler cannot be stopped: only its context says that it should end."""
        self.cut = why
        self.context.cancelled = True
        self.context.stopped = self.stopping
        # A task cancelled before its first step would never run at all; one that has not begun looks at `cut` itself.
        if self.task is not None and self.begun:
            self.task.cancel()


class Flights:
    """All items that the worker holds now. The lease keeper reads it from its own thread, so readers take a copy."""

    def __init__(self) -> None:
        # By fence too: a run whose lease is gone is still under way when this worker claims its item again.
        self._held: dict[tuple[int, int], Flight] = {}
        self._asked: dict[tuple[int, int], str] = {}  # items that a provider is being asked about, and their states
        self.running = 0  # handlers under way; the other items wait until their settlements are committed
        self.cut_short = 0  # runs stopped all at once, by a shutdown
        self._shut_down = False

    def add(self, flight: Flight) -> None:
        if self._shut_down:  # a claim was under way when everything was cut off
            flight.cut_off(Cut.SHUTDOWN)
        self._held[flight.item.id, flight.item.fence] = flight

    def drop(self, item: Claimed) -> None:
        """Drops one claim; a newer claim of the same item, by this same worker, is kept."""
        self._held.pop((item.id, item.fence), None)

    def holds(self, item_id: int, fence: int) -> bool:
        return (item_id, fence) in self._held

    def all(self) -> list[Flight]:
        return list(self._held.values())

    def shut_down(self) -> None:
        """Stops every run that is under way, and those that begin later."""
        self._shut_down = True
        flying = [flight for flight in self.all() if flight.cut is None and flight.is_running]
        for flight in flying:
            flight.cut_off(Cut.SHUTDOWN)
        self.cut_short += len(flying)

    def leases(self, now: float) -> list[tuple[int, int]]:
        """The leases to extend. A run that ignores its cancellation for too long is left out: another worker takes its
        item over."""
        flying = [
            lease
            for lease, flight in list(self._held.items())
            if now < flight.ends + DEAF_SECONDS or not flight.is_running
        ]
        return flying + self._asked_in(ItemState.SUBMITTING)

    @contextmanager
    def keep_leases(self, items: Iterable[Claimed]) -> Iterator[None]:
        """While the block runs, the leases of these items are extended: an answer may take longer than a lease."""
        asked = {(item.id, item.fence): item.state for item in items}
        self._asked.update(asked)
        try:
            yield
        finally:
            for lease in asked:
                del self._asked[lease]

    def polled_leases(self) -> list[tuple[int, int]]:
        """The tasks that providers are being asked about."""
        return self._asked_in(ItemState.PROCESSING)

    def _asked_in(self, state: ItemState) -> list[tuple[int, int]]:
        return [lease for lease, asked in list(self._asked.items()) if asked == state]

    def cut_overdue(self, now: float) -> None:
        """Cuts off the runs whose time is over. One pass over all is cheaper than a timer for each."""
        for flight in self.all():
            if flight.ends <= now and flight.cut is None and flight.is_running:
                flight.cut_off(Cut.STOPPED if flight.stopping else Cut.TIMEOUT)

    def __len__(self) -> int:
        return len(self._held)


BEAT_AGAIN_SECONDS = 1.0  # after a beat that failed: a lease has time for few of them

OpenStore = Callable[[], Awaitable[Store]]


async def beat(store: Store, flights: Flights, parts: Parts) -> set[tuple[int, int]]:
    """One beat: extends every lease held and returns the lost ones, as (item, fence). An item whose time is over is not
    lost: its run continues, because a late result is kept."""
    if polled := flights.polled_leases():
        await store.items.extend_polls(polled, parts.lease_ms)
    return await store.items.extend(flights.leases(parts.clock.monotonic()), parts.lease_ms, parts.worker)


def drop_lost_items(lost: set[tuple[int, int]], flights: Flights, parts: Parts) -> None:
    """Cuts off the runs of items that another worker has now: the database would refuse their results anyway.

    Items are compared by fence too, because one that was settled during the beat may be claimed again by this same
    worker. Runs that have ended are left to the settler.
    """
    gone = [f for f in flights.all() if (f.item.id, f.item.fence) in lost and f.cut is None and f.is_running]
    for flight in gone:
        flight.cut_off(Cut.LOST)
    if gone:
        parts.emit(LeasesLost(parts.worker, tuple(flight.item.id for flight in gone)))


class LeaseKeeper:
    """Extends leases from a thread of its own, with its own event loop and database connection: a handler that blocks
    the worker's event loop keeps its items."""

    def __init__(self, parts: Parts, flights: Flights, open_store: OpenStore) -> None:
        self._parts = parts
        self._flights = flights
        self._open_store = open_store
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="backstay-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join, 10)

    async def _live(self) -> None:
        store: Store | None = None
        pause = regular = self._parts.limits.heartbeat_seconds
        while not await asyncio.to_thread(self._stopping.wait, pause):
            pause = min(regular, BEAT_AGAIN_SECONDS)
            try:
                if store is None:
                    store = await self._open_store()
                lost = await beat(store, self._flights, self._parts)
            except Exception as error:  # any error: the next beat must come
                self._tell(self._parts.note_refusal, "heartbeat", f"{type(error).__name__}: {error}")
                continue
            self._tell(self._parts.note_success, "heartbeat")
            pause = regular
            if lost:
                self._loop.call_soon_threadsafe(drop_lost_items, lost, self._flights, self._parts)
        if store is not None:
            await store.close()

    def _tell(self, listener: Callable[..., None], *words: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(listener, *words)
