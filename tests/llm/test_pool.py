"""Connections to a provider: kept, bounded, and none of them ever gives one request another's answer."""

import asyncio

import pytest

from backstay.core.errors import ErrorCode, OutcomeUnknown, Transient
from backstay.llm.http.connection import LargeReplies
from backstay.llm.http.wire import Pool
from tests.llm.odd_servers import OddServer, answer, says_nothing, then_closes
from tests.llm.wire_rig import CHAT, OK, wire_to, wired


async def test_no_more_connections_are_opened_than_allowed() -> None:
    async with OddServer(OK).serving() as server, wire_to(f"{server.url}/v1", connections_max=3) as wire:
        await asyncio.gather(*(wire.post(CHAT, "{}", 5) for _ in range(50)))
    assert (len(server.requests), server.connections) == (50, 3)


async def test_who_gets_no_connection_in_time_has_sent_nothing() -> None:
    async with OddServer(says_nothing).serving() as server, wire_to(f"{server.url}/v1", connections_max=1) as wire:
        first = asyncio.ensure_future(wire.post(CHAT, "{}", 5))
        await asyncio.sleep(0)
        with pytest.raises(Transient, match="no connection") as caught:
            await wire.post(CHAT, "{}", 0.2)
        first.cancel()
    assert caught.value.code is ErrorCode.GW_TIMEOUT


async def test_a_connection_that_lay_idle_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstay.llm.http.wire.KEEPALIVE_SECONDS", 0.0)
    async with wired(OK) as (wire, server):
        await wire.post(CHAT, "{}", 5)
        await wire.post(CHAT, "{}", 5)
    assert server.connections == 2


async def test_who_is_cut_off_leaves_no_answer_for_the_next() -> None:
    async def late(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")
        await writer.drain()
        begun.set()
        await says_nothing(writer)

    begun = asyncio.Event()
    async with wired(late, OK) as (wire, server):
        first = asyncio.ensure_future(wire.post(CHAT, "{}", 5))
        await begun.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert (await wire.post(CHAT, "{}", 5)).text == '{"id":"x"}'
    assert server.connections == 2


async def test_what_comes_before_the_answer_is_not_the_answer() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    async with wired(hints + OK) as (wire, _):
        reply = await wire.post(CHAT, "{}", 5)
    assert (reply.status, reply.text) == (200, '{"id":"x"}')
    assert "link" not in reply.headers


@pytest.mark.parametrize(
    "odd",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        answer(b"\x28\xb5\x2f\xfd", content_encoding="zstd"),
    ],
)
async def test_an_answer_in_a_tongue_nobody_asked_for_leaves_the_outcome_unknown(odd: bytes) -> None:
    async with wired(odd) as (wire, _):
        with pytest.raises(OutcomeUnknown):
            await wire.post(CHAT, "{}", 2)


async def test_a_server_that_closes_after_its_answer_is_met_anew() -> None:
    async with wired(then_closes(answer("{}", connection="close")), OK) as (wire, server):
        await wire.post(CHAT, "{}", 5)
        await wire.post(CHAT, "{}", 5)
    assert server.connections == 2


async def test_an_answer_without_a_body_ends_with_its_headers() -> None:
    async with wired(b"HTTP/1.1 204 No Content\r\n\r\n") as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).text == ""


async def test_names_are_looked_up_once_for_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, asked = asyncio.get_running_loop(), []
    look_up = loop.getaddrinfo

    async def counted(host: str, *more: object, **options: object) -> object:
        asked.append(host)
        return await look_up(host, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "getaddrinfo", counted)
    async with OddServer(OK).serving() as server:
        pool = Pool("127.0.0.1", int(server.url.rpartition(":")[2]), False, 10, 1_000)
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
        await asyncio.gather(*(pool.exchange(head, b"", 5, 5) for _ in range(10)))
        pool.close()
    assert asked.count("127.0.0.1") == 1


class Reader:
    def __init__(self) -> None:
        self.reads = False

    def read_on(self) -> None:
        self.reads = True


def test_large_answers_take_turns() -> None:
    crowd = LargeReplies(at_once_max=2)
    first, second, third, fourth = (Reader() for _ in range(4))
    assert crowd.enter(first)
    assert crowd.enter(second)
    assert crowd.enter(first), "who is in stays in"
    assert not crowd.enter(third)
    assert not crowd.enter(fourth)
    crowd.leave(third)
    crowd.leave(first)
    assert (third.reads, fourth.reads) == (False, True)


async def test_many_large_answers_at_once_all_arrive_a_few_at_a_time() -> None:
    large = answer(b'{"a":"' + b"x" * 3_000_000 + b'"}')
    async with wired(large) as (wire, _):
        replies = await asyncio.gather(*(wire.post(CHAT, "{}", 30) for _ in range(10)))
    assert {len(reply.text) for reply in replies} == {3_000_008}
