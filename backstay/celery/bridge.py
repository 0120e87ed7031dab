"""`CeleryBridge`: one Celery task that takes hints, and a worker of Backstay in every process that may run it."""

import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from billiard import current_process
from celery import Celery, signals
from celery.concurrency.prefork import TaskPool as PreforkPool

from backstay.app import Backstay
from backstay.celery.host import Host
from backstay.celery.publisher import WORK_TASK, CeleryPublisher
from backstay.client import Client
from backstay.core.errors import UsageError
from backstay.core.ids import read_item
from backstay.messaging.outbox_relay import relaying_work


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
