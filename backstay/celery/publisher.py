"""Publishes hints as Celery tasks, on a connection of its own with confirms."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from celery import Celery

from backstay.core.events import Trouble
from backstay.core.ids import show_item
from backstay.messaging.messages import Incoming, OutgoingMessage, Poison, read_work
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
