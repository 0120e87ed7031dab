"""What comes in as a form, whole or hostile, on a route of its own."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI, Request

from backstay.artifacts import Artifacts, artifacts_at
from backstay.server import problems, uploads
from backstay.server.problems import Problem
from backstay.server.uploads import FORM_BYTES_MAX, PARTS_MAX, Head, receive
from tests.server.rig import served
from tests.server.senders import MEGABYTE, Heard, endless, form, part, send

BYTES_MAX = 8 * MEGABYTE
FILE = part("file", b"", "a.pdf", "application/pdf")

Send = Callable[..., Awaitable[Heard]]


class Desk:
    """A route that takes files in, and remembers what its watch saw."""

    def __init__(self, folder: Path) -> None:
        self.artifacts = artifacts_at(str(folder))
        self.head: Head | None = None
        self.seen: list[bytes] = []
        self.refuse_at_bytes: int | None = None
        self.done = asyncio.Event()
        self.app = FastAPI()
        problems.install(self.app)
        self.app.add_api_route("/api/take", self.take, methods=["POST"])

    async def take(self, request: Request) -> dict[str, Any]:
        try:
            return await self._take(request)
        finally:
            self.done.set()

    async def _take(self, request: Request) -> dict[str, Any]:
        received = await receive(
            request,
            self.artifacts,
            fields={"purpose", "note"},
            bytes_max=BYTES_MAX,
            begin=self.begin,
        )
        shown = {name: getattr(received, name) for name in received.__slots__}
        return {**shown, "fields": dict(received.fields)}

    def begin(self, head: Head) -> uploads.Watch:
        self.head = head
        if head.fields.get("purpose") == "refused":
            raise Problem(400, "not this purpose")
        return self.watch

    async def watch(self, piece: bytes) -> None:
        self.seen.append(piece)
        if self.refuse_at_bytes is not None and sum(map(len, self.seen)) >= self.refuse_at_bytes:
            raise Problem(422, "seen enough")

    async def names(self) -> list[str]:
        return [name async for name in self.artifacts.names("")]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


@pytest.fixture
async def url(desk: Desk) -> AsyncIterator[str]:
    async with served(desk.app) as address:
        yield address


async def stored(artifacts: Artifacts, name: str) -> bytes:
    return b"".join([piece async for piece in artifacts.get(name)])


async def test_a_file_arrives_with_its_name_type_digest_and_all_fields(desk: Desk, url: str) -> None:
    body = b"\r\n--the-bound\r\n--" + b"line\n" * 200_000 + b"\r\n-"
    sent = aiohttp.FormData({"purpose": "x"}, quote_fields=False)
    sent.add_field("file", body, filename="C:\\tmp\\Ünï code.pdf", content_type="application/pdf")
    sent.add_field("note", "after the file: ü")
    async with aiohttp.ClientSession() as session, session.post(f"{url}/api/take", data=sent) as answer:
        said = await answer.json()
    assert answer.status == 200, said
    assert said["filename"] == "Ünï code.pdf"
    assert said["content_type"] == "application/pdf"
    assert (said["bytes"], said["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert said["fields"] == {"purpose": "x", "note": "after the file: ü"}
    assert desk.head is not None
    assert desk.head.fields == {"purpose": "x"}, "what must come before the file is known when it begins"
    assert b"".join(desk.seen) == body
    assert await stored(desk.artifacts, said["blob"]) == body


@pytest.mark.parametrize("cut", range(1, 140, 7))
async def test_where_the_bytes_are_cut_into_pieces_changes_nothing(desk: Desk, url: str, cut: int) -> None:
    whole = form(part("purpose", b"p"), part("file", b"a\r\n--the-boundarx\r\nb", "f.txt"), part("note", b"n"))
    heard = await send(url, "/api/take", iter([whole[:cut], whole[cut:]]))
    assert heard.status == 200, heard
    assert b"".join(desk.seen) == b"a\r\n--the-boundarx\r\nb"


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        pytest.param(400, form(part("purpose", b"x")), id="no file"),
        pytest.param(400, form(part("file", b"x")), id="a field in the place of the file"),
        pytest.param(400, form(FILE, FILE), id="two files"),
        pytest.param(400, form(part("purpose", b"x"), part("purpose", b"y"), FILE), id="a field twice"),
        pytest.param(400, form(part("other", b"x"), FILE), id="an unknown field"),
        pytest.param(400, form(part("purpose", b"\xff\xfe"), FILE), id="a field that is not text"),
        pytest.param(400, form(part("purpose", b"refused"), FILE), id="refused by the route"),
        pytest.param(413, form(part("note", b"x" * 70_000), FILE), id="a long field"),
        pytest.param(413, form(part("file", b"x" * (BYTES_MAX + 1), "f")), id="a long file"),
        pytest.param(413, form(FILE) + b"x" * (FORM_BYTES_MAX + 1), id="much behind the end"),
        pytest.param(413, b"\r\n" * FORM_BYTES_MAX + form(FILE), id="much before the beginning"),
        pytest.param(400, b"\x00\x01nonsense" * 1_000, id="nonsense"),
        pytest.param(400, form(part("file", b"abc", "f"))[:-8], id="broken off in the last boundary"),
        pytest.param(400, part("file", b"abc", "f"), id="broken off in the file"),
        pytest.param(400, b"", id="nothing"),
        pytest.param(400, part("file", b"", "f" * 5_000) + form(b""), id="a long header"),
    ],
)
async def test_a_form_that_is_not_in_order_is_refused_and_leaves_nothing(
    desk: Desk, url: str, status: int, sent: bytes
) -> None:
    heard = await send(url, "/api/take", sent, length=len(sent))
    assert heard.status == status, heard
    assert '"code"' in heard.body
    assert await desk.names() == []


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("a\x07b\x1b[0m.pdf", "ab[0m.pdf"),
        ("", "file"),
        ("..", "file"),
        ("x" * 400, "x" * 255),
    ],
)
async def test_of_a_filename_only_a_plain_name_is_kept(url: str, sent: str, kept: str) -> None:
    heard = await send(url, "/api/take", form(part("file", b"x", sent)))
    assert json.loads(heard.body)["filename"] == kept


async def test_what_the_watch_refuses_leaves_nothing(desk: Desk, url: str) -> None:
    desk.refuse_at_bytes = MEGABYTE
    heard = await send(url, "/api/take", form(part("file", b"line\n" * (MEGABYTE // 2), "f")))
    assert (heard.status, await desk.names()) == (422, [])
    assert sum(map(len, desk.seen)) < 2 * MEGABYTE


async def test_who_hangs_up_half_way_leaves_nothing(desk: Desk, url: str) -> None:
    heard = await send(url, "/api/take", FILE + b"lines\n" * MEGABYTE, length=8 * MEGABYTE, hangs_up=True)
    assert heard.status == 0
    await desk.done.wait()
    assert desk.seen != []
    assert await desk.names() == []


@pytest.mark.parametrize(
    ("status", "given"),
    [
        pytest.param(413, {"length": 10 << 30}, id="10 GB by its own word"),
        pytest.param(415, {"headers": {"content-encoding": "gzip"}}, id="compressed"),
        pytest.param(415, {"headers": {"content-encoding": "zstd, br"}}, id="compressed twice"),
        pytest.param(415, {"content_type": "multipart/form-data"}, id="no boundary"),
        pytest.param(415, {"content_type": "application/json"}, id="no form"),
        pytest.param(400, {"content_type": "multipart/form-data; boundary=" + "b" * 300}, id="a long boundary"),
    ],
)
async def test_what_the_headers_give_away_is_refused_before_the_body_is_read(
    desk: Desk, url: str, status: int, given: dict[str, Any]
) -> None:
    heard = await send(url, "/api/take", endless(FILE, b"x" * MEGABYTE, 10_240), **given)
    assert heard.status == status, heard
    assert heard.sent_bytes < 32 * MEGABYTE, "what is sent meanwhile waits in the machines' buffers"
    assert (desk.head, await desk.names()) == (None, [])


@pytest.mark.parametrize(
    ("status", "first", "piece"),
    [
        pytest.param(413, FILE, b"0123456\n" * (MEGABYTE // 8), id="10 GB of lines"),
        pytest.param(413, FILE, b"x" * MEGABYTE, id="10 GB on one line"),
        pytest.param(400, b"", b"\x00nonsense" * 100_000, id="10 GB of nonsense"),
        pytest.param(413, b"\r\n", b"\r\n" * (MEGABYTE // 2), id="10 GB of nothing"),
        pytest.param(413, form(FILE), b"x" * MEGABYTE, id="10 GB behind the end"),
        pytest.param(400, b"", (part("note", b"") + b"\r\n") * 10_000, id="many million tiny parts"),
        pytest.param(413, part("note", b""), b"x" * MEGABYTE, id="a field of 10 GB"),
    ],
)
async def test_endless_senders_are_cut_off_early(desk: Desk, url: str, status: int, first: bytes, piece: bytes) -> None:
    heard = await send(url, "/api/take", endless(first, piece, 10_240))
    assert heard.status == status, heard
    assert "connection: close" in heard.head
    assert heard.sent_bytes < 48 * MEGABYTE
    assert await desk.names() == []


async def test_parts_are_counted_whatever_they_are_called(desk: Desk, url: str) -> None:
    """Names that the route knows, too: of them there are at most so many."""
    many = form(*[part(f"f{number}", b"") for number in range(PARTS_MAX + 1)], FILE)
    desk.app.router.routes.clear()

    async def any_field(request: Request) -> None:
        names = {f"f{number}" for number in range(100)}
        await receive(request, desk.artifacts, fields=names, bytes_max=BYTES_MAX, begin=desk.begin)

    desk.app.add_api_route("/api/take", any_field, methods=["POST"])
    heard = await send(url, "/api/take", many)
    assert heard.status == 413, heard
    assert "parts" in heard.body
