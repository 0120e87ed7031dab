"""Requests on other people's behalf: they go outside, or nowhere."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Permanent, Transient, UsageError
from backstay.handlers.outgoing import REPLY_BYTES_MAX, Outgoing

WORLD = "93.184.216.34"


class Names(AbstractResolver):
    """A name server that answers as it is told, a list of addresses at a time; the last stays."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not addresses:
            raise OSError("no such name")
        return [_found(host, address, port) for address in addresses]

    async def close(self) -> None: ...


def _found(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)


class Server:
    """Something inside that must not be reached, or may be: it counts who comes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.visits: list[str] = []


@asynccontextmanager
async def server(answer: Callable[[web.Request], Any]) -> AsyncIterator[Server]:
    async def visit(request: web.Request) -> web.StreamResponse:
        made.visits.append(await request.text())
        said: web.StreamResponse = await answer(request)
        return said

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", visit)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = Server(runner.addresses[0][1])
    yield made
    await runner.cleanup()


async def fine(request: web.Request) -> web.Response:
    return web.Response(text="fine")


async def send(outgoing: Outgoing, url: str) -> int | HandlerError:
    try:
        return (await outgoing.post(url, "{}", {}, 2)).status
    except HandlerError as error:
        return error
    finally:
        await outgoing.close()


def forms_of(address: IPv4Address) -> list[str]:
    """The ways there are to write an IPv4 address into a URL."""
    a, b, c, d = address.packed
    whole = int(address)
    quads = [f"{a}.{b}.{c}.{d}", f"{a:#x}.{b:#x}.{c:#x}.{d:#x}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"{a}.{b}.{c}.{d:#x}"]
    short = [f"{a}.{b}.{c * 256 + d}", f"{a}.{(b << 16) + c * 256 + d}", str(whole), f"{whole:#x}", f"0{whole:o}"]
    padded = [f"{a:03}.{b:03}.{c:03}.{d:03}", f"{a}.{b}.{c}.{d}.", f"0x{whole:08X}", f"{a}%2e{b}.{c}.{d}"]
    mapped = [f"[::ffff:{address}]", f"[::ffff:{whole >> 16:x}:{whole & 0xFFFF:x}]", f"[::{address}]"]
    tunnels = [f"[64:ff9b::{address}]", f"[2002:{whole >> 16:x}:{whole & 0xFFFF:x}::1]", f"[0:0:0:0:0:ffff:{address}]"]
    disguised = [f"example.com@{address}", f"{address}%00.example.com", f"u:p@{address}", f"{address}\\@example.com"]
    return [*quads, *short, *padded, *mapped, *tunnels, *disguised]


INSIDE = ["127.0.0.1", "127.0.0.2", "0.0.0.0", "10.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.1.1", "100.64.0.1"]


async def test_no_way_to_write_an_address_inside_gets_a_socket():
    async with server(fine) as inside:
        urls = [
            f"{scheme}://{host}:{inside.port}/{path}"
            for address in INSIDE
            for host in forms_of(IPv4Address(address))
            for scheme in ("http", "https")
            for path in ("", "x?y=1")
        ]
        others = ("[::1]", "[::]", "[fe80::1]", "[fd00::1]", "[fe80::1%25lo]")
        urls += [f"http://{host}:{inside.port}/" for host in others]
        assert len(urls) >= 500
        outgoing = Outgoing(resolver=Names([WORLD]))
        for url in urls:
            with pytest.raises(UsageError):
                outgoing.check(url)
            with pytest.raises(Permanent) as refused:
                await outgoing.post(url, "{}", {}, 2)
            assert refused.value.code is ErrorCode.FORBIDDEN
        assert inside.visits == []


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["::1"], [WORLD, "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["10.9.8.7"]]
)
async def test_a_name_that_leads_inside_is_refused(addresses):
    async with server(fine) as inside:
        outgoing = Outgoing(resolver=Names(addresses))
        with pytest.raises(UsageError, match="internal address"):
            await outgoing.check_name(f"http://harmless.example:{inside.port}/")
        refused = await send(outgoing, f"http://harmless.example:{inside.port}/")
        assert isinstance(refused, Permanent)
        assert refused.code is ErrorCode.FORBIDDEN
        assert inside.visits == []


async def test_a_name_that_changes_its_mind_after_the_check_is_refused():
    async with server(fine) as inside:
        names = Names([WORLD], ["127.0.0.1"])
        outgoing = Outgoing(resolver=names)
        await outgoing.check_name(f"http://rebinding.example:{inside.port}/")
        assert isinstance(await send(outgoing, f"http://rebinding.example:{inside.port}/"), Permanent)
        assert inside.visits == []


async def test_a_name_is_resolved_once_and_that_answer_is_connected_to():
    async with server(fine) as inside:
        names = Names(["192.0.2.1"], ["127.0.0.1"])  # were it asked again, it would lead inside
        outgoing = Outgoing(f"rebinding.example:{inside.port}", names)
        assert isinstance(await send(outgoing, f"http://rebinding.example:{inside.port}/"), HandlerError)
        assert names.asked == ["rebinding.example"]
        assert inside.visits == []


async def test_a_redirect_is_an_answer_and_not_a_way():
    async with server(fine) as inside:

        async def elsewhere(request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{inside.port}/")

        async with server(elsewhere) as outside:
            outgoing = Outgoing(f"127.0.0.1:{outside.port}")
            assert await send(outgoing, f"http://127.0.0.1:{outside.port}/") == 307
        assert len(outside.visits) == 1
        assert inside.visits == []


async def test_an_allowed_place_is_reached_on_its_port_only():
    async with server(fine) as allowed, server(fine) as other:
        assert await send(Outgoing(f"127.0.0.1:{allowed.port}"), f"http://127.0.0.1:{allowed.port}/") == 200
        assert isinstance(
            await send(Outgoing(f"127.0.0.1:{allowed.port}"), f"http://127.0.0.1:{other.port}/"), Permanent
        )
        by_name = Outgoing(f"worker.local:{allowed.port}", Names(["127.0.0.1"]))
        assert await send(by_name, f"http://Worker.local:{allowed.port}/") == 200
        stranger = Outgoing(f"worker.local:{allowed.port}", Names(["127.0.0.1"]))
        assert isinstance(await send(stranger, f"http://stranger.example:{allowed.port}/"), Permanent)
    assert len(allowed.visits) == 2
    assert other.visits == []


async def test_the_socket_itself_is_refused_for_an_address_that_nobody_checked():
    guard = Outgoing()._guard
    with pytest.raises(OSError, match="internal address"):
        guard.open_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    guard.open_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (WORLD, 80))).close()


async def test_a_name_without_an_address_is_tried_again_later():
    outgoing = Outgoing(resolver=Names([]))
    await outgoing.check_name("http://nowhere.example/")
    assert isinstance(await send(outgoing, "http://nowhere.example/"), Transient)


async def test_nobody_there_was_never_sent_and_no_answer_is_unknown():
    heard_enough = asyncio.Event()

    async def silent(request: web.Request) -> web.Response:
        await heard_enough.wait()
        return web.Response()

    async with server(silent) as slow:
        place = f"127.0.0.1:{slow.port}"
        outgoing = Outgoing(place)
        with pytest.raises(OutcomeUnknown):
            await outgoing.post(f"http://{place}/", "{}", {}, 0.3)
        await outgoing.close()
        heard_enough.set()
    assert isinstance(await send(Outgoing(place), f"http://{place}/"), Transient)


async def test_of_an_endless_answer_only_the_beginning_is_read():
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-encoding": "gzip"})
        await answer.prepare(request)
        for _ in range(10_000):
            await answer.write(b"x" * 10_000)
        return answer

    async with server(endless) as talker:
        outgoing = Outgoing(f"127.0.0.1:{talker.port}")
        answer = await outgoing.post(f"http://127.0.0.1:{talker.port}/", "{}", {"x-own": "1"}, 10)
        assert answer.status == 200
        assert len(answer.text) == REPLY_BYTES_MAX
        await outgoing.close()
