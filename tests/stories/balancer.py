"""A load balancer as small as can be: connections go to the servers in turn, and round those that are gone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

HOST = "127.0.0.1"
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Balancer:
    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._turn = count()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await self._living()
        if server is not None:
            await asyncio.gather(_pour(reader, server[1]), _pour(server[0], writer))
        writer.close()

    async def _living(self) -> Ends | None:
        start = next(self._turn)
        for n in range(len(self._ports)):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(HOST, self._ports[(start + n) % len(self._ports)])
        return None


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def balancing(ports: Sequence[int]) -> AsyncIterator[str]:
    """The address in front of the servers."""
    server = await asyncio.start_server(Balancer(ports).carry, HOST, 0)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
