"""When no whole reply comes: whether the request can have arrived."""

import asyncio
import contextlib
import gzip
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from backstay.core.errors import ErrorCode, OutcomeUnknown, Transient
from backstay.core.failures import failure_of_exception
from tests.llm.odd_servers import Answer, OddServer, answer, chunked, hangs_up, resets, says_nothing, then_closes
from tests.llm.wire_rig import CHAT, OK, free_port, wire_to, wired

over_both = pytest.mark.parametrize("http", ["own", "aiohttp"])

# --- what never was sent


@over_both
async def test_where_nobody_listens_nothing_was_sent(http: str) -> None:
    async with wire_to(f"http://127.0.0.1:{free_port()}/v1", http=http) as wire:
        with pytest.raises(Transient) as caught:
            await wire.post(CHAT, "{}", 5)
    assert caught.value.code is ErrorCode.GW_5XX


async def test_what_has_no_address_was_not_sent_to() -> None:
    async with wire_to("http://backstay.invalid/v1") as wire:
        with pytest.raises(Transient):
            await wire.post(CHAT, "{}", 5)


async def test_a_handshake_that_fails_means_that_nothing_was_sent() -> None:
    async def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("", 400))

    async with (
        await asyncio.start_server(speak_plainly, "127.0.0.1", 0) as server,
        wire_to(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1") as wire,
    ):
        with pytest.raises(Transient) as caught:
            await wire.post(CHAT, "{}", 60)
    assert caught.value.code is ErrorCode.GW_5XX


async def test_a_handshake_that_never_ends_means_that_nothing_was_sent() -> None:
    async with OddServer(says_nothing).serving() as server, wire_to(server.url.replace("http", "https")) as wire:
        with pytest.raises(Transient) as caught:
            await wire.post(CHAT, "{}", 0.2)
    assert caught.value.code is ErrorCode.GW_TIMEOUT


async def test_on_a_closed_wire_nothing_is_sent() -> None:
    async with wired(OK) as (wire, server):
        await wire.close()
        with pytest.raises(Transient, match="closed"):
            await wire.post(CHAT, "{}", 5)
    assert server.requests == []


async def test_a_wire_can_be_opened_twice_and_again() -> None:
    async with wired(OK) as (wire, _):
        await wire.open()
        await wire.close()
        await wire.close()
        await wire.open()
        assert (await wire.post(CHAT, "{}", 5)).status == 200


# --- what may have arrived


@over_both
@pytest.mark.parametrize(
    "odd",
    [
        hangs_up,
        resets,
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\x00line\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        then_closes(b"HTTP/1.1 200 OK\r\nconte"),
        then_closes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"),
        then_closes(chunked(b"{", end=False)),
        then_closes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}"),
        answer(b"no gzip at all", content_encoding="gzip"),
        answer(gzip.compress(b'{"id":1}')[:-12], content_encoding="deflate"),
    ],
    ids=lambda odd: odd.__name__ if callable(odd) else repr(odd[:60]),
)
async def test_an_answer_that_breaks_off_or_cannot_be_read_leaves_the_outcome_unknown(
    odd: bytes | Answer, http: str
) -> None:
    async with wired(odd, http=http) as (wire, server):
        with pytest.raises(OutcomeUnknown):
            await wire.post(CHAT, "{}", 5)
    assert len(server.requests) == 1, "it is never sent again by the client itself"


@over_both
async def test_no_answer_in_time_leaves_the_outcome_unknown(http: str) -> None:
    async with wired(says_nothing, http=http) as (wire, _):
        with pytest.raises(OutcomeUnknown, match=r"no answer within 0.1 s"):
            await wire.post(CHAT, "{}", 0.1)


async def test_a_body_that_takes_for_ever_is_no_answer_in_time() -> None:
    async def dribbles(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
        await says_nothing(writer)

    async with wired(dribbles) as (wire, _):
        with pytest.raises(OutcomeUnknown, match="no answer within"):
            await wire.post(CHAT, "{}", 0.1)


@over_both
async def test_a_kept_connection_that_is_closed_under_a_request_leaves_its_outcome_unknown(http: str) -> None:
    async with wired(OK, hangs_up, http=http) as (wire, server):
        await wire.post(CHAT, "{}", 5)
        with pytest.raises(OutcomeUnknown):
            await wire.post(CHAT, "{}", 5)
    assert (len(server.requests), server.connections) == (2, 1), "what may have been paid is not sent again"


async def test_a_connection_that_broke_does_not_spoil_the_next_request() -> None:
    async with wired(then_closes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"), OK) as (wire, _):
        with pytest.raises(OutcomeUnknown):
            await wire.post(CHAT, "{}", 5)
        assert (await wire.post(CHAT, "{}", 5)).status == 200


async def test_what_follows_an_answer_is_not_taken_for_the_next_one() -> None:
    async with wired(OK + answer('{"id":"evil"}'), OK) as (wire, _):
        await wire.post(CHAT, "{}", 5)
        assert (await wire.post(CHAT, "{}", 5)).text == '{"id":"x"}'


@over_both
@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_whose_body_breaks_off_is_a_refusal_all_the_same(status: int, http: str) -> None:
    odd = then_closes(answer('{"error":"no"}', status, content_length="500", retry_after="3"))
    async with wired(odd, http=http) as (wire, _):
        reply = await wire.post(CHAT, "{}", 5)
    assert (reply.status, reply.headers["retry-after"]) == (status, "3")


OS_ERROR = OSError(1, "x")
AT = ConnectionKey("h", 1, False, True, None, None, None)
ABOUT: Any = None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (aiohttp.ClientConnectorError(AT, OS_ERROR), "infrastructure"),
        (aiohttp.ClientConnectorDNSError(AT, OS_ERROR), "infrastructure"),
        (aiohttp.ClientProxyConnectionError(AT, OS_ERROR), "infrastructure"),
        (aiohttp.ClientConnectorSSLError(AT, OS_ERROR), "infrastructure"),
        (aiohttp.ClientConnectorCertificateError(AT, OS_ERROR), "infrastructure"),
        (aiohttp.ConnectionTimeoutError(), "infrastructure"),
        (aiohttp.ServerTimeoutError(), "unknown"),
        (aiohttp.SocketTimeoutError(), "unknown"),
        (TimeoutError(), "unknown"),
        (aiohttp.ServerDisconnectedError(), "unknown"),
        (aiohttp.ClientOSError(104, "reset"), "unknown"),
        (aiohttp.ClientConnectionResetError(), "unknown"),
        (aiohttp.ClientConnectionError("closed"), "unknown"),
        (aiohttp.ClientPayloadError("cut"), "unknown"),
        (aiohttp.ClientHttpProxyError(ABOUT, (), status=407), "held"),
        (aiohttp.ClientHttpProxyError(ABOUT, (), status=502), "infrastructure"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_every_error_of_the_client_says_whether_the_request_can_have_arrived(error: Exception, expected: str) -> None:
    with contextlib.suppress(AttributeError):
        error.request_info = aiohttp.RequestInfo(ABOUT, "POST", ABOUT, ABOUT)  # type: ignore[attr-defined]
    assert failure_of_exception(error).kind == expected
