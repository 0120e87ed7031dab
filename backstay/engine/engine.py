"""The parts of one worker put together, with the steps that the endless worker and the bounded tick share."""

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

from backstay.clock import cancel_until_ended, wait_for_event
from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import ItemsClaimed, Trouble, WorkerStarted, WorkerStopped
from backstay.core.ids import draw_low_start, level_of
from backstay.core.models import Claimed
from backstay.core.pace import MINUTE_MS, Rate
from backstay.core.states import ItemState
from backstay.engine.executor import Executor
from backstay.engine.gate import Gate
from backstay.engine.hints import Hints, Named, Turns
from backstay.engine.parts import Flights, LeaseKeeper, OpenStore, Parts
from backstay.engine.poller import Poller
from backstay.engine.scheduler import Scheduler
from backstay.engine.settler import Ready, Settler
from backstay.engine.sweeper import Sweeper
from backstay.handlers.handler import Handler
from backstay.store.items import ClaimedItems, Want

PROMOTE_SECONDS = 0.2
CLAIM_PARTS = 2
CLAIM_ITEMS_MIN = 100
TIMEOUT_CHECK_SECONDS = 1.0
LAST_WORDS_SECONDS = 5.0
OWN_CALLS_MAX = 10_000  # at once, of a handler that declares limits, by all workers


class Engine:
    """One life: start, stop. `claim_once` claims and starts as many items as there is room for."""

    def __init__(
        self, parts: Parts, concurrency: int, open_store: OpenStore | None = None, hints: Hints | None = None
    ) -> None:
        self.parts = parts
        self.turns = Turns(hints) if hints is not None else None
        self.flights = Flights()
        self.wake = asyncio.Event()  # there may be something to claim
        self.freed = asyncio.Event()  # a run has ended
        self.wanting = True  # the last claim stopped at a limit: there are more items to claim when a run has ended
        self.passed_over = False  # the last claim left items out, and there may be others behind them
        self.gate = Gate(parts, self.flights)
        self.settler = Settler(parts, self.flights, self._note_settled, self.gate.states, self.gate.judge)
        self.executor = Executor(parts, self.flights, self.settler, self._note_free_slot)
        self.poller = Poller(parts, self.flights, self.gate, self.settler)
        self.sweeper = Sweeper(parts, self.flights, self.gate, self.settler)
        self.scheduler = Scheduler(parts)
        self._concurrency = concurrency
        self._lease_keeper = LeaseKeeper(parts, self.flights, open_store) if open_store is not None else None
        self._loops: list[asyncio.Task[None]] = []
        self._observing: set[asyncio.Task[None]] = set()
        self.promote_at = float("-inf")  # on the steady clock: when waiting items may be due
        self.again_at = float("inf")  # on the steady clock: when a provider's pace allows the next call
        self._paced = False  # the last claim was for handlers with a pace
        self._claims = 0
        self._turns: dict[tuple[str, int], int] = {}  # by handler and priority: the last order key claimed here
        self._lost_claim: str | None = None  # the name of a claim whose answer never came: it may have won items

    async def start(self) -> None:
        parts = self.parts
        names = tuple(handler.name for handler in parts.registry)
        providers = json.dumps({handler.name: handler.provider for handler in parts.registry})
        await parts.store.workers.register(parts.worker, socket.gethostname(), os.getpid(), parts.place, providers)
        await self._set_paces()
        self._loops = [parts.tasks.spawn(self.settler.run()), parts.tasks.spawn(self._time_out())]
        if self._lease_keeper is not None:
            self._lease_keeper.start()
        parts.emit(WorkerStarted(parts.worker, names))

    async def _set_paces(self) -> None:
        """Stores the limits that handlers declare. All workers use the limits of the worker that started last."""
        for handler in self.parts.registry:
            calls = handler.rules.calls
            if calls.any:
                rate = calls.rate or Rate(0, MINUTE_MS)
                limits = (rate.calls or None, calls.tokens_per_minute)
                await self.parts.store.providers.set_pace(
                    handler.pace_name, limits, OWN_CALLS_MAX, requests_period_ms=rate.period_ms
                )

    async def _weigh(self, unweighed: Sequence[tuple[str, int]]) -> None:
        """Weighs items that were submitted without the handler's code. An item that cannot be weighed counts as free:
        its handler refuses it before a call is made."""
        weights: list[tuple[int, int, int]] = []
        names = {item: handler for handler, item in unweighed}
        for request in await self.parts.store.results.requests_of([item for _, item in unweighed]):
            weights.append((request.id, *_weight(self.parts.registry[names[request.id]], request.body)))
        await self.parts.store.items.weigh(weights)

    @property
    def full(self) -> bool:
        """Whether nothing more can be started now."""
        return self.flights.running >= self._concurrency or self.settler.full

    @property
    def claims_too_little(self) -> bool:
        """Whether a claim now would get few items: a provider's pace counts calls until they are settled, and more than
        half of what this worker may hold is running or waits for its settlement."""
        return self._paced and (self.flights.running + self.settler.unsettled) * 2 > self._concurrency

    @property
    def next_turn_at(self) -> float | None:
        """When to look at the database even without a hint, on the steady clock. None while hints are not used."""
        turns = self.turns
        return min(turns.database_at, self.again_at) if turns is not None and turns.hints.alive else None

    async def claim_once(self, items_max: int) -> int:
        """Claims and starts as many items as there is room for, a part at a time, so that claims and runs overlap."""
        parts = self.parts
        self.passed_over = False
        room = min(
            self._concurrency - self.flights.running, items_max, max(self._concurrency // CLAIM_PARTS, CLAIM_ITEMS_MIN)
        )
        if self.full or room <= 0:
            self.wanting = True
            return 0
        wants = await self.gate.wants(room)
        if not wants:
            return 0
        self._paced = any(want.paced is not None for want in wants)
        await self.return_lost_claim()
        now = parts.clock.monotonic()
        taken, named = await self._claim_in_turn(wants, room, now)
        self.passed_over = taken.passed_over or bool(taken.unweighed)
        if taken.unweighed:
            await self._weigh(taken.unweighed)
        if taken.items:
            self._note_turns(taken.items)
            parts.remember(taken.jobs)
            self.executor.start(taken.items, now, self.gate.is_probe)
            parts.emit(ItemsClaimed(parts.worker, len(taken.items), named))
        return len(taken.items)

    async def _claim_in_turn(self, wants: Sequence[Want], room: int, now: float) -> tuple[ClaimedItems, bool]:
        """Claims hinted items, or items in the database's order when it has its turn; and whether they were hinted."""
        turns = self.turns
        if turns is None:
            return await self._claim_in_order(wants, room, now), False
        woken = turns.take_paced(wants)
        if turns.hints.alive and now < min(turns.database_at, self.again_at) and not woken:
            named = turns.take_named(wants, room)
            if named:
                return await self._claim_named(turns, wants, named), True
            if not turns.database_more:
                self.wanting = turns.has_more(wants)
                return ClaimedItems([], []), False
        if turns.hints.alive and turns.take_named(wants, room):
            # The items of high priority are hinted, so this turn is for those of lower priority.
            wants = [want._replace(from_key=draw_low_start(self.parts.rng)) for want in wants]
        taken = await self._claim_in_order(wants, room, now)
        turns.note_database_turn(now, taken.more)
        turns.hints.mark_done([*woken, *(item.id for item in taken.items)])  # their hints are no longer needed
        self.wanting = turns.has_more(wants)
        return taken, False

    async def _claim_named(self, turns: Turns, wants: Sequence[Want], named: Named) -> ClaimedItems:
        parts = self.parts
        taken = await self._claim_with_name(
            lambda name: parts.store.items.claim_named(named, name, parts.lease_ms, parts.known_jobs())
        )
        won = {item.id for item in taken.items}
        for _, ids in named:
            turns.hints.mark_done(ids, missed=set(ids) - won)
        self.wanting = turns.has_more(wants)
        if self.wanting:
            self.wake.set()  # even if this claim has won nothing
        return taken

    async def _claim_in_order(self, wants: Sequence[Want], room: int, now: float) -> ClaimedItems:
        parts = self.parts
        promoting = now >= self.promote_at
        taken = await self._claim_with_name(
            lambda name: parts.store.items.claim(wants, name, parts.lease_ms, parts.known_jobs(), promoting, room)
        )
        self.wanting = taken.more
        self.again_at = float("inf") if taken.again_ms is None else now + taken.again_ms / 1000
        if promoting:
            self.promote_at = now + PROMOTE_SECONDS
        return taken

    async def _claim_with_name(self, claim: Callable[[str], Awaitable[ClaimedItems]]) -> ClaimedItems:
        """Makes a claim with its own name. If its answer is lost, its items are given back by that name."""
        self._claims += 1
        name = f"{self.parts.worker}:{self._claims}"
        try:
            return await claim(name)
        except BaseException:
            self._lost_claim = name
            raise

    async def return_lost_claim(self) -> None:
        """Gives back the items that a lost claim may have won: they never arrived here, so they were never sent."""
        if self._lost_claim is not None:
            await self.parts.store.items.return_lost_claim(self._lost_claim)
            self._lost_claim = None

    def _note_turns(self, items: Sequence[Claimed]) -> None:
        """Remembers how far the queues have been served. Probes come from anywhere in a queue, so they do not count."""
        for item in reversed(items):  # the last ones are mostly the furthest
            level = (item.handler, level_of(item.order_key))
            if self._turns.get(level, 0) < item.order_key and not self.gate.is_probe(self.parts.registry[item.handler]):
                self._turns[level] = item.order_key

    async def write_turns(self) -> None:
        """Stores how far the queues have been served: new jobs start there."""
        turns, self._turns = self._turns, {}
        if turns:
            served: dict[str, list[int]] = {}
            for (handler, _), key in turns.items():
                served.setdefault(handler, []).append(key)
            await self.parts.store.items.advance_turns(served)

    async def add_up_counts(self, at_once: bool = False) -> None:
        """Adds up the counts of large jobs that were written here, and ends those jobs whose items have all ended."""
        self.settler.tell_ended(await self.parts.store.counters.add_up(at_once))

    async def write_measures(self) -> None:
        """Stores the measures since the last time. If that fails, they are kept for the next time."""
        taken = self.parts.sums.take()
        try:
            await self.parts.store.measures.add(self.parts.worker, taken)
        except BaseException:
            self.parts.sums.give_back(taken)
            raise

    def _note_free_slot(self) -> None:
        self.freed.set()
        if self.wanting:
            self.wake.set()

    async def _time_out(self) -> None:
        """Cuts off runs that exceed their time limit. It looks often enough for the shortest limit."""
        shortest = min((self.parts.run_seconds(handler) for handler in self.parts.registry), default=60.0)
        pause = min(max(shortest / 10, 0.01), TIMEOUT_CHECK_SECONDS)
        while True:
            await self.parts.clock.sleep(pause)
            self.flights.cut_overdue(self.parts.clock.monotonic())

    async def wait_for_running(self, seconds: float) -> None:
        """Waits until no handler runs, or the time is over."""
        end = self.parts.clock.monotonic() + seconds
        while self.flights.running > 0 and (left := end - self.parts.clock.monotonic()) > 0:
            self.freed.clear()
            await wait_for_event(self.freed, left)

    async def stop(self, grace_seconds: float) -> None:
        """Lets running items finish within the grace period, hands back the others, and stores the last changes."""
        await self.wait_for_running(grace_seconds)
        self.flights.shut_down()
        await self.wait_for_running(LAST_WORDS_SECONDS)
        await self.poller.stop_polls()
        await self.sweeper.stop_rescues()
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self.settler.wait_until_committed()
                await self.add_up_counts(at_once=True)
                await asyncio.gather(*self._observing)
                await self.poller.give_back()
                await self.gate.give_probes()
                await self.gate.keep_pace()
                await self.return_lost_claim()
                await self.write_turns()
                await self.write_measures()
                await self.parts.store.workers.unregister(self.parts.worker)
        except (TimeoutError, DatabaseUnreachable) as error:
            why = str(error) or f"the database did not answer within {LAST_WORDS_SECONDS:g} s"
            self.parts.emit(Trouble("stop", f"the worker's last changes could not be stored: {why}"))
        await cancel_until_ended(self._loops)
        if self._lease_keeper is not None:
            await self._lease_keeper.stop()
        self.parts.emit(WorkerStopped(self.parts.worker, self.flights.cut_short))

    def _note_settled(self, group: Sequence[Ready]) -> None:
        if self.wanting or any(ready.settlement.state is ItemState.QUEUED or ready.settlement.freed for ready in group):
            # The settler has room again, an item goes back to the queue, or money came back that other items may need.
            self.wake.set()
        task = self.parts.tasks.spawn(self._observe(group))
        self._observing.add(task)
        task.add_done_callback(self._observing.discard)

    async def _observe(self, group: Sequence[Ready]) -> None:
        try:
            await self.gate.observe(group)
        except DatabaseUnreachable as error:
            self.parts.emit(Trouble("observe", str(error)))


def _weight(handler: Handler, body: str) -> tuple[int, int]:
    """The most that a call of this item costs, and its tokens."""
    try:
        return handler.rules.calls.weigh(body)
    except (
        BaseException
    ):  # the user's function failed, or exits the process; the run of this item fails with the same error
        return 0, 0
