"""Distinguishes a connection that went silent from a statement that is only slow.

A router that forgot a connection, or a host that is gone, closes nothing: a statement would wait forever. So
PostgreSQL is asked, over another connection, what it is doing for the one that waits. A statement that PostgreSQL works
on may take any time. A connection for which it does nothing, and on which no byte moves, is given up.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, NamedTuple

import asyncpg

from backstay.clock import Clock

SLOW_SECONDS: Final = 4.0  # after this time PostgreSQL is asked about a statement
LOOK_SECONDS: Final = 3.0  # between two looks: a connection that is the same at both is silent
TICK_SECONDS: Final = 1.0
ASK_SECONDS: Final = 5.0  # for a new connection, and for its answer
SLOW_BYTES_PER_SECOND: Final = 250_000  # sent bytes may still wait in a proxy, before a line as slow as this

# Linux counts a connection's bytes in `struct tcp_info`, in two numbers: what the other side confirmed, what it sent.
_TCP_INFO_BYTES: Final = 136
_TCP_INFO_AT: Final = 120

# The asking connection also looks for its own name: if a pooler hides it, the answer means nothing.
_ASKED = """SELECT application_name, state, wait_event_type, state_change::text
FROM pg_stat_activity WHERE application_name = ANY($1::text[]) ORDER BY state IS NOT DISTINCT FROM 'active'"""
# A transaction that stays open would keep its locks, and everyone who needs them would wait.
_END_TRANSACTIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = ANY($1::text[])
AND (state LIKE 'idle in transaction%' OR state = 'active' AND wait_event_type = 'Client')"""

_AWAY = (OSError, TimeoutError, asyncpg.PostgresConnectionError)
_NO_ANSWER = (*_AWAY, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class BytesMoved(NamedTuple):
    """The bytes that went over a connection so far."""

    sent: int  # and confirmed
    received: int


class Activity(NamedTuple):
    """The activity of PostgreSQL for a connection, and since when."""

    state: str | None = None  # None: PostgreSQL does not know the connection, or could not be asked
    waits_for: str | None = None
    since: str | None = None

    def is_working(self, moved: BytesMoved | None) -> bool:
        """Whether PostgreSQL works on a statement. One that waits for the client's bytes does not count, unless bytes
        cannot be counted here: then it may be sending or reading all the time."""
        return self.state == "active" and (self.waits_for != "Client" or moved is None)


class Use:
    """One use of a connection, from when it was taken to when it is given back."""

    def __init__(self, connection: Any, since: float) -> None:
        self.connection = connection
        self.since = since
        self.scope = asyncio.timeout(None)  # ends the use, wherever it waits in the driver
        self.given_up: str | None = None  # in words
        self._moved: BytesMoved | None = None
        self._last_look: tuple[Activity, BytesMoved | None] | None = None

    @property
    def name(self) -> str:
        try:
            return str(self.connection.get_settings().application_name)
        except asyncpg.InterfaceError:  # it was closed in the meantime
            return ""

    def send_much(self) -> None:
        """Counts the bytes that are sent from here on."""
        self._moved = self._moved or bytes_moved(self.connection)

    def look(self, activity: Activity, now: float) -> bool:
        """Whether it is silent: nothing is done for it, and nothing has changed since the last look."""
        moved = bytes_moved(self.connection)
        before, self._last_look = self._last_look, (activity, moved)
        sent = 0 if moved is None or self._moved is None else moved.sent - self._moved.sent
        grown = now - self.since >= SLOW_SECONDS + sent / SLOW_BYTES_PER_SECOND
        return grown and not activity.is_working(moved) and before == self._last_look

    def give_up(self, words: str) -> None:
        self.given_up = words
        with suppress(asyncpg.InterfaceError):  # it was closed in the meantime
            self.connection.terminate()
        self.scope.reschedule(0)


class Silence:
    """Watches the uses of a pool's connections."""

    def __init__(self, clock: Clock, connect: Callable[[], Awaitable[Any]], drop_idle: Callable[[], None]) -> None:
        self._clock = clock
        self._connect = connect
        self._drop_idle = drop_idle  # the router has most likely forgotten idle connections as well
        self.uses: set[Use] = set()

    def begin(self, connection: Any) -> Use:
        use = Use(connection, self._clock.monotonic())
        self.uses.add(use)
        return use

    async def watch(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            since = self._clock.monotonic() - SLOW_SECONDS
            slow = {use.name: use for use in self.uses if use.since <= since and use.given_up is None}
            if slow:
                await self._look_at(slow)
                await self._clock.sleep(LOOK_SECONDS - TICK_SECONDS)

    async def _look_at(self, slow: dict[str, Use]) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                asker = await self._connect()
        except _AWAY as error:
            self._give_up(self._silent(slow, {}), f"a new connection fails as well ({str(error) or 'it timed out'})")
            return
        except _NO_ANSWER:
            return  # it refuses, so it is reachable: too many connections, a restart
        try:
            async with asyncio.timeout(ASK_SECONDS):
                await self._ask(asker, slow)
        except _NO_ANSWER:
            return  # it answers everyone slowly: then only the limit of each statement ends it
        finally:
            asker.terminate()

    async def _ask(self, asker: Any, slow: dict[str, Use]) -> None:
        own: str = asker.get_settings().application_name
        found = {name: Activity(*rest) for name, *rest in await asker.fetch(_ASKED, [own, *slow])}
        if found.pop(own, Activity()).state != "active":
            return
        if silent := self._silent(slow, found):
            await asker.fetch(_END_TRANSACTIONS, [use.name for use in silent])
            self._give_up(silent, "PostgreSQL is not working on its statement")

    def _silent(self, slow: dict[str, Use], found: dict[str, Activity]) -> list[Use]:
        now = self._clock.monotonic()
        return [use for name, use in slow.items() if use in self.uses and use.look(found.get(name, Activity()), now)]

    def _give_up(self, silent: Collection[Use], why: str) -> None:
        for use in silent:
            seconds = round(self._clock.monotonic() - use.since)
            use.give_up(f"a connection to PostgreSQL was silent for {seconds} s and was given up: {why}")
        if silent:
            self._drop_idle()


def bytes_moved(connection: Any) -> BytesMoved | None:
    """None where the platform does not count them."""
    transport = getattr(connection, "_transport", None)  # the driver offers no other way to its socket
    end = None if transport is None else transport.get_extra_info("socket")
    if end is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        counted = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return BytesMoved(*struct.unpack_from("=QQ", counted, _TCP_INFO_AT))
    except (OSError, struct.error):  # a Unix socket, an old kernel
        return None
