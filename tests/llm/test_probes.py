"""Every connection to a provider is probed while it is silent, so that no NAT forgets a call that is paid for."""

import asyncio
import gc
import io
import socket
from collections.abc import Awaitable, Callable

import pytest

from backstay.llm.http.connection import send_probes
from backstay.llm.http.wire import Wire
from tests.llm.odd_servers import OddServer, answer, says_nothing
from tests.llm.wire_rig import CHAT, wire_to

Ask = Callable[[Wire], Awaitable[object]]
ASKS: dict[str, Ask] = {
    "call": lambda wire: wire.post(CHAT, "{}", 60),
    "question": lambda wire: wire.get("/v1/models"),
    "upload": lambda wire: wire.upload("/v1/files", {"purpose": "batch"}, "x.jsonl", io.BytesIO(b"{}\n")),
    "download": lambda wire: wire.download("/v1/files/x/content", io.BytesIO(), 100),
}


def sockets_to(url: str) -> list[socket.socket]:
    """Those of this process whose other end is there."""
    port = int(url.rpartition(":")[2])
    # By its type: isinstance asks the object itself, and what other tests left behind may answer with an error.
    found = [each for each in gc.get_objects() if issubclass(type(each), socket.socket) and each.fileno() >= 0]
    return [each for each in found if each.family == socket.AF_INET and _port_of_peer(each) == port]


def _port_of_peer(one: socket.socket) -> int | None:
    try:
        return int(one.getpeername()[1])
    except OSError:
        return None


def is_probed(one: socket.socket) -> bool:
    idle, every, most = (
        one.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1 and (idle, every, most) == (60, 30, 5)


async def check_probes(wire: Wire, server: OddServer, ask: Ask) -> None:
    """Looks at the sockets of a request that is under way."""
    asking = asyncio.ensure_future(ask(wire))
    await server.asked.wait()
    assert [is_probed(one) for one in sockets_to(server.url)] == [True]
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the platform has other names for these options")
@pytest.mark.parametrize("http", ["own", "aiohttp"])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_a_silent_connection_is_probed(ask: Ask, http: str) -> None:
    async with OddServer(says_nothing).serving() as server, wire_to(f"{server.url}/v1", http=http) as wire:
        await check_probes(wire, server, ask)


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the platform has other names for these options")
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_silent_connection_through_a_proxy_is_probed(
    scheme: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def build_tunnel(writer: asyncio.StreamWriter) -> None:
        if scheme == "https":
            writer.write(answer("", 200))
        await says_nothing(writer)

    async with OddServer(build_tunnel).serving() as proxy:
        monkeypatch.setenv("all_proxy", proxy.url)
        async with wire_to(f"{scheme}://api.example/v1") as wire:
            await check_probes(wire, proxy, ask)


def test_options_that_the_platform_calls_otherwise_or_lacks_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = socket.TCP_KEEPIDLE
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", idle, raising=False)  # as on macOS
    monkeypatch.delattr(socket, "TCP_KEEPCNT")
    monkeypatch.setattr(socket, "TCP_KEEPINTVL", 9_999)  # which this kernel does not know
    with socket.socket() as one:
        send_probes(one)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert one.getsockopt(socket.IPPROTO_TCP, idle) == 60
