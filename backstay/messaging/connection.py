"""Connections to a broker: opened, watched, replaced and closed. Their passwords are never shown."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit, urlunsplit

from pamqp.base import BasicProperties
from pamqp.commands import Basic

from backstay.clock import Clock, Tasks, cancel_until_ended, wait_for_event
from backstay.core.errors import BrokerUnreachable, NotAllowed, UsageError
from backstay.core.events import BrokerConnected, BrokerLost, Event
from backstay.core.failures import one_line

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection


UNREAD_HEADER: Final = "x-backstay-was-properties"  # flags and properties as they came


def read_leniently() -> None:
    """From now on, a message with unreadable properties is received without them; one header holds their bytes."""
    Basic.Properties.unmarshal = _unmarshal  # type: ignore[assignment,method-assign]


def _unmarshal(properties: Basic.Properties, flags: int, data: bytes) -> None:
    try:
        BasicProperties.unmarshal(properties, flags, data)
    except (ValueError, OverflowError, OSError, RecursionError, struct.error):
        for name in properties.attributes():
            setattr(properties, name, None)
        properties.headers = {UNREAD_HEADER: bytearray(struct.pack(">H", flags) + data)}


SCHEMES: Final = ("amqp", "amqps")
PORTS: Final = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_SECONDS: Final = 10
CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 3.0
REASON_CHARACTERS_MAX: Final = 200
ACCOUNT_HINT: Final = "correct the user and the password in BACKSTAY_BROKER_URL; write special characters as %XX"
VHOST_HINT: Final = "correct the vhost in BACKSTAY_BROKER_URL, or give the user permissions on it"
URL_HINT: Final = (
    "write amqp://user:password@host:5672/vhost, with special characters as %XX; the nodes of a cluster as"
    " host1:5672,host2:5672"
)


def require_aio_pika() -> None:
    """Raises an error that says what to install, if the driver of RabbitMQ is missing."""
    if find_spec("aio_pika") is None:
        raise UsageError("RabbitMQ needs aio-pika", hint="pip install 'backstay[rabbitmq]'")


def check_url(url: str) -> None:
    """Refuses a URL that is not a broker's. The error never repeats it: it may contain a part of the password."""
    try:
        fine = all(_is_node(urlsplit(node)) for node in node_urls(url))
    except ValueError:
        fine = False
    if not fine:
        raise UsageError("the broker's URL is not valid", hint=URL_HINT)


def _is_node(parts: SplitResult) -> bool:
    behind = parts.path + parts.query + parts.fragment
    host = parts.hostname or ""
    fine = parts.scheme in SCHEMES and bool(host) and (parts.port is None or parts.port > 0)
    # A list of whole URLs, separated by anything, is refused as well.
    return fine and not parts.fragment and not {" ", ";"} & set(host) and "@" not in behind and "://" not in behind


def node_urls(url: str) -> list[str]:
    """A URL for each node that a URL names."""
    parts = urlsplit(url)
    account, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{account}{at}{host}")) for host in hosts.split(",")]


def take_turns(url: str, rng: Random) -> Iterator[str]:
    """The URL of one node after the other, again and again. It begins with any of them, so that processes spread over
    the nodes."""
    nodes = node_urls(url)
    yield from cycle(rng.sample(nodes, len(nodes)))


def show_url(url: str) -> str:
    """The address of the broker, without user and password."""
    parts = urlsplit(url)
    hosts = ",".join(_show_host(urlsplit(node)) for node in node_urls(url))
    return f"{parts.scheme}://{hosts}/{unquote(parts.path.lstrip('/'))}"


def _show_host(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or PORTS[parts.scheme]}"


def reason_of(error: BaseException) -> str:
    """The error on one line. The driver's errors contain no password, because URLs are checked before."""
    if isinstance(error, TimeoutError):
        return "the broker did not answer in time"
    text = ": ".join(str(part) for part in error.args if part not in (None, "")) or type(error).__name__
    return one_line(text, REASON_CHARACTERS_MAX)


async def open_connection(url: str, name: str) -> "AbstractConnection":
    """A connection to the first node that can be reached. It never reconnects by itself: its holder watches it and
    opens another."""
    require_aio_pika()
    check_url(url)
    read_leniently()
    for driver in ("aio_pika", "aiormq"):
        logging.getLogger(driver).addHandler(logging.NullHandler())  # errors that matter become events
    errors: list[BrokerUnreachable] = []
    for node in node_urls(url):
        try:
            return await _connect(node, name)
        except BrokerUnreachable as error:
            errors.append(error)
    raise BrokerUnreachable("; ".join(error.message for error in errors), hint=errors[-1].hint) from errors[-1]


async def _connect(url: str, name: str) -> "AbstractConnection":
    import aio_pika

    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await aio_pika.connect(_with_heartbeat(url), client_properties={"connection_name": name})
    except aio_pika.exceptions.InvalidFrameError as error:
        # This is how the driver reports that the broker closed the connection because of the vhost.
        vhost = unquote(urlsplit(url).path[1:]) or "/"
        refusal = f"refuses the vhost {vhost!r}: it does not exist, or the account may not use it"
        raise BrokerUnreachable(f"the broker at {show_url(url)} {refusal}", hint=VHOST_HINT) from error
    except (aio_pika.exceptions.AuthenticationError, aio_pika.exceptions.ProbableAuthenticationError) as error:
        raise BrokerUnreachable(_unreachable(url, error), hint=ACCOUNT_HINT) from error
    except (OSError, TimeoutError, aio_pika.exceptions.AMQPError, ValueError, RuntimeError) as error:
        raise BrokerUnreachable(_unreachable(url, error)) from error


def _unreachable(url: str, error: Exception) -> str:
    return f"the broker at {show_url(url)} cannot be reached: {reason_of(error)}"


def _with_heartbeat(url: str) -> str:
    parts = urlsplit(url)
    if "heartbeat" in parse_qs(parts.query):
        return url
    query = f"{parts.query}&" if parts.query else ""
    return urlunsplit(parts._replace(path=parts.path or "/", query=f"{query}heartbeat={HEARTBEAT_SECONDS}"))


async def close_connection(connection: "AbstractConnection") -> None:
    """Closes a connection; if the broker does not answer in time, it is dropped."""
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.close()


@asynccontextmanager
async def connect_once(url: str, name: str = "backstay") -> "AsyncIterator[AbstractConnection]":
    """A connection for one task; errors of the broker are raised as our own errors."""
    connection = await open_connection(url, name)
    from aiormq.exceptions import AMQPError, ChannelAccessRefused

    try:
        yield connection
    except ChannelAccessRefused as error:
        message = f"the broker's account lacks a permission: {reason_of(error)}"
        raise NotAllowed(message, hint="see Rights in docs/rabbitmq.md") from error
    except (AMQPError, ConnectionError) as error:
        raise BrokerUnreachable(f"the broker at {show_url(url)} disconnected: {reason_of(error)}") from error
    finally:
        await close_connection(connection)


BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 10.0  # a connection that lived this long counts as good


@dataclass(frozen=True, slots=True)
class LinkWatch:
    """How often a connection is checked, and how long each step may take."""

    every_seconds: float = 3.0
    answer_seconds: float = 5.0
    open_seconds: float = 20.0
    publish_seconds: float = 30.0
    backoff_seconds_max: float = BACKOFF_SECONDS_MAX


WATCH: Final = LinkWatch()


@dataclass(frozen=True, slots=True)
class ConnectionMeans:
    """The parts that all connections of a process share."""

    url: str
    name: str  # as the broker's management pages show it
    clock: Clock
    tasks: Tasks
    rng: Random
    emit: Callable[[Event], None]
    watch: LinkWatch = WATCH


class Broken(Exception):
    """The connection does not work as it should."""


class Link:
    """Keeps one connection alive. One life: start, stop. `prepare` makes a new connection ready, and `check` raises if
    something is wrong with it."""

    def __init__(
        self,
        role: str,
        means: ConnectionMeans,
        prepare: "Callable[[AbstractConnection], Awaitable[None]]",
        check: Callable[[], Awaitable[None]],
        note_change: Callable[[], None],
    ) -> None:
        self.role = role
        self.up = False
        self._means = means
        self._prepare = prepare
        self._check = check
        self._note_change = note_change
        self._look = asyncio.Event()
        self._broken = ""
        self._failures = 0
        self._nodes = take_turns(means.url, means.rng)
        self._life: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._life = self._means.tasks.spawn(self._live(), name=f"broker {self.role}")

    async def stop(self) -> None:
        if self._life is not None:
            await cancel_until_ended([self._life])
            self._life = None

    def nudge(self) -> None:
        """Look now."""
        self._look.set()

    def restart(self, reason: str) -> None:
        """Called by a user of the connection that finds it broken."""
        self._broken = self._broken or reason
        self._look.set()

    async def _live(self) -> None:
        means = self._means
        while True:
            began = means.clock.monotonic()
            reason = await self._one_connection()
            lasted = means.clock.monotonic() - began
            self._failures = 1 if lasted >= STEADY_SECONDS else self._failures + 1
            wait = self._backoff()
            means.emit(BrokerLost(self.role, reason, wait))
            await means.clock.sleep(wait)

    async def _one_connection(self) -> str:
        """Holds one connection as long as it works; returns why it does not work any more."""
        means, connection = self._means, None
        self._broken = ""
        self._look.clear()
        try:
            async with asyncio.timeout(means.watch.open_seconds):
                connection = await open_connection(next(self._nodes), f"{means.name} {self.role}")
                connection.close_callbacks.add(self._note_closed)
                await self._prepare(connection)
            self._set_up(True)
            means.emit(BrokerConnected(self.role))
            await self._watch()
            return self._broken
        except Exception as error:
            return self._broken or reason_of(error)
        finally:
            self._set_up(False)
            if connection is not None:
                await close_connection(connection)

    async def _watch(self) -> None:
        watch = self._means.watch
        while not self._broken:
            await wait_for_event(self._look, watch.every_seconds)
            self._look.clear()
            if not self._broken:
                async with asyncio.timeout(watch.answer_seconds):
                    await self._check()

    def _note_closed(self, _: object, error: BaseException | None) -> None:
        self.restart(reason_of(error) if error is not None else "the connection was closed")

    def _set_up(self, up: bool) -> None:
        if self.up != up:
            self.up = up
            self._note_change()

    def _backoff(self) -> float:
        """The wait doubles when all nodes have failed, and is random, so that processes do not all come back at
        once."""
        rounds = (self._failures - 1) // len(node_urls(self._means.url))
        top: float = min(BACKOFF_SECONDS * 2 ** min(rounds, 16), self._means.watch.backoff_seconds_max)
        return top * self._means.rng.uniform(0.5, 1.0)
