"""`CeleryBridge`: one Celery task that takes hints, and a worker of Backstay in every process that may run it."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any, Final

from billiard import current_process
from celery import Celery, signals
from celery.concurrency.prefork import TaskPool as PreforkPool

from backstay.app import Backstay
from backstay.celery.host import Host
from backstay.client import Client
from backstay.core.errors import UsageError
from backstay.core.events import Trouble
from backstay.core.ids import read_item, show_item
from backstay.messaging.messages import Incoming, OutgoingMessage, Poison, read_work
from backstay.messaging.outbox_relay import relaying_work
from backstay.messaging.topology import Topology
from backstay.observe.bus import Bus

WORK_TASK: Final = "backstay.work"
CONFIRM_SECONDS: Final = 15.0  # longer than that a broker does not answer, it hangs
CONNECT_SECONDS: Final = 5.0
EXPIRES_SECONDS: Final = 3_600  # after that the database has long served it, and the message would only be in the way
TRANSPORT: Final = {
    # Understood by RabbitMQ's transport. With Redis the answer to each command says as much.
    **{"confirm_publish": True, "read_timeout": CONFIRM_SECONDS, "write_timeout": CONFIRM_SECONDS},
    "max_retries": 1,  # to connect; the relay backs off, and tries again
}


class CeleryPublisher:
    """What a relay publishes through when Celery carries the hints. Its connection is made at the first use, and again
    after whatever went wrong."""

    publishing = True  # the relay itself backs off while nothing is taken

    def __init__(self, celery_app: Celery, queue: str, bus: Bus) -> None:
        self.topology = Topology()  # by which the relay words its messages; nothing of it is declared here
        self._app = celery_app
        self._queue = queue
        self._bus = bus
        self._producer: Any = None

    async def publish_many(self, outgoing: Sequence[OutgoingMessage]) -> list[bool]:
        """Whether each is with the broker. What is not ready yet is not sent at all: Celery would keep it in the memory
        of some worker, unacknowledged. The workers look every second for what has become due."""
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
            except Exception as error:  # whatever a transport raises; its words may hold the broker's URL
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
            producer=self._connected(),
            retry=False,  # the outbox tries again
            confirm_timeout=CONFIRM_SECONDS,
        )

    def _connected(self) -> Any:
        if self._producer is None:
            connection = self._app.connection_for_write(connect_timeout=CONNECT_SECONDS, transport_options=TRANSPORT)
            self._producer = self._app.amqp.Producer(connection, auto_declare=False)
        return self._producer

    def _disconnect(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            with suppress(Exception):  # it may be what is broken
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
        self._host: tuple[int, Host] | None = None  # with the process it was made in
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
        return {"named": len(items), "run": self._serving().work(handler, [read_item(item) for item in items])}

    # the worker in this process

    def _set_up(self, instance: Any, **_: object) -> None:
        self._serves = self.queue in instance.app.amqp.queues.consume_from
        self._green = bool(instance.pool_cls.is_green)

    def _start(self, **_: object) -> None:
        """In a child of the prefork pool. It only begins: Celery gives a child four seconds to come up."""
        if self._serves:
            self._serving()

    def _start_alone(self, sender: Any, **_: object) -> None:
        """In the worker itself, unless children run the tasks."""
        if self._serves and not isinstance(sender.pool, PreforkPool):
            self._serving()

    def _serving(self) -> Host:
        if self._green:
            raise UsageError("items do not run in Celery's green pools", hint="use --pool prefork, threads or solo")
        with self._starting:
            if self._host is None or self._host[0] != os.getpid():
                host = Host(self.backstay_app, self._concurrency, self._beside)
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

    def _beside(self, client: Client) -> AbstractAsyncContextManager[None]:
        """One process of each Celery worker relays: in the prefork pool the first child."""
        first = getattr(current_process(), "index", 0) == 0
        return self.relaying(client) if self._relays and first else nullcontext()
