"""Bodies of requests: not a stranger's, not too large a one, and not one that never ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fastapi import Request
from starlette.types import Message

from backstay.server import request_limits as bounded
from backstay.server.problems import OPENAI_PREFIXES, Problem
from backstay.server.request_limits import numbered_lines
from backstay.testing import VirtualLoop
from tests.server.operations import ROLES
from tests.server.rig import Rig, rigged
from tests.server.senders import BOUNDARY, MEGABYTE, Heard, endless, part, send

JSON = "application/json"
LINES = "application/x-ndjson"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
FILE = part("purpose", b"batch") + b"\r\n" + part("file", b"", "a.jsonl")
PATHS = ("/api/webhooks", "/api/dead-letters/replay", "/api/providers/x/hold", "/v1/batches", "/v1/webhook_endpoints")
# What streamed paths end in, as the ids of other things.
ENDINGS = ("files", "jobs", "uploads")
STREAMED = {
    "/api/jobs?handler=echo": (LINES, b'{"n": 1}\n"'),
    "/api/jobs": (JSON, b'{"handler": "echo", "items": ["'),
    "/api/uploads": (FORM, part("file", b"%PDF-1.7 ", "a.pdf")),
    **{f"{prefix}/files": (FORM, FILE) for prefix in OPENAI_PREFIXES},
}


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        yield made


def key_of(rig: Rig) -> dict[str, str]:
    return {"authorization": f"Bearer {rig.ada.key}"}


def changes() -> Iterator[tuple[str, str]]:
    """Every operation that may have a body, at each prefix, with ids that streamed paths end in."""
    for operation in sorted(ROLES):
        method, _, template = operation.partition(" ")
        if method == "GET":
            continue
        names = [part[1:-1] for part in template.split("/") if part.startswith("{")]
        for ending in ENDINGS:
            path = template.format(**dict.fromkeys(names, ending))
            twins = [prefix + path.removeprefix("/v1") for prefix in OPENAI_PREFIXES]
            yield from ((method, twin) for twin in (twins if path.startswith("/v1/") else [path]))


async def test_a_stranger_is_refused_before_his_body_is_read_wherever_he_sends_it(rig: Rig) -> None:
    asked = sorted(set(changes()))
    assert ("PATCH", "/api/webhooks/files") in asked
    assert ("POST", "/openai/webhook_endpoints/files") in asked
    wrong = []
    for method, path in asked:
        heard = await send(
            rig.url, path, b"{", length=MEGABYTE, content_type=JSON, method=method
        )  # the rest never comes
        if heard.status != 401:
            wrong.append((method, path, heard))
    assert wrong == []


@pytest.mark.parametrize(("method", "path"), [*(("POST", path) for path in PATHS), ("PATCH", "/api/webhooks/files")])
async def test_a_body_without_an_end_is_cut_off(rig: Rig, method: str, path: str) -> None:
    sent = endless(b"[", b" " * MEGABYTE, 100)
    heard = await send(rig.url, path, sent, key_of(rig), content_type=JSON, method=method)
    assert heard.status in (413, 0)  # who goes on sending may be cut off before he has read why
    assert heard.sent_bytes < 50 * MEGABYTE


@pytest.mark.parametrize("path", ["/api/webhooks", "/api/webhooks/files"])
async def test_a_body_that_does_not_come_is_not_waited_for(
    rig: Rig, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "PATIENCE_SECONDS", 0.1)
    method = "PATCH" if path.endswith("files") else "POST"
    heard = await send(rig.url, path, b"{", key_of(rig), length=100, content_type=JSON, method=method)
    assert heard.status == 408


async def drip(rig: Rig, path: str, piece: bytes, **headers: str) -> Heard:
    kind, start = STREAMED[path]
    pieces = endless(start, piece, 500)
    return await send(rig.url, path, pieces, {**key_of(rig), **headers}, content_type=kind, pause=0.01)


@pytest.mark.parametrize("path", STREAMED)
async def test_a_streamed_body_that_drips_is_cut_off(rig: Rig, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PATIENCE_SECONDS", 0.2)
    heard = await drip(rig, path, b"x")
    assert heard.status == 408, heard
    assert "connection: close" in heard.head
    assert heard.sent_bytes < 400
    assert [name async for name in rig.service.artifacts.names("files/")] == [], "nothing is left of it"


@pytest.mark.parametrize("path", STREAMED)
async def test_a_streamed_body_may_be_larger_than_one_that_is_held(
    rig: Rig, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "HELD_BYTES_MAX", 1_000)
    kind, start = STREAMED[path]
    heard = await send(rig.url, path, endless(start, b"x" * 50, 100), key_of(rig), content_type=kind)
    assert heard.status not in (0, 408, 413), heard
    assert heard.sent_bytes == len(start) + 5_000


@pytest.mark.parametrize(("is_streamed", "status"), [(True, None), (False, 408)])
def test_only_a_streamed_body_that_makes_progress_is_waited_for(is_streamed: bool, status: int | None) -> None:
    """It takes many times as long as a sender who is silent has."""
    coming: list[Message] = [{"type": "http.request", "body": b"x" * 100_000, "more_body": True}] * 20
    coming.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        await asyncio.sleep(bounded.PATIENCE_SECONDS / 2)
        return coming.pop(0)

    async def read() -> int | None:
        body = bounded.Body(receive, is_streamed)
        try:
            while (await body.receive())["more_body"]:
                pass
        except Problem as problem:
            return problem.status
        return None

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(read()) == status


async def test_what_came_quickly_does_not_pay_for_a_drip_that_follows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "PATIENCE_SECONDS", 0.2)
    start = b'"' + b"x" * MEGABYTE
    monkeypatch.setitem(STREAMED, "/api/jobs?handler=echo", (LINES, start))
    heard = await drip(rig, "/api/jobs?handler=echo", b"x")
    assert heard.status == 408, heard
    assert heard.sent_bytes < MEGABYTE + 400


async def test_who_has_sent_his_body_may_wait_for_the_answer_as_long_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded, "PATIENCE_SECONDS", 0.01)
    gone = asyncio.Event()
    coming: list[Message] = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> Message:
        if coming:
            return coming.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    body = bounded.Body(receive, is_streamed=False)
    await body.hold()
    assert await body.receive() == {"type": "http.request", "body": b"{}", "more_body": False}
    waiting = asyncio.ensure_future(body.receive())
    await asyncio.wait([waiting], timeout=0.1)
    gone.set()
    assert await waiting == {"type": "http.disconnect"}


async def test_a_long_line_is_not_copied_anew_for_every_byte_that_is_added() -> None:
    """15 MiB of a line that has no end yet, and then a byte at a time."""
    pieces = endless(b"x" * 15 * MEGABYTE, b"x", 2_000)

    async def receive() -> Message:
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    began = time.process_time()
    lines = [line async for line in numbered_lines(request, 16 * MEGABYTE)]
    assert [(number, len(text)) for number, text in lines] == [(1, 15 * MEGABYTE + 2_000)]
    assert time.process_time() - began < 0.5


async def test_a_dripped_body_under_a_used_idempotency_key_is_cut_off(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No route reads it: it is only compared with the first."""
    path = "/api/jobs?handler=echo"
    first = await rig.ada.post(path, data=b"1\n", headers={"idempotency-key": "k", "content-type": LINES})
    assert first.status == 201
    monkeypatch.setattr(bounded, "PATIENCE_SECONDS", 0.2)
    heard = await drip(rig, path, b"x", **{"idempotency-key": "k"})
    assert heard.status == 408, heard
    assert heard.sent_bytes < 400
