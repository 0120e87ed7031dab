"""Large files and hostile ones, through the whole service as a process of its own: what they cost it in memory."""

import gzip
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from openai import OpenAI

from tests.server.openai.openai_rig import line
from tests.server.openai.process import serving
from tests.server.senders import MEGABYTE, Heard, endless, part, send

PEAK_MB_MAX = 256
PURPOSE = part("purpose", b"batch") + b"\r\n"
FILE = part("file", b"", "in.jsonl")
REQUEST = line("first").encode() + b"\n"
OPEN_REQUEST = line("open").encode().removesuffix(b"}]}}") + b', "extra": ['  # its line goes on


class Hostile(NamedTuple):
    status: int
    pieces: Iterator[bytes]
    headers: dict[str, str] | None = None
    length: int | None = None


def hostile(megabytes: int) -> dict[str, Hostile]:
    """Each would go on for so long if it were let; all but a small part of it is never read."""
    bomb = gzip.compress(b" " * MEGABYTE) * 100
    empty_parts = (part("x", b"") + b"\r\n") * 1_000
    bad_lines = b"nonsense\n" * (MEGABYTE // 9)
    return {
        "declared": Hostile(413, endless(PURPOSE + FILE, REQUEST, 10), length=megabytes * MEGABYTE),
        "one line": Hostile(400, endless(PURPOSE + FILE, b"x" * MEGABYTE, megabytes)),
        "one request": Hostile(400, endless(PURPOSE + FILE + OPEN_REQUEST, b"x" * MEGABYTE, megabytes)),
        "one line, purpose behind": Hostile(413, endless(FILE, b"x" * MEGABYTE, megabytes)),
        "no form": Hostile(400, endless(b"", b"\0nonsense" * 100_000, megabytes)),
        "no requests": Hostile(400, endless(PURPOSE + FILE, bad_lines, megabytes)),
        "no requests but the first": Hostile(400, endless(PURPOSE + FILE + REQUEST, bad_lines, megabytes)),
        "blank lines": Hostile(400, endless(PURPOSE + FILE, b"\n" * MEGABYTE, megabytes)),
        "a gzip bomb": Hostile(415, endless(bomb, bomb, 100), {"content-encoding": "gzip"}),
        "a million tiny parts": Hostile(400, endless(b"", empty_parts, 1_000)),
    }


async def _storm(folder: Path, megabytes: int, upload_max_mb: int) -> dict[str, Heard]:
    heard = {}
    with serving(folder, BACKSTAY_UPLOAD_MAX_BYTES=str(upload_max_mb * MEGABYTE)) as service:
        for name, sent in hostile(megabytes).items():
            heard[name] = await send(service.url, "/v1/files", sent.pieces, sent.headers, sent.length)
        assert service.peak_mb <= PEAK_MB_MAX
        assert service.kept == 0, "nothing of them was kept"
        file = OpenAI(base_url=f"{service.url}/v1", api_key="none").files.create(file=REQUEST, purpose="batch")
        assert file.bytes == len(REQUEST), "it serves on"
    assert {name: one.status for name, one in heard.items()} == {name: sent.status for name, sent in hostile(1).items()}
    return heard


@pytest.mark.slow
async def test_hostile_files_are_refused_early_and_cost_no_memory(tmp_path: Path) -> None:
    heard = await _storm(tmp_path, megabytes=500, upload_max_mb=64)
    assert {name: one.sent_bytes // MEGABYTE for name, one in heard.items() if one.sent_bytes > 80 * MEGABYTE} == {}


@pytest.mark.slow
async def test_gigabytes_of_nonsense_are_refused_early_and_cost_no_memory(tmp_path: Path) -> None:
    heard = await _storm(tmp_path, megabytes=10_240, upload_max_mb=1_024)
    most = heard.pop("one line, purpose behind")
    assert most.sent_bytes < 1_100 * MEGABYTE, "what may be any file is taken up to its bound"
    assert {name: one.sent_bytes // MEGABYTE for name, one in heard.items() if one.sent_bytes > 80 * MEGABYTE} == {}


@pytest.mark.parametrize(
    "values",
    [
        b"[],",
        *(
            pytest.param(values, marks=pytest.mark.slow)
            for values in (b'[[[{"a":[1]}]]],', b'{"a":1},', b'"ab",', b"999,")
        ),
    ],
    ids=lambda values: values.decode(),
)
def test_a_line_that_would_grow_when_it_is_read_is_not(tmp_path: Path, values: bytes) -> None:
    content = OPEN_REQUEST + values * (30 * MEGABYTE // len(values)) + b"1]}]}}\n"
    with serving(tmp_path) as service, OpenAI(base_url=f"{service.url}/v1", api_key="none") as client:
        client.files.create(file=REQUEST + content, purpose="batch")
        assert service.peak_mb <= PEAK_MB_MAX


def _read_back(folder: Path, megabytes: int) -> None:
    content = REQUEST.replace(b"Say first", b"Say " + b"x" * (MEGABYTE - len(REQUEST)))
    path = folder / "large.jsonl"
    with path.open("wb") as file:
        for number in range(megabytes):
            file.write(content.replace(b'"first"', b'"%05d"' % number))
    with serving(folder) as service, OpenAI(base_url=f"{service.url}/v1", api_key="none") as client:
        before_mb = service.peak_mb
        made = client.files.create(file=path, purpose="batch")
        assert made.bytes == path.stat().st_size
        digest, size, begun = hashlib.sha256(), 0, time.monotonic()
        with client.files.with_streaming_response.content(made.id) as answer:
            assert int(answer.headers["content-length"]) == made.bytes
            for chunk in answer.iter_bytes(256 << 10):
                digest.update(chunk)
                size += len(chunk)
        assert size == made.bytes
        assert time.monotonic() - begun < 120
        with path.open("rb") as file:
            assert digest.hexdigest() == hashlib.file_digest(file, "sha256").hexdigest()
        assert service.peak_mb - before_mb <= 64, "memory does not grow with the file"


@pytest.mark.slow
def test_a_file_of_20_mb_comes_back_as_a_stream(tmp_path: Path) -> None:
    _read_back(tmp_path, 20)


@pytest.mark.slow
def test_a_file_of_200_mb_comes_back_as_a_stream(tmp_path: Path) -> None:
    _read_back(tmp_path, 200)
