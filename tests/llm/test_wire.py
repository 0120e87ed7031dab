"""One request, one reply: what goes out, how much of an answer is read, and how files go and come."""

import asyncio
import gzip
import io
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from backstay import __version__
from backstay.core.errors import ErrorCode, OutcomeUnknown, Permanent, Throttled, Transient, UsageError
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.connection import ERROR_BYTES_MAX, unpacker
from backstay.llm.http.wire import Wire
from tests.llm.odd_servers import OddServer, answer, chunked, then_closes
from tests.llm.wire_rig import CHAT, KEY, OK, wire_to, wired


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


@pytest.mark.parametrize(
    ("url", "shorter"),
    [
        ("https://x.example/v1/chat/completions", "https://x.example/v1"),
        ("https://x.example/v1/chat/completions/", "https://x.example/v1"),
        ("https://x.example/v1/completions", "https://x.example/v1"),
        ("https://x.example/api/v3/responses", "https://x.example/api/v3"),
        ("https://x.example/embeddings", "https://x.example"),
        (
            "https://x.example/openai/deployments/d/chat/completions?api-version=2",
            "https://x.example/openai/deployments/d?api-version=2",
        ),
    ],
)
def test_a_base_url_with_the_path_of_an_endpoint_is_refused_with_the_right_one(url: str, shorter: str) -> None:
    with pytest.raises(UsageError, match="must not end in /") as caught:
        Wire(Endpoint(url), KEY, 1)
    assert caught.value.hint == f"give {shorter}"
    Wire(Endpoint(shorter), KEY, 1)


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


# --- bounds


async def test_a_bomb_is_read_only_as_far_as_a_reply_may_be_large() -> None:
    bomb = gzip.compress(b'{"a":"' + b" " * 50_000_000)
    behind = gzip.compress(b'{"a":"') + bomb
    for odd in (
        answer(bomb, content_encoding="gzip"),
        chunked(bomb, content_encoding="gzip"),
        answer(behind, content_encoding="gzip"),
    ):
        async with wired(odd, reply_bytes_max=100_000) as (wire, _):
            reply = await wire.post(CHAT, "{}", 5)
        assert (reply.status, len(reply.text), reply.cut) == (200, ERROR_BYTES_MAX, True)


@pytest.mark.parametrize("first", [1, 10, 11])
def test_a_bomb_behind_another_member_is_not_unpacked_either(first: int) -> None:
    unpack = unpacker("gzip")
    assert unpack is not None
    packed = gzip.compress(b"x" * first) + gzip.compress(b" " * 10_000_000)
    assert len(unpack(packed, 10)) == 10


async def test_an_answer_packed_in_very_many_pieces_is_given_up() -> None:
    few, many = gzip.compress(b"") * 500 + gzip.compress(b"{}"), gzip.compress(b"") * 2_000
    async with wired(answer(few, content_encoding="gzip"), answer(many, content_encoding="gzip")) as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).text == "{}"
        with pytest.raises(OutcomeUnknown, match="more than 1000 pieces"):
            await wire.post(CHAT, "{}", 5)


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
