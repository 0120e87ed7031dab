"""Temporary files, and what is said where there is no room for them."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from backstay.core.errors import ErrorCode, Transient
from backstay.llm.lines import LlmRequest, open_lines, open_temporary
from backstay.llm.repeated_requests import Originals


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> Any:
        return open("/dev/full", "r+b", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setattr(tempfile, "tempdir", "/small")


def test_what_was_written_can_be_read_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with open_temporary() as file:
        file.write(b"first\nsecond\n")
        file.seek(6)
        assert (file.readline(), list(tmp_path.iterdir())) == (b"second\n", [])


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_told_with_its_folder_and_the_way_out() -> None:
    said = "in /small: No space left on device; set TMPDIR to another folder"
    with pytest.raises(Transient, match=said) as told, open_temporary() as file:
        file.write(b"x")
    assert told.value.code is ErrorCode.IO_ERROR


@pytest.mark.usefixtures("full_disk")
def test_a_pipe_that_cannot_be_kept_is_told_likewise() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"{}\n")
    os.close(writer)
    with (
        pytest.raises(Transient, match="No space left on device; set TMPDIR"),
        open_lines(f"/dev/fd/{reader}") as lines,
    ):
        lines.read()
    os.close(reader)


def test_a_folder_that_is_not_there_is_told_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(Transient, match="gone: No such file or directory; set TMPDIR to another folder"):
        open_temporary()


def test_what_is_remembered_of_requests_may_find_no_room_either() -> None:
    with Originals() as originals:
        originals._scratch.execute("PRAGMA max_page_count = 2")
        requests = (LlmRequest("a", "/v1/x", str(number)) for number in range(10_000))
        with pytest.raises(Transient, match="disk is full; set TMPDIR to another folder"):
            list(map(originals.first, requests, range(10_000)))
