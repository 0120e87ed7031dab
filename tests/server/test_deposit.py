"""Bytes that no file was made of, because a process died between the two: they are found by their row, and go."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.artifacts import Deposit
from backstay.core.errors import NotAllowed
from backstay.server.service import drop_blobs
from backstay.store.files import NewFile
from tests.server.converting import upload
from tests.server.pdfs import pdf
from tests.server.rig import Rig

BLOB = "files/0123456789abcdef01234567"


async def some_bytes() -> AsyncIterator[bytes]:
    yield b"some"


async def blobs(rig: Rig) -> list[str]:
    return [name async for name in rig.service.artifacts.names("files")]


def deposit(rig: Rig) -> Deposit:
    return Deposit(rig.service.store.files, rig.service.artifacts, "ada")


async def test_bytes_without_a_file_go_after_a_day(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await deposit(rig).put(BLOB, some_bytes())  # and here the process dies
    assert await drop_blobs(rig.service) == 0
    assert await blobs(rig) == [BLOB], "it may still be about to make a file of them"
    monkeypatch.setattr("backstay.store.files.EXPECTED_MS", 0)
    old = BLOB[:-1] + "0"
    await deposit(rig).put(old, some_bytes())
    kept = (await upload(rig.ada, pdf("mine"))).status
    assert kept == 409, "so late, its bytes may be gone already"
    assert await drop_blobs(rig.service) == 2
    assert await blobs(rig) == [BLOB]
    assert await drop_blobs(rig.service) == 0, "nothing is done twice"
    assert (await rig.ada.get("/api/uploads")).json["data"] == []


async def test_a_file_is_made_of_bytes_in_time_or_not_at_all(rig: Rig) -> None:
    files = rig.service.store.files
    await deposit(rig).put(BLOB, some_bytes())
    assert await files.add(NewFile("file-1", "ada", "a.txt", "user_data", 4, blob=BLOB))
    with pytest.raises(NotAllowed):
        await files.add(NewFile("file-2", "ada", "a.txt", "user_data", 4, blob=BLOB))
    assert await drop_blobs(rig.service) == 0
    assert await blobs(rig) == [BLOB]


async def test_uploads_taken_and_refused_leave_no_expectation(sqlite_rig: Rig, tmp_path: Path) -> None:
    url = sqlite_rig.service.backstay.url
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        assert (await upload(sqlite_rig.ada, pdf("mine"))).status == 201
        assert (await upload(sqlite_rig.ada, b"no pdf")).status >= 400
        rows = database.execute("SELECT purpose FROM files").fetchall()
    assert rows == [("user_data",)]
