"""One connection to a broker: how it is opened and closed, and what is said of it, which is never its password."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from backstay.core.errors import BrokerUnreachable, NotAllowed, UsageError
from backstay.core.failures import one_line

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

SCHEMES: Final = ("amqp", "amqps")
PORTS: Final = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_SECONDS: Final = 10
CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 3.0
REASON_CHARACTERS_MAX: Final = 200
ACCOUNT_HINT: Final = "correct the user and the password in BACKSTAY_BROKER_URL; write special characters as %XX"
VHOST_HINT: Final = "correct the vhost in BACKSTAY_BROKER_URL, or give the user permissions on it"
URL_HINT: Final = "write amqp://user:password@host:5672/vhost, with special characters as %XX"


def require_aio_pika() -> None:
    """RabbitMQ is an extra: without its driver there is one thing to do, and it is said."""
    if find_spec("aio_pika") is None:
        raise UsageError("RabbitMQ needs aio-pika", hint="pip install 'backstay[rabbitmq]'")


def check_url(url: str) -> None:
    """Refuses a URL that is not a broker's. The error never repeats it: it may contain a part of the password."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        fine = fine and "@" not in parts.path + parts.query + parts.fragment and not parts.fragment
    except ValueError:
        fine = False
    if not fine:
        raise UsageError("the broker's URL cannot be read", hint=URL_HINT)


def show_url(url: str) -> str:
    """The address of the broker, without user and password."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or PORTS[parts.scheme]}/{unquote(parts.path.lstrip('/'))}"


def reason_of(error: BaseException) -> str:
    """What went wrong, on one line. The driver's errors hold no password: URLs are checked before it sees them."""
    if isinstance(error, TimeoutError):
        return "the broker did not answer in time"
    said = ": ".join(str(part) for part in error.args if part not in (None, "")) or type(error).__name__
    return one_line(said, REASON_CHARACTERS_MAX)


async def open_connection(url: str, name: str) -> "AbstractConnection":
    """A connection that never reconnects by itself: its holder watches it and opens another."""
    require_aio_pika()
    check_url(url)
    import aio_pika

    from backstay.messaging.properties import read_leniently

    read_leniently()
    for driver in ("aio_pika", "aiormq"):
        logging.getLogger(driver).addHandler(logging.NullHandler())  # what matters is told as an event
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await aio_pika.connect(_with_heartbeat(url), client_properties={"connection_name": name})
    except aio_pika.exceptions.InvalidFrameError as error:
        # All that the driver makes of it: the broker closed the connection when it was asked for the vhost.
        vhost = unquote(urlsplit(url).path[1:]) or "/"
        said = f"refuses the vhost {vhost!r}: it does not exist, or the account may not use it"
        raise BrokerUnreachable(f"the broker at {show_url(url)} {said}", hint=VHOST_HINT) from error
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
    """Politely for a moment; a peer that does not answer is left."""
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.close()


@asynccontextmanager
async def connected(url: str, name: str = "backstay") -> "AsyncIterator[AbstractConnection]":
    """For one errand; what the broker has against it is said as our own errors are."""
    connection = await open_connection(url, name)
    from aiormq.exceptions import AMQPError, ChannelAccessRefused

    try:
        yield connection
    except ChannelAccessRefused as error:
        said = f"the broker's account lacks a permission: {reason_of(error)}"
        raise NotAllowed(said, hint="see Rights in docs/rabbitmq.md") from error
    except (AMQPError, ConnectionError) as error:
        raise BrokerUnreachable(f"the broker at {show_url(url)} disconnected: {reason_of(error)}") from error
    finally:
        await close_connection(connection)
