"""One worker of Backstay inside a Celery process: an event loop in a thread of its own, with its own connections."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Final

from backstay import wiring
from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import Clock, new_event_loop, wait_for_event
from backstay.core.errors import BackstayError
from backstay.core.events import Event, ItemsSettled, LeasesLost, Trouble
from backstay.core.held_messages import HELD_SECONDS_MAX, HeldMessages
from backstay.engine.worker import Worker
from backstay.observe.logs import Logs
from backstay.process import equipment


class CeleryHints:
    """The messages whose Celery tasks are under way in this process; each waits here until a claim had its items.

    Always alive: a message that Celery lost is made up for by the worker's own look at the database, every second.
    """

    alive = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hand = HeldMessages[int]()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Event] = {}
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def take(self, handler: str, n: int) -> list[int]:
        return self._hand.take(handler, n)

    def mark_done(self, ids: Iterable[int], missed: Collection[int] = ()) -> None:
        """Of what was missed, Celery's log tells: how many items a message named, and how many of them were run."""
        over = self._hand.mark_done(ids, missed)
        self._over([*over.served, *over.missed])

    async def wait_until_served(self, handler: str, items: Iterable[int]) -> None:
        """Puts a message in hand, and returns when a committed claim had all its items, or it was held for too long."""
        number, over = next(self._numbers), asyncio.Event()
        self._waiting[number] = over
        self._hand.put(number, handler, items, self._clock.monotonic())
        self._wake()
        await wait_for_event(over, HELD_SECONDS_MAX)
        self._over(self._hand.overdue(self._clock.monotonic()))

    def let_go(self) -> None:
        """Nobody claims here any more: what is in hand is left to the database."""
        self._hand.clear()
        self._over(list(self._waiting))

    def _over(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._waiting.pop(number).set()


AGAIN_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.5
READY_SECONDS: Final = 30.0  # for the database to be there; after that a message is left to it
STOP_MARGIN_SECONDS: Final = 30.0  # beyond the grace, for the last words to the database

Beside = Callable[[Client], AbstractAsyncContextManager[object]]


class Host:
    """One life: start, stop. Made after the fork: nothing of it survives one."""

    def __init__(self, app: Backstay, concurrency: int, beside: Beside) -> None:
        self._app = app
        self._concurrency = concurrency
        self._beside = beside
        self._clock = Clock()
        self._hints = CeleryHints(self._clock)
        self._worker: Worker | None = None
        self._trouble: Exception | None = None  # why there is no worker yet
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._settled = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="backstay-celery", daemon=True)

    def start(self) -> None:
        settings = self._app.settings
        as_json = {"json": True, "console": False}.get(settings.log_format)
        self._app.bus.subscribe(Logs(sys.stderr, settings.log_level, as_json))  # which Celery has in its own log
        self._app.bus.subscribe(self._heard)
        self._thread.start()

    def work(self, handler: str, items: Sequence[int]) -> int:
        """Has these items claimed and run here, and returns how many were. It waits for their ends, so that Celery sees
        what is under way, but no longer than a shutdown may take: they have leases, and go on without the task."""
        if not self._thread.is_alive():
            return 0
        running = asyncio.run_coroutine_threadsafe(self._work(handler, items), self._loop)
        try:
            return running.result()
        except CancelledError:  # stopped meanwhile
            return 0

    def stop(self) -> None:
        """Lets what runs finish within the grace and hands back the rest, then closes the database."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(self._app.limits.shutdown_seconds + STOP_MARGIN_SECONDS)

    # in the thread

    def _run(self) -> None:
        with self._runner:  # at its end it cancels all waiting tasks
            self._runner.run(self._live())

    async def _live(self) -> None:
        """Reports any error, such as an unreachable database or an old schema, and tries again."""
        while not self._stopping.is_set():
            try:
                await self._serve()
            except Exception as error:
                self._trouble = error
                self._app.bus.emit(Trouble("celery", _reason_of(error)))
                await wait_for_event(self._stopping, AGAIN_SECONDS)

    async def _serve(self) -> None:
        app = self._app
        async with AsyncExitStack() as stack:
            wiring.start_tracing(app.settings, app.bus)
            store = await wiring.open_store(app.url, item_events=app.settings.item_events)
            stack.push_async_callback(store.close)
            client = Client(store, app.settings.owner, app.limits, self._clock, app.bus)
            await stack.enter_async_context(self._beside(client))
            self._worker = await stack.enter_async_context(self._working(client))
            self._ready.set()
            await self._stopping.wait()
            self._hints.let_go()

    @asynccontextmanager
    async def _working(self, client: Client) -> AsyncIterator[Worker]:
        """The same worker as `backstay worker`, on a store of this thread's own: the application's may be in use on
        another event loop."""
        app = self._app
        async with equipment(app, client, self._concurrency, with_broker=False) as equipped:
            made = wiring.parts(client.store, app.handlers, app.limits, app.bus, app.settings)
            worker = wiring.worker(app.url, made, equipped.slots, self._hints)
            await worker.start()
            try:
                yield worker
            finally:
                await worker.stop()

    async def _work(self, handler: str, items: Sequence[int]) -> int:
        await wait_for_event(self._ready, READY_SECONDS)
        if self._worker is None and self._trouble is not None:
            raise self._trouble
        if self._worker is None or self._stopping.is_set() or handler not in self._app.handlers:
            return 0  # left in the database for another worker
        await self._hints.wait_until_served(handler, items)
        held = self._held(items)
        end = self._clock.monotonic() + self._app.limits.shutdown_seconds
        while self._held(items) and (left := end - self._clock.monotonic()) > 0:
            await wait_for_event(self._settled, min(left, LOOK_SECONDS))
        return held

    def _held(self, items: Sequence[int]) -> int:
        """How many of these items are in this worker's hands."""
        if self._worker is None:
            return 0
        named = set(items)
        return sum(flight.item.id in named for flight in self._worker.engine.flights.all())

    def _heard(self, event: Event) -> None:
        """Wakes everyone who waits for items to end. Called on the loop's own thread."""
        if isinstance(event, ItemsSettled | LeasesLost):
            self._settled.set()
            self._settled = asyncio.Event()


def _reason_of(error: Exception) -> str:
    hint = error.hint if isinstance(error, BackstayError) else ""
    return f"{type(error).__name__}: {error}" + (f"; {hint}" if hint else "")
