"""One request, one reply; and when there is none, whether the request can have arrived."""

import asyncio
import contextlib
import gzip
import io
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.client_reqrep import ConnectionKey

from backstay import __version__
from backstay.core.errors import (
    ErrorCode,
    OutcomeUnknown,
    Permanent,
    Throttled,
    Transient,
    UsageError,
)
from backstay.core.failures import failure_of_exception
from backstay.llm.endpoint import Endpoint
from backstay.llm.wire import ERROR_BYTES_MAX, Wire
from tests.llm.odd_servers import Answer, OddServer, answer, chunked, hangs_up, resets, says_nothing, then_closes
from tests.llm.wire_rig import CHAT, KEY, OK, free_port, wire_to, wired


async def test_a_request_goes_out_as_it_was_written_and_is_signed() -> None:
    async with wired(OK) as (wire, server):
        reply = await wire.post(CHAT, '{"b":1.10,  "a":"é"}', 5, ref="ref-1")
    assert (reply.status, reply.text, reply.cut) == (200, '{"id":"x"}', False)
    assert server.bodies == ['{"b":1.10,  "a":"é"}'.encode()]
    assert server.targets == [CHAT]
    assert server.header("authorization") == f"Bearer {KEY}"
    assert server.header("content-type") == "application/json"
    assert server.header("user-agent") == f"backstay/{__version__}"
    assert server.header("x-client-request-id") == "ref-1"
    assert server.header("api-key") is None


async def test_without_a_key_or_a_reference_none_is_sent() -> None:
    async with wired(OK, key=None) as (wire, server):
        await wire.post(CHAT, "{}", 5)
        assert wire.account == ""
    assert server.header("authorization") is None
    assert server.header("x-client-request-id") is None


async def test_headers_of_a_reply_are_named_in_lower_case() -> None:
    async with wired(answer("{}", X_Request_ID="req_1")) as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).headers["x-request-id"] == "req_1"


@pytest.mark.parametrize(
    ("base", "path", "target"),
    [
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions", "/v1/chat/completions"),
        ("", "/v1/chat/completions", "/v1/chat/completions"),
        ("/", "/v1/embeddings", "/v1/embeddings"),
        ("/api/v3", "/v1/responses", "/api/v3/responses"),
        ("/v1", "/chat/completions", "/v1/chat/completions"),
        ("/v1", "/v1beta/models", "/v1/v1beta/models"),
        ("/openai/deployments/d?api-version=2", "/v1/embeddings", "/openai/deployments/d/embeddings?api-version=2"),
        ("/v1?a=1", "/v1/x?b=2#c", "/v1/x?a=1&b=2"),
        ("/v1", "//evil.example/x", "/v1//evil.example/x"),
        ("", "//evil.example/x", "//evil.example/x"),
        ("/v1", "/v1/batches/a%2Fb", "/v1/batches/a%2Fb"),
        ("/v1", "/v1/x y\r\nz", "/v1/x%20yz"),
    ],
)
async def test_the_base_url_stands_for_the_v1_of_a_path(base: str, path: str, target: str) -> None:
    async with OddServer(OK).serving() as server, wire_to(server.url + base) as wire:
        await wire.post(path, "{}", 5)
    assert server.targets == [target]
    assert server.header("host") == server.url.removeprefix("http://")


@pytest.mark.parametrize("path", ["", "v1/chat", "https://evil.example/v1", "@evil.example/"])
async def test_a_path_that_is_none_is_not_sent_anywhere(path: str) -> None:
    async with wired(OK) as (wire, server):
        with pytest.raises(Permanent, match="must begin with a slash"):
            await wire.post(path, "{}", 5)
    assert server.requests == []


@pytest.mark.parametrize("url", ["ftp://x/v1", "x.example/v1", "http://", "http://[::1/v1", "http://x:port/v1", ""])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="base URL"):
        Wire(Endpoint(url), KEY, 1)


def test_a_base_url_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(UsageError) as caught:
        Wire(Endpoint("https://me:hush@x.example/v1"), KEY, 1)
    assert "hush" not in str(caught.value)


async def test_connections_are_kept_and_used_again() -> None:
    async with wired(OK) as (wire, server):
        for _ in range(5):
            await wire.post(CHAT, "{}", 5)
        assert (len(server.requests), server.connections) == (5, 1)
        await asyncio.gather(*(wire.post(CHAT, "{}", 5) for _ in range(20)))
        assert server.connections <= 10


async def test_a_long_body_goes_out_whole() -> None:
    body = '{"a":"' + "x" * 3_000_000 + '"}'
    async with wired(OK) as (wire, server):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (await wire.post(CHAT, body, 10)).status == 200
    assert server.bodies == [body.encode()]
    assert server.header("content-type") == "application/json"


async def test_cookies_are_not_kept() -> None:
    async with wired(answer("{}", set_cookie="a=b")) as (wire, server):
        await wire.post(CHAT, "{}", 5)
        await wire.post(CHAT, "{}", 5)
    assert server.header("cookie", 1) is None


async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else() -> None:
    async with OddServer(OK).serving() as other:
        async with wired(answer("", 307, location=f"{other.url}/v1/chat")) as (wire, _):
            reply = await wire.post(CHAT, "{}", 5)
            assert (reply.status, reply.headers["location"]) == (307, f"{other.url}/v1/chat")
            assert (await wire.get("/v1/models")).status == 307
        assert other.requests == []


async def test_a_query_is_sent_with_a_get() -> None:
    async with wired(OK) as (wire, server):
        await wire.get(CHAT, {"metadata[ref]": "a b"})
    assert server.targets[0].startswith(CHAT + "?metadata")
    assert server.targets[0].endswith("=a+b")


# --- what never was sent


async def test_where_nobody_listens_nothing_was_sent() -> None:
    async with wire_to(f"http://127.0.0.1:{free_port()}/v1") as wire:
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
async def test_an_answer_that_breaks_off_or_cannot_be_read_leaves_the_outcome_unknown(odd: bytes | Answer) -> None:
    async with wired(odd) as (wire, server):
        with pytest.raises(OutcomeUnknown):
            await wire.post(CHAT, "{}", 5)
    assert len(server.requests) == 1, "it is never sent again by the client itself"


async def test_no_answer_in_time_leaves_the_outcome_unknown() -> None:
    async with wired(says_nothing) as (wire, _):
        with pytest.raises(OutcomeUnknown, match=r"no answer within 0.1 s"):
            await wire.post(CHAT, "{}", 0.1)


async def test_a_body_that_takes_for_ever_is_no_answer_in_time() -> None:
    async def dribbles(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
        await says_nothing(writer)

    async with wired(dribbles) as (wire, _):
        with pytest.raises(OutcomeUnknown, match="no answer within"):
            await wire.post(CHAT, "{}", 0.1)


async def test_a_kept_connection_that_is_closed_under_a_request_leaves_its_outcome_unknown() -> None:
    async with wired(OK, hangs_up) as (wire, server):
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


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_whose_body_breaks_off_is_a_refusal_all_the_same(status: int) -> None:
    odd = then_closes(answer('{"error":"no"}', status, content_length="500", retry_after="3"))
    async with wired(odd) as (wire, _):
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


# --- bounds


async def test_a_bomb_is_read_only_as_far_as_a_reply_may_be_large() -> None:
    bomb = gzip.compress(b'{"a":"' + b" " * 50_000_000)
    for odd in (answer(bomb, content_encoding="gzip"), chunked(bomb, content_encoding="gzip")):
        async with wired(odd, reply_bytes_max=100_000) as (wire, _):
            reply = await wire.post(CHAT, "{}", 5)
        assert (reply.status, len(reply.text), reply.cut) == (200, ERROR_BYTES_MAX, True)


@pytest.mark.parametrize("odd", [answer(b"x" * 5_000), chunked(b"x" * 3_000, b"x" * 2_000)])
async def test_a_reply_that_is_too_large_is_cut_and_says_so(odd: bytes) -> None:
    async with wired(odd, reply_bytes_max=4_999) as (wire, _):
        reply = await wire.post(CHAT, "{}", 5)
        assert (reply.text, reply.cut) == ("x" * 4_999, True)
    async with wired(odd, reply_bytes_max=5_000) as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).cut is False


async def test_of_a_refusal_only_the_beginning_is_read() -> None:
    async with wired(answer(b"x" * 10_000_000, 500)) as (wire, _):
        assert len((await wire.post(CHAT, "{}", 5)).text) == ERROR_BYTES_MAX


async def test_replies_may_be_packed_in_pieces_or_without_a_length() -> None:
    text = '{"id":"' + "é" * 100_000 + '"}'
    raw = text.encode()
    packed = gzip.compress(raw)
    for odd in (
        answer(packed, content_encoding="gzip"),
        chunked(packed[:50], packed[50:], content_encoding="gzip"),
        chunked(*(raw[n : n + 7_001] for n in range(0, len(raw), 7_001))),
        then_closes(b"HTTP/1.1 200 OK\r\n\r\n" + raw),
    ):
        async with wired(odd) as (wire, _):
            assert (await wire.post(CHAT, "{}", 5)).text == text


async def test_bytes_that_are_no_text_do_not_keep_a_reply_from_arriving() -> None:
    async with wired(answer(b'{"a":"\xff\xfe"}', content_type="application/json; charset=no-such-set")) as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).text == '{"a":"\udcff\udcfe"}'


# --- files


@asynccontextmanager
async def file_service(content: bytes = b"", status: int = 200) -> AsyncIterator[tuple[Wire, dict[str, Any]]]:
    seen: dict[str, Any] = {}

    async def take(request: web.Request) -> web.Response:
        seen["content_type"] = request.content_type
        async for part in await request.multipart():
            assert isinstance(part, aiohttp.BodyPartReader)
            seen[part.name or ""] = (part.filename, bytes(await part.read()))
        return web.json_response({"id": "file-1"}, status=status)

    async def give(request: web.Request) -> web.Response:
        return web.Response(body=content, status=status)

    service = web.Application(client_max_size=1 << 30)
    service.router.add_post("/v1/files", take)
    service.router.add_get("/v1/files/f/content", give)
    runner = web.AppRunner(service)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with wire_to(f"http://127.0.0.1:{runner.addresses[0][1]}/v1") as wire:
            yield wire, seen
    finally:
        await runner.cleanup()


async def test_a_file_is_uploaded_with_its_fields(tmp_path: Any) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"a":1}\n' * 100_000)
    async with file_service() as (wire, seen):
        reply = await wire.upload("/v1/files", {"purpose": "batch"}, "in.jsonl", (tmp_path / "in.jsonl").open("rb"))
    assert reply.text == '{"id": "file-1"}'
    assert seen == {
        "content_type": "multipart/form-data",
        "purpose": (None, b"batch"),
        "file": ("in.jsonl", b'{"a":1}\n' * 100_000),
    }


async def test_a_download_is_written_as_it_comes() -> None:
    async with file_service(b"line\n" * 200_000) as (wire, _):
        into = io.BytesIO()
        assert await wire.download("/v1/files/f/content", into, bytes_max=1_000_000) == 1_000_000
    assert into.getvalue() == b"line\n" * 200_000


async def test_a_download_that_is_too_large_is_given_up() -> None:
    async with file_service(b"line\n" * 200_000) as (wire, _):
        with pytest.raises(Permanent) as caught:
            await wire.download("/v1/files/f/content", io.BytesIO(), bytes_max=999_999)
    assert caught.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize(("status", "error"), [(404, Permanent), (429, Throttled), (500, Transient)])
async def test_a_download_that_is_refused_is_an_error_by_its_status(status: int, error: type[Exception]) -> None:
    async with file_service(b"no", status) as (wire, _):
        with pytest.raises(error):
            await wire.download("/v1/files/f/content", io.BytesIO(), bytes_max=10)


async def test_a_download_that_breaks_off_is_an_error() -> None:
    async with wired(then_closes(answer(b"half", content_length="100"))) as (wire, _):
        with pytest.raises(OutcomeUnknown):
            await wire.download("/v1/files/f/content", io.BytesIO(), bytes_max=1_000)
