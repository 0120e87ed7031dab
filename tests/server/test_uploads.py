"""Uploads over the whole service: what is taken, what is refused, and at what cost."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.store.keys import Role
from tests.server.converting import upload
from tests.server.pdfs import pdf
from tests.server.rig import Rig, rigged
from tests.server.senders import form, part, send

BYTES_MAX = 1 << 20


@pytest.fixture
async def small(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """A service that takes files of a megabyte at most."""
    async with rigged(sqlite_file_url, tmp_path / "data", upload_max_bytes=BYTES_MAX) as rig:
        yield rig


async def blobs(rig: Rig) -> list[str]:
    return [name async for name in rig.service.artifacts.names("files")]


async def test_an_upload_is_listed_shown_read_and_deleted(rig: Rig) -> None:
    made = await upload(rig.ada, pdf("mine"), "my paper.pdf")
    assert made.status == 201, made
    file = made.json
    assert made.headers["location"] == f"/api/uploads/{file['id']}"
    assert (file["filename"], file["bytes"]) == ("my paper.pdf", len(pdf("mine")))
    assert file["expires_at"] - file["created_at"] == 30 * 86_400_000
    assert (await rig.ada.get("/api/uploads")).json["data"] == [file]
    assert (await rig.ada.get(f"/api/uploads/{file['id']}")).json == file
    content = await rig.ada.get(f"/api/uploads/{file['id']}/content")
    assert (content.body, content.headers["content-length"]) == (pdf("mine"), str(file["bytes"]))
    assert len(await blobs(rig)) == 1
    assert (await rig.ada.delete(f"/api/uploads/{file['id']}")).status == 204
    assert await blobs(rig) == [], "with the file its bytes go"
    for again in (rig.ada.get(f"/api/uploads/{file['id']}"), rig.ada.delete(f"/api/uploads/{file['id']}")):
        assert (await again).status == 404


async def test_uploads_are_paged_through(rig: Rig) -> None:
    made = [(await upload(rig.ada, pdf(str(number)))).json["id"] for number in range(5)]
    await upload(rig.bob, pdf("another's"))
    seen: list[str] = []
    params: dict[str, str] = {"limit": "2"}
    while True:
        page = (await rig.ada.get("/api/uploads", params=params)).json
        seen += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        params["cursor"] = page["next_cursor"]
    assert sorted(seen) == sorted(made)
    assert (await rig.ada.get("/api/uploads", params={"cursor": "nonsense"})).status == 400
    assert (await rig.bob.get("/api/uploads", params={"cursor": made[2]})).status == 400, "another's cursor is none"


@pytest.mark.parametrize(
    ("status", "code", "content"),
    [
        (201, None, pdf()),
        (201, None, b"\xef\xbb\xbf\r\n" + pdf()),
        (415, "NOT_PDF", b""),
        (415, "NOT_PDF", b"<html>%PDF</html>"),
        (415, "NOT_PDF", b"x" * 2_000 + pdf()),
        (201, None, pdf(bytes_min=BYTES_MAX - 7)),
        (413, "TOO_LARGE", pdf(bytes_min=BYTES_MAX + 1)),
        (413, "TOO_LARGE", pdf(bytes_min=5 * BYTES_MAX)),
    ],
)
async def test_type_and_size_are_checked(small: Rig, status: int, code: str | None, content: bytes) -> None:
    answer = await upload(small.ada, content)
    assert answer.status == status, answer
    assert code is None or answer.json["code"] == code
    assert code is None or answer.json["hint"]
    assert len(await blobs(small)) == (status == 201)


async def test_any_other_type_may_be_sent_by_saying_so(small: Rig) -> None:
    assert (await upload(small.ada, b"GIF89a", kind="any")).status == 201
    assert (await upload(small.ada, b"GIF89a", kind="gif")).status == 422
    assert (await upload(small.ada, b"", kind="any")).status == 400


async def test_the_same_upload_sent_again_with_its_key_is_one(small: Rig) -> None:
    headers = {"idempotency-key": "once", "content-type": "multipart/form-data; boundary=the-boundary"}
    body = form(part("file", pdf(), "a.pdf"))
    first = await small.ada.post("/api/uploads", data=body, headers=headers)
    again = await small.ada.post("/api/uploads", data=body, headers=headers)
    assert (first.status, again.json) == (201, first.json)
    assert len((await small.ada.get("/api/uploads")).json["data"]) == len(await blobs(small)) == 1


async def test_a_key_that_was_refused_is_free_again(small: Rig) -> None:
    headers = {"idempotency-key": "again", "content-type": "multipart/form-data; boundary=the-boundary"}
    for status, content in ((413, pdf(bytes_min=3 * BYTES_MAX)), (415, b"GIF89a"), (201, pdf())):
        body = form(part("file", content, "a.pdf"))
        assert (await small.ada.post("/api/uploads", data=body, headers=headers)).status == status


async def test_who_may_only_read_uploads_nothing(small: Rig) -> None:
    assert (await upload(small.visitor("ada", Role.READ), pdf())).status == 403
    assert (await upload(small.holder(None), pdf())).status == 401
    assert await blobs(small) == []


async def test_a_stranger_is_refused_before_the_file_is_read(small: Rig) -> None:
    sent = part("file", pdf(bytes_min=BYTES_MAX - 1_000), "a.pdf")
    heard = await send(small.url, "/api/uploads", sent, length=len(sent) + 1_000)
    assert heard.status == 401


@pytest.mark.slow
def test_hostile_uploads_cost_no_memory() -> None:
    """In a process of its own, which tells how large it has been."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.server.upload_storm"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    told = json.loads(done.stdout)
    assert told["statuses"] == {
        "10 GB declared": 413,
        "10 GB chunked": 413,
        "10 GB on one line": 415,
        "a gzip bomb": 415,
        "a million tiny parts": 400,
        "nonsense": 400,
        "a whole file of 200 MB": 201,
    }
    assert told["memory_mb"] <= 256, told
    assert told["sent_mb"] < 600, "each was cut off long before its end"
    assert told["left"] == 1, "nothing of them was kept"
