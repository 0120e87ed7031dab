"""A wire to a server that answers as the test says."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from backstay.llm.credentials import Credentials
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from tests.llm.odd_servers import Answer, OddServer, answer

CHAT = "/v1/chat/completions"
KEY = "sk-secret-0123456789abcdef"
OK = answer('{"id":"x"}')


@asynccontextmanager
async def wire_to(
    url: str, key: str | Credentials | None = KEY, connections_max: int = 10, **more: Any
) -> AsyncIterator[Wire]:
    terms = {name: more.pop(name) for name in ("reply_bytes_max", "http") if name in more}
    wire = Wire(Endpoint(url, **more), key, connections_max, **terms)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()


@asynccontextmanager
async def wired(*answers: bytes | Answer, **more: Any) -> AsyncIterator[tuple[Wire, OddServer]]:
    async with OddServer(*answers).serving() as server, wire_to(f"{server.url}/v1", **more) as wire:
        yield wire, server


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
