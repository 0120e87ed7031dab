"""Senders of forms that no decent client would send: byte by byte over a socket, and aware of when they are cut off."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

BOUNDARY = "the-boundary"
MEGABYTE = 1 << 20
ANSWER_SECONDS = 60


class Heard(NamedTuple):
    """What came back, and how much had been sent by then. Status 0: the connection was cut without a word."""

    status: int
    head: str
    body: str
    sent_bytes: int


def part(name: str, value: bytes, filename: str | None = None, content_type: str | None = None) -> bytes:
    shown = f'; filename="{filename}"' if filename is not None else ""
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{shown}\r\n{kind}\r\n'
    return head.encode() + value


def form(*parts: bytes) -> bytes:
    return b"\r\n".join(parts) + f"\r\n--{BOUNDARY}--\r\n".encode()


def endless(first: bytes, piece: bytes, count: int) -> Iterator[bytes]:
    yield first
    for _ in range(count):
        yield piece


async def send(
    url: str,
    path: str,
    pieces: Iterator[bytes] | bytes,
    headers: dict[str, str] | None = None,
    length: int | None = None,
    content_type: str = f"multipart/form-data; boundary={BOUNDARY}",
    hangs_up: bool = False,
    method: str = "POST",
    pause: float = 0.0,
) -> Heard:
    """Sends until all is sent or an answer comes; chunked, unless a length is declared. It may pause between pieces."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    declared = {"content-length": str(length)} if length is not None else {"transfer-encoding": "chunked"}
    given = {"host": parts.netloc, "content-type": content_type, **declared, **(headers or {})}
    writer.write(f"{method} {path} HTTP/1.1\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in given.items()).encode())
    writer.write(b"\r\n")
    answered = asyncio.get_running_loop().create_task(reader.readuntil(b"\r\n\r\n"))
    pieces = iter([pieces]) if isinstance(pieces, bytes) else pieces
    sent = 0
    try:
        async for written in _write(writer, pieces, length is None, pause):
            sent += written
            if answered.done():
                break
        if hangs_up:
            return Heard(0, "", "", sent)
        async with asyncio.timeout(ANSWER_SECONDS):
            head = (await answered).decode()
            return Heard(int(head.split(" ")[1]), head.lower(), (await reader.read(4_000)).decode(), sent)
    except (ConnectionError, asyncio.IncompleteReadError):
        return Heard(0, "", "", sent)
    finally:
        answered.cancel()
        writer.close()


async def _write(
    writer: asyncio.StreamWriter, pieces: Iterator[bytes], chunked: bool, pause: float
) -> AsyncIterator[int]:
    try:
        for piece in filter(None, pieces):  # an empty one would say that this was all
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if chunked else piece)
            await writer.drain()
            yield len(piece)
            await asyncio.sleep(pause)
        if chunked:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except ConnectionError:
        return  # the answer may be there all the same
