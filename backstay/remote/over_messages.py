"""Remote items that go out as a message each, to an exchange of a broker that their submitter named."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aio_pika.exceptions import AMQPError, ChannelClosed, ChannelNotFoundEntity, DeliveryError, PublishError
from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed

from backstay.clock import Clock, new_random
from backstay.core.callbacks import VERSION, name_task
from backstay.core.errors import (
    BrokerUnreachable,
    ErrorCode,
    HandlerError,
    OutcomeUnknown,
    Permanent,
    Throttled,
    Transient,
    UsageError,
)
from backstay.core.failures import one_line
from backstay.core.ids import read_item
from backstay.core.models import Failed
from backstay.handlers.function import dump
from backstay.handlers.handler import Context
from backstay.messaging.connection import CLOSE_SECONDS, close_connection, open_connection, take_turns
from backstay.messaging.messages import CONTENT_TYPE, REQUEST
from backstay.remote.handler import SIGNATURE, check_headers, trace_headers

NAME_BYTES_MAX: Final = 255  # of an exchange or a routing key, as AMQP counts
REQUEST_BYTES_MAX: Final = 16_000_000  # RabbitMQ 4 takes no message above 16 MiB, and closes the channel that sent it
# Ours to set; those that a broker writes; and those that would make it send copies elsewhere.
_OWN: Final = SIGNATURE | {
    "cc",
    "bcc",
    "x-death",
    "x-delay",
    "x-delivery-count",
    "x-backstay-reason",
    "x-expires",
    "x-message-ttl",
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("exchange", "queue", "reason")),
}


class RequestSender(Protocol):
    """Publishes a request. It returns when the broker has it in a queue, and raises the errors of a handler: nothing
    was sent, it can never be sent, or the outcome is unknown."""

    async def publish(self, request: "MessageRequest", seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class MessageRequest:
    exchange: str
    routing_key: str
    name: str  # the same for every try, so that a repeat can be recognised
    body: bytes
    headers: Mapping[str, str]
    priority: int


@dataclass(frozen=True, slots=True)
class OverMessages:
    """A request is accepted when the broker has it in a queue. The result is a message to an exchange of Backstay."""

    requests: RequestSender
    callback: Mapping[str, str]  # the exchange and the routing key that answers come in at
    prefix: str  # of exchanges that are ours
    exchanges: frozenset[str]  # the only ones that may be named; empty: all but our own
    tag: Callable[[Context], str]
    sign: Callable[[str, str, str], Mapping[str, str]]

    def read(self, payload: dict[str, Any]) -> None:
        if "payload" not in payload:
            hint = '{"exchange": "grading", "routing_key": "essays", "payload": …}'
            raise UsageError("a remote item must have an exchange, a routing_key and a payload", hint=hint)
        if unknown := payload.keys() - {"exchange", "routing_key", "payload", "headers"}:
            raise UsageError(f"a remote item has no field {min(map(str, unknown))[:40]!r}")
        for name in ("exchange", "routing_key"):
            _check_name(name, payload.get(name, ""))
        check_headers(payload.get("headers", {}), _OWN)

    def check(self, payload: dict[str, Any]) -> None:
        name = payload["exchange"]
        if not name:
            raise UsageError(
                "exchange must not be empty", hint="use the exchange that your workers' queues are bound to"
            )
        if name.startswith(f"{self.prefix}."):
            raise UsageError(f"the exchange {name[:60]!r} belongs to Backstay", hint="use an exchange of your workers")
        if self.exchanges and name not in self.exchanges:
            raise UsageError(
                f"requests may not be sent to the exchange {name[:60]!r}",
                hint="an operator can allow it with BACKSTAY_REMOTE_EXCHANGES",
            )

    def require(self) -> None:
        """It has all that it needs from the start."""

    async def send(self, payload: dict[str, Any], context: Context, seconds: float) -> Failed | None:
        try:
            self.check(payload)
        except UsageError as error:
            raise Permanent(error.message, ErrorCode.FORBIDDEN) from None
        text, name = dump(self._request(payload, context)), context.idempotency_key
        body = text.encode()
        if len(body) > REQUEST_BYTES_MAX:
            raise Permanent(f"the request has more than {REQUEST_BYTES_MAX:,} bytes", ErrorCode.TOO_LARGE)
        headers = {**payload.get("headers", {}), **trace_headers(context), **self.sign(context.owner, name, text)}
        place = (payload["exchange"], payload.get("routing_key", ""))
        await self.requests.publish(MessageRequest(*place, name, body, headers, context.priority), seconds)
        return None

    def _request(self, payload: dict[str, Any], context: Context) -> dict[str, Any]:
        return {
            "v": VERSION,
            "id": context.idempotency_key,
            "task": name_task(read_item(context.item_id), context.fence),
            "tag": self.tag(context),
            "attempt": context.attempt,
            "callback": dict(self.callback),
            "deadline_at": context.deadline_at,
            "payload": payload["payload"],
        }


def _check_name(field: str, value: Any) -> None:
    if not isinstance(value, str) or not (value.isprintable() and len(value.encode()) <= NAME_BYTES_MAX):
        raise UsageError(f"{field} must be a text of at most {NAME_BYTES_MAX} bytes")


AWAY_SECONDS: Final = 5.0  # a broker that is away is not tried more often
CHANNELS_MAX: Final = 64  # those used last stay open
_BROKEN: Final = (AMQPError, OSError, RuntimeError)  # aiormq raises the last one for a closed channel


@dataclass(slots=True, eq=False)
class OpenExchange:
    channel: AbstractChannel
    exchange: AbstractExchange
    under_way: int = 0


@dataclass(slots=True, eq=False)
class Outlet:
    """One exchange, over a channel of its own."""

    name: str
    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: OpenExchange | None = None  # once a message went through, so that it can be relied on
    under_way: int = 0

    def usable(self) -> OpenExchange | None:
        return None if self.opened is None or self.opened.channel.is_closed else self.opened

    async def drop(self, opened: OpenExchange | None) -> None:
        """Closes a broken channel, unless another one was opened since."""
        if opened is not None and self.opened is opened:
            self.opened = None
            await _close(opened.channel)


@dataclass(slots=True)
class PendingRequest:
    request: MessageRequest
    begun: bool = False  # from then on the broker may have it

    async def to(self, exchange: AbstractExchange) -> None:
        request, self.begun = self.request, True
        message = aio_pika.Message(
            request.body,
            headers=dict(request.headers),
            content_type=CONTENT_TYPE,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=request.name,
            priority=request.priority,
            type=REQUEST,
        )
        await exchange.publish(message, request.routing_key, mandatory=True)


class BrokerRequests:
    """Opens its connection at the first request; the next request reopens a broken one."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._nodes = take_turns(url, new_random())
        self._clock = clock
        self._connection: AbstractConnection | None = None
        self._connecting = asyncio.Lock()
        self._away_until = 0.0
        self._outlets: OrderedDict[str, Outlet] = OrderedDict()

    async def close(self) -> None:
        connection = self._connection
        self._forget_connection(connection)
        if connection is not None:
            await close_connection(connection)

    def _forget_connection(self, connection: object, error: BaseException | None = None) -> None:
        """All channels of a lost connection are gone, even if they do not report it."""
        if self._connection is connection:
            self._connection = None
            for outlet in self._outlets.values():
                outlet.opened = None

    async def publish(self, request: MessageRequest, seconds: float) -> None:
        """Returns when the broker has put it into a queue. Raises what a handler may raise."""
        outlet, sending = await self._outlet(request.exchange), PendingRequest(request)
        outlet.under_way += 1
        try:
            async with asyncio.timeout(seconds):
                await self._send_over(outlet, sending)
        except TimeoutError:
            if not sending.begun:
                raise _broker_away() from None
            # The queue behind it may hang alone; were it the whole connection, its heartbeat would end it.
            await outlet.drop(outlet.opened)
            raise OutcomeUnknown(f"the broker did not confirm the request within {seconds:g} s") from None
        finally:
            outlet.under_way -= 1

    async def _send_over(self, outlet: Outlet, sending: PendingRequest) -> None:
        if outlet.usable() is None:
            async with outlet.first:
                if outlet.usable() is None:
                    return await self._send_first(outlet, sending)
        opened = outlet.usable()
        if opened is None:
            raise _broker_away()
        opened.under_way += 1
        try:
            await sending.to(opened.exchange)
        except DeliveryError as error:
            if outlet.opened is opened and not isinstance(error, PublishError):
                outlet.opened = None  # a channel that a dead node has refused is refused until that node is back
            raise _error_of(error, sending.request, alone=False) from None
        except _BROKEN as error:
            await outlet.drop(opened)
            raise _error_of(error, sending.request, alone=False) from None
        finally:
            opened.under_way -= 1
            if outlet.opened is not opened and not opened.under_way:
                await _close(opened.channel)

    async def _send_first(self, outlet: Outlet, sending: PendingRequest) -> None:
        """Alone on its channel: if the channel closes, it is because of this message, which was not accepted."""
        channel = await self._channel()
        opened = OpenExchange(channel, await channel.get_exchange(outlet.name, ensure=False))
        try:
            await sending.to(opened.exchange)
            outlet.opened = opened
        except DeliveryError as error:
            if isinstance(error, PublishError):
                outlet.opened = opened  # the exchange exists, but no queue takes this message
            raise _error_of(error, sending.request, alone=True) from None
        except _BROKEN as error:
            raise _error_of(error, sending.request, alone=True) from None
        finally:
            if outlet.opened is not opened:
                await _close(channel)

    async def _channel(self) -> AbstractChannel:
        """Opens a new connection if the present one is broken: the driver does not always report it."""
        for _ in range(2):
            connection = await self._open_connection()
            try:
                return await connection.channel(publisher_confirms=True, on_return_raises=True)
            except _BROKEN:
                if self._connection is connection:
                    await self.close()
        raise _broker_away()

    async def _outlet(self, name: str) -> Outlet:
        outlet = self._outlets.get(name)
        if outlet is None:
            outlet = self._outlets[name] = Outlet(name)
        self._outlets.move_to_end(name)
        for idle in [one for one in self._outlets.values() if not one.under_way and one is not outlet]:
            if len(self._outlets) <= CHANNELS_MAX:
                break
            del self._outlets[idle.name]
            await idle.drop(idle.opened)
        return outlet

    async def _open_connection(self) -> AbstractConnection:
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            if self._clock.monotonic() < self._away_until:
                raise _broker_away()
            await self.close()
            try:
                made = await open_connection(next(self._nodes), "backstay requests")
            except BrokerUnreachable as error:
                self._away_until = self._clock.monotonic() + AWAY_SECONDS
                raise _broker_away(error.message) from None
            made.close_callbacks.add(self._forget_connection)
            self._connection = made
            return made


def _broker_away(why: str = "the broker is not connected") -> HandlerError:
    """Nothing was sent, through no fault of the item: it waits, and loses no attempt."""
    return Throttled(why, AWAY_SECONDS)


async def _close(channel: AbstractChannel) -> None:
    """A channel that cannot be closed is broken, and gone as well."""
    with suppress(*_BROKEN, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await channel.close()


def _error_of(error: Exception, request: MessageRequest, alone: bool) -> HandlerError:
    """What an error means: never received, refused permanently, or unknown."""
    place = f"exchange {request.exchange[:60]!r}, routing key {request.routing_key[:60]!r}"
    match error:
        case PublishError():
            return Transient(f"no queue is bound for requests to {place}", ErrorCode.GW_5XX)
        case DeliveryError():
            return Throttled(f"the broker refused a request to {place}")  # a full queue, or one without a leader
        case ChannelAccessRefused():
            return Permanent(f"the broker does not allow sending to {place}", ErrorCode.FORBIDDEN)
        case ChannelNotFoundEntity() if alone:
            return Transient(f"there is no exchange {request.exchange[:60]!r}", ErrorCode.GW_5XX)
        case ChannelPreconditionFailed() if alone:
            return Permanent(f"the broker refused the request: {one_line(str(error))}", ErrorCode.GW_4XX)
        case ChannelClosed():
            return OutcomeUnknown(f"the channel was closed: {one_line(str(error))}")
        case _:
            return OutcomeUnknown("the connection to the broker was lost")
