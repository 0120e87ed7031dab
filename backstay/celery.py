"""Celery's workers execute items: `CeleryBridge(celery_app, backstay_app)`. Celery's broker carries hints, the database
decides.

`CeleryBridge` registers one Celery task that takes hints. In every process that may run it, `CeleryHost` runs a worker
of Backstay: an event loop in a thread of its own, with its own connections.
"""

from importlib.util import find_spec

from backstay.core.errors import UsageError

if find_spec("celery") is None:
    raise UsageError("Celery is not installed: pip install 'backstay[celery]'")

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from itertools import count
from typing import Any, Final

from billiard import current_process
from celery import Celery, signals
from celery.concurrency.prefork import TaskPool as PreforkPool

from backstay import wiring
from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import Clock, new_event_loop, wait_for_event
from backstay.core.errors import BackstayError
from backstay.core.events import Event, ItemsSettled, LeasesLost, Trouble
from backstay.core.ids import read_item, show_item
from backstay.engine.hints import HELD_SECONDS_MAX, HeldMessages
from backstay.engine.worker import Worker
from backstay.messaging.messages import Incoming, OutgoingMessage, Poison, Topology, read_work
from backstay.messaging.outbox_relay import relaying_work
from backstay.observe.bus import Bus
from backstay.observe.logs import Logs
from backstay.process import equipment


class CeleryHints:
    """The messages whose Celery tasks run in this process; each waits here until a claim has taken its items.

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
        """Celery's log shows how many items a message named, and how many of them were run."""
        over = self._hand.mark_done(ids, missed)
        self._end_waits([*over.served, *over.missed])

    async def wait_until_served(self, handler: str, items: Iterable[int]) -> None:
        """Puts a message in hand, and returns when a committed claim had all its items, or it was held for too long."""
        number, over = next(self._numbers), asyncio.Event()
        self._waiting[number] = over
        self._hand.put(number, handler, items, self._clock.monotonic())
        self._wake()
        await wait_for_event(over, HELD_SECONDS_MAX)
        self._end_waits(self._hand.overdue(self._clock.monotonic()))

    def let_go(self) -> None:
        """Claims have stopped: the held messages are left to the database."""
        self._hand.clear()
        self._end_waits(list(self._waiting))

    def _end_waits(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._waiting.pop(number).set()


AGAIN_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.5
READY_SECONDS: Final = 30.0  # for the database to answer; after that a message is left to it
STOP_MARGIN_SECONDS: Final = 30.0  # beyond the grace, for the last writes to the database

Relay = Callable[[Client], AbstractAsyncContextManager[object]]


class CeleryHost:
    """One life: start, stop. Made after the fork: nothing of it survives one."""

    def __init__(self, app: Backstay, concurrency: int, beside: Relay) -> None:
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
        self._app.bus.subscribe(Logs(sys.stderr, settings.log_level, as_json))  # which Celery writes to its own log
        self._app.bus.subscribe(self._wake_waiting)
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
            self._runner.run(self._serve_until_stopped())

    async def _serve_until_stopped(self) -> None:
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
        held = self._count_held(items)
        end = self._clock.monotonic() + self._app.limits.shutdown_seconds
        while self._count_held(items) and (left := end - self._clock.monotonic()) > 0:
            await wait_for_event(self._settled, min(left, LOOK_SECONDS))
        return held

    def _count_held(self, items: Sequence[int]) -> int:
        """How many of these items are in this worker's hands."""
        if self._worker is None:
            return 0
        named = set(items)
        return sum(flight.item.id in named for flight in self._worker.engine.flights.all())

    def _wake_waiting(self, event: Event) -> None:
        """Wakes everyone who waits for items to end. Called on the loop's own thread."""
        if isinstance(event, ItemsSettled | LeasesLost):
            self._settled.set()
            self._settled = asyncio.Event()


def _reason_of(error: Exception) -> str:
    hint = error.hint if isinstance(error, BackstayError) else ""
    return f"{type(error).__name__}: {error}" + (f"; {hint}" if hint else "")


WORK_TASK: Final = "backstay.work"
CONFIRM_SECONDS: Final = 15.0  # a broker that takes longer hangs
CONNECT_SECONDS: Final = 5.0
EXPIRES_SECONDS: Final = 3_600  # by then the workers have found the items in the database
TRANSPORT: Final = {
    # For RabbitMQ's transport; Redis confirms each command anyway.
    **{"confirm_publish": True, "read_timeout": CONFIRM_SECONDS, "write_timeout": CONFIRM_SECONDS},
    "max_retries": 1,  # to connect; the relay backs off, and tries again
}


class CeleryPublisher:
    """Publishes hints as Celery's messages. It connects at the first use, and again after an error."""

    publishing = True  # the relay itself backs off while nothing is accepted

    def __init__(self, celery_app: Celery, queue: str, bus: Bus) -> None:
        self.topology = Topology()  # for the names in messages; nothing is declared here
        self._app = celery_app
        self._queue = queue
        self._bus = bus
        self._producer: Any = None

    async def publish_many(self, outgoing: Sequence[OutgoingMessage]) -> list[bool]:
        """Whether the broker has each message. Items that are not ready yet are not sent: Celery would keep the message
        in the memory of a worker, unacknowledged. The workers look every second for items that have become due."""
        ready = [message for message in outgoing if message.exchange == self.topology.work]
        sent = await asyncio.to_thread(self._send_all, ready)
        unsent = {id(message) for message in ready[sent:]}
        return [id(message) not in unsent for message in outgoing]

    async def close(self) -> None:
        await asyncio.to_thread(self._disconnect)

    def _send_all(self, outgoing: Sequence[OutgoingMessage]) -> int:
        """Sends until something goes wrong; returns how many the broker has."""
        for number, message in enumerate(outgoing):
            try:
                self._send(message)
            except Exception as error:  # any error of a transport; its text may contain the broker's URL
                self._bus.emit(Trouble("celery", f"a hint was not published: {type(error).__name__}"))
                self._disconnect()
                return number
        return len(outgoing)

    def _send(self, message: OutgoingMessage) -> None:
        work = read_work(Incoming(message.body, message.message_id, message.type))
        if isinstance(work, Poison):
            raise ValueError(work.reason)
        self._app.send_task(
            WORK_TASK,
            (work.handler, [show_item(item) for item in work.items]),
            task_id=f"{WORK_TASK}-{message.message_id}",  # the same for every copy of a message
            queue=self._queue,
            expires=EXPIRES_SECONDS,
            ignore_result=True,
            producer=self._open_producer(),
            retry=False,  # the outbox tries again
            confirm_timeout=CONFIRM_SECONDS,
        )

    def _open_producer(self) -> Any:
        if self._producer is None:
            connection = self._app.connection_for_write(connect_timeout=CONNECT_SECONDS, transport_options=TRANSPORT)
            self._producer = self._app.amqp.Producer(connection, auto_declare=False)
        return self._producer

    def _disconnect(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            with suppress(Exception):  # the connection may be broken
                producer.connection.close()


class CeleryBridge:
    """Lets the workers of a Celery app that take messages from `queue` execute the items of a Backstay app.

    Whether Celery acknowledges early or late makes no difference: a message only names items. Which of them are to be
    done is read in the database when they are claimed, and from then on a lease guards them, not the message.
    """

    def __init__(
        self,
        celery_app: Celery,
        backstay_app: Backstay,
        queue: str = "backstay",
        concurrency: int | None = None,
        relay: bool = True,
    ) -> None:
        self.celery_app = celery_app
        self.backstay_app = backstay_app
        self.queue = queue
        self._concurrency = concurrency or backstay_app.limits.worker_concurrency
        self._relays = relay
        self._serves = False
        self._green = False
        self._host: tuple[int, CeleryHost] | None = None  # with the process it was made in
        self._starting = threading.Lock()
        self._register()

    def _register(self) -> None:
        options = {"name": WORK_TASK, "queue": self.queue, "ignore_result": True, "shared": False}
        self.celery_app.task(**options)(self._work)
        # Told by Celery, in this order: what a worker takes messages from, that a process is there, that it ends.
        signals.celeryd_after_setup.connect(self._set_up, weak=False)
        signals.worker_process_init.connect(self._start, weak=False)
        signals.worker_ready.connect(self._start_alone, weak=False)
        signals.worker_process_shutdown.connect(self._stop, weak=False)
        signals.worker_shutdown.connect(self._stop, weak=False)

    def _work(self, handler: str, items: Sequence[str]) -> dict[str, int]:
        """The Celery task: has the named items claimed and run in this process."""
        return {"named": len(items), "run": self._running_host().work(handler, [read_item(item) for item in items])}

    # the worker in this process

    def _set_up(self, instance: Any, **_: object) -> None:
        self._serves = self.queue in instance.app.amqp.queues.consume_from
        self._green = bool(instance.pool_cls.is_green)

    def _start(self, **_: object) -> None:
        """In a child of the prefork pool. It only begins: Celery gives a child four seconds to come up."""
        if self._serves:
            self._running_host()

    def _start_alone(self, sender: Any, **_: object) -> None:
        """In the worker itself, unless children run the tasks."""
        if self._serves and not isinstance(sender.pool, PreforkPool):
            self._running_host()

    def _running_host(self) -> CeleryHost:
        if self._green:
            raise UsageError("items do not run in Celery's green pools", hint="use --pool prefork, threads or solo")
        with self._starting:
            if self._host is None or self._host[0] != os.getpid():
                host = CeleryHost(self.backstay_app, self._concurrency, self._relay_here)
                host.start()
                self._host = (os.getpid(), host)
            return self._host[1]

    def _stop(self, **_: object) -> None:
        if self._host is not None and self._host[0] == os.getpid():
            self._host[1].stop()

    # the relay

    @asynccontextmanager
    async def relaying(self, client: Client) -> AsyncIterator[None]:
        """While the block runs, hints leave the outbox as Celery's messages."""
        publisher = CeleryPublisher(self.celery_app, self.queue, self.backstay_app.bus)
        try:
            async with relaying_work(self.backstay_app, client, publisher):
                yield
        finally:
            await publisher.close()

    def _relay_here(self, client: Client) -> AbstractAsyncContextManager[None]:
        """One process of each Celery worker relays: in the prefork pool the first child."""
        first = getattr(current_process(), "index", 0) == 0
        return self.relaying(client) if self._relays and first else nullcontext()
