"""Requests to remote workers: each published with a confirm to an exchange that other people named.

They have a connection of their own, because RabbitMQ closes a channel that names an exchange which is not there, and a
channel that is closed while others still write to it takes its connection with it. So each exchange has a channel of
its own, and the first message on it goes alone: it proves that the exchange is there and may be written to.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aio_pika.exceptions import AMQPError, ChannelClosed, ChannelNotFoundEntity, DeliveryError, PublishError
from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed

from backstay.clock import Clock
from backstay.core.errors import (
    BrokerUnreachable,
    ErrorCode,
    HandlerError,
    OutcomeUnknown,
    Permanent,
    Throttled,
    Transient,
)
from backstay.core.failures import one_line
from backstay.messaging.connection import CLOSE_SECONDS, close_connection, open_connection
from backstay.messaging.messages import CONTENT_TYPE, REQUEST
from backstay.remote.over_messages import MessageRequest

AWAY_SECONDS: Final = 5.0  # a broker that is away is not called for more often than that
CHANNELS_MAX: Final = 64  # those used last stay open
_BROKEN: Final = (AMQPError, OSError, RuntimeError)  # the last: aiormq's word for a channel that is closed


class Opened(NamedTuple):
    channel: AbstractChannel
    exchange: AbstractExchange


@dataclass(slots=True, eq=False)
class Outlet:
    """One exchange, over a channel of its own."""

    name: str
    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: Opened | None = None  # once a message went through, so that it can be relied on
    under_way: int = 0

    def usable(self) -> Opened | None:
        return None if self.opened is None or self.opened.channel.is_closed else self.opened

    async def drop(self, opened: Opened | None) -> None:
        """Of those who find a channel broken the first closes it; another may have been opened since."""
        if opened is not None and self.opened is opened:
            self.opened = None
            await _close(opened.channel)


@dataclass(slots=True)
class Sending:
    request: MessageRequest
    begun: bool = False  # from here on the broker may have it

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
        self._url = url
        self._clock = clock
        self._connection: AbstractConnection | None = None
        self._connecting = asyncio.Lock()
        self._away_until = 0.0
        self._outlets: OrderedDict[str, Outlet] = OrderedDict()

    async def close(self) -> None:
        connection = self._connection
        self._lost(connection)
        if connection is not None:
            await close_connection(connection)

    def _lost(self, connection: object, error: BaseException | None = None) -> None:
        """With a connection all its channels are gone, whatever they say of themselves."""
        if self._connection is connection:
            self._connection = None
            for outlet in self._outlets.values():
                outlet.opened = None

    async def publish(self, request: MessageRequest, seconds: float) -> None:
        """Returns when the broker has put it into a queue. Raises what a handler may raise."""
        outlet, sending = await self._outlet(request.exchange), Sending(request)
        outlet.under_way += 1
        try:
            async with asyncio.timeout(seconds):
                await self._through(outlet, sending)
        except TimeoutError:
            if not sending.begun:
                raise _away() from None
            # The queue behind it may hang alone; were it the whole connection, its heartbeat would end it.
            await outlet.drop(outlet.opened)
            raise OutcomeUnknown(f"the broker did not confirm the request within {seconds:g} s") from None
        finally:
            outlet.under_way -= 1

    async def _through(self, outlet: Outlet, sending: Sending) -> None:
        if outlet.usable() is None:
            async with outlet.first:
                if outlet.usable() is None:
                    return await self._first(outlet, sending)
        opened = outlet.usable()
        if opened is None:
            raise _away()
        try:
            await sending.to(opened.exchange)
        except DeliveryError as error:
            raise _meaning(error, sending.request, alone=False) from None
        except _BROKEN as error:
            await outlet.drop(opened)
            raise _meaning(error, sending.request, alone=False) from None

    async def _first(self, outlet: Outlet, sending: Sending) -> None:
        """Alone on its channel: if that is closed, it is for this message, which was then not taken."""
        channel = await self._channel()
        opened = Opened(channel, await channel.get_exchange(outlet.name, ensure=False))
        try:
            await sending.to(opened.exchange)
            outlet.opened = opened
        except DeliveryError as error:
            outlet.opened = opened  # it is there; only nobody takes this message
            raise _meaning(error, sending.request, alone=True) from None
        except _BROKEN as error:
            raise _meaning(error, sending.request, alone=True) from None
        finally:
            if outlet.opened is not opened:
                await _close(channel)

    async def _channel(self) -> AbstractChannel:
        """On a fresh connection, if the one at hand turns out to be broken: the driver does not always say so."""
        for _ in range(2):
            connection = await self._connected()
            try:
                return await connection.channel(publisher_confirms=True, on_return_raises=True)
            except _BROKEN:
                if self._connection is connection:
                    await self.close()
        raise _away()

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

    async def _connected(self) -> AbstractConnection:
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            if self._clock.monotonic() < self._away_until:
                raise _away()
            await self.close()
            try:
                made = await open_connection(self._url, "backstay requests")
            except BrokerUnreachable as error:
                self._away_until = self._clock.monotonic() + AWAY_SECONDS
                raise _away(error.message) from None
            made.close_callbacks.add(self._lost)
            self._connection = made
            return made


def _away(why: str = "the broker is not connected") -> HandlerError:
    """Nothing was sent, and the item has no part in it: it waits, and loses no try by it."""
    return Throttled(why, AWAY_SECONDS)


async def _close(channel: AbstractChannel) -> None:
    """What cannot be closed in order is broken, and gone all the same."""
    with suppress(*_BROKEN, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await channel.close()


def _meaning(error: Exception, request: MessageRequest, alone: bool) -> HandlerError:
    """What an error means: never received, refused permanently, or unknown."""
    place = f"exchange {request.exchange[:60]!r}, routing key {request.routing_key[:60]!r}"
    match error:
        case PublishError():
            return Transient(f"no queue is bound for requests to {place}", ErrorCode.GW_5XX)
        case DeliveryError():
            return Transient(f"the broker refused a request to {place}", ErrorCode.GW_5XX)
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
