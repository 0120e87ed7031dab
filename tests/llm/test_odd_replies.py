"""Odd replies are read as aiohttp reads them: what was answered was paid for, and must not be thrown away."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import pytest

from backstay.core.errors import HandlerError
from backstay.llm.http.connection import HEAD_BYTES_MAX
from tests.llm.odd_bodies import CORPUS
from tests.llm.odd_replies import SAID, Odd
from tests.llm.odd_servers import Answer, OddServer, answer
from tests.llm.wire_rig import CHAT, wire_to

NEXT = '{"id":"next"}'
SECONDS = 20.0
HELD_SECONDS = 0.2

# Where the two differ on purpose. There are no others.
DIFFERENT = {
    "packed: gzip with something after it": "read: what is behind the last member says nothing about the answer",
    "packed: gzip with zeros after it": "read: some fill up behind the last member",
    "packed: gzip that is cut": "refused: aiohttp gives half of a body for the whole",
    "packed: gzip whose second member is cut": "refused: aiohttp gives half of a body for the whole",
    "packed: zstd": "refused: it is cut, and was not asked for; aiohttp gives half of a body for the whole",
    "packed: x-gzip": "read: it is another word for gzip (RFC 9110, 8.4.1.3), which aiohttp does not know",
    "length: longer than its length": "read: by its own length it is whole; the connection is closed after it",
    "before: 101": "refused: nobody asked for another protocol, so it is no answer to the request",
    "chunks: an empty coding": "refused by the parser, whose next version aiohttp does not have yet",
    "bodiless: 503 that is cut": "read: it is a refusal by its status alone",
}


class Reading(NamedTuple):
    """What a client made of a reply; a status of 0 stands for any error."""

    status: int
    headers: dict[str, str]
    text: str


ERROR = Reading(0, {}, "")


def script(odd: Odd) -> Answer:
    async def play(writer: asyncio.StreamWriter) -> None:
        for piece in odd.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)  # the other side reads it before the next one
        match odd.ends:
            case "closes":
                writer.close()
            case "resets":
                _reset(writer)
            case "holds":
                await writer.wait_closed()

    return play


def _reset(writer: asyncio.StreamWriter) -> None:
    at_once = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    writer.transport.abort()


@asynccontextmanager
async def serving(odd: Odd) -> AsyncIterator[str]:
    """A server whose first reply is odd; all others are in order."""
    async with OddServer(script(odd), answer(NEXT)).serving() as server:
        yield server.url


async def read_by_aiohttp(url: str, seconds: float) -> Reading:
    """With bounds as wide as ours: by itself it takes 128 headers of 8 kB, and we take 64 kB of them in all."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with (
            aiohttp.ClientSession(
                timeout=timeout, max_line_size=HEAD_BYTES_MAX, max_field_size=HEAD_BYTES_MAX, max_headers=1_000
            ) as session,
            session.post(f"{url}{CHAT}", data=b"{}", allow_redirects=False) as reply,
        ):
            headers = {name.lower(): value for name, value in reply.headers.items()}
            return Reading(reply.status, headers, (await reply.read()).decode("utf-8", "surrogateescape"))
    except (aiohttp.ClientError, TimeoutError):
        return ERROR


async def read_by_us(url: str, seconds: float) -> tuple[Reading, Reading]:
    """What we make of the reply, and of the next one over the same connections."""
    async with wire_to(f"{url}/v1", key=None) as wire:
        readings = []
        for seconds_max in (seconds, SECONDS):
            try:
                reply = await wire.post(CHAT, "{}", seconds_max)
                readings.append(Reading(reply.status, dict(reply.headers), reply.text))
            except HandlerError:
                readings.append(ERROR)
    return readings[0], readings[1]


async def readings(odd: Odd) -> tuple[Reading, Reading, Reading]:
    seconds = HELD_SECONDS if odd.ends == "holds" else SECONDS
    async with serving(odd) as url:
        theirs = await read_by_aiohttp(url, seconds)
    async with serving(odd) as url:
        return theirs, *await read_by_us(url, seconds)


@pytest.mark.parametrize("name", [name for name in CORPUS if name not in DIFFERENT])
async def test_an_odd_reply_is_read_as_aiohttp_reads_it(name: str) -> None:
    theirs, ours, following = await readings(CORPUS[name])
    assert ours == theirs
    assert "odd" not in following.text, "nothing of a reply is read as another's"
    assert following.text == NEXT or CORPUS[name].ends != "stays"


@pytest.mark.parametrize("name", DIFFERENT)
async def test_an_odd_reply_is_read_otherwise_only_for_a_reason(name: str) -> None:
    theirs, ours, following = await readings(CORPUS[name])
    assert ours != theirs, "it need not be listed any more"
    assert (ours == ERROR) == DIFFERENT[name].startswith("refused")
    assert "odd" not in following.text
    if ours.status == 200:
        assert ours.text == SAID.decode()[: int(ours.headers["content-length"])]
