"""Results that go to a pipe, a device or a link instead of a plain file."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from backstay.core.errors import BackstayError, UsageError
from backstay.run.output import ResultFiles, errors_path, is_stream
from tests.house.sources import ROOT
from tests.run.results import JOB, bad, good, ids_in, standing

WRITER = """
import sys
from backstay.run.output import ResultFiles
from tests.run.results import JOB, bad, good
with ResultFiles(sys.argv[1], JOB) as files:
    files.write([good(0), bad(1), good(2)])
"""


def write_to(name: str, folder: Path, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WRITER, name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_gets_the_successes_and_stderr_the_failures(name: str, tmp_path: Path) -> None:
    ran = write_to(name, tmp_path)
    assert [json.loads(line)["custom_id"] for line in ran.stdout.splitlines()] == ["request-0", "request-2"]
    assert [json.loads(line)["custom_id"] for line in ran.stderr.splitlines()] == ["request-1"]
    assert list(tmp_path.iterdir()) == []


def test_a_redirected_stdout_is_written_where_it_stands_and_not_from_its_start(tmp_path: Path) -> None:
    out = tmp_path / "log"
    with out.open("wb") as file:
        file.write(b'{"custom_id": "written by another"}\n')
        file.flush()
        assert write_to("/dev/stdout", tmp_path, file.fileno()).returncode == 0
    assert ids_in(out) == ["written by another", "request-0", "request-2"]


def test_a_pipe_gets_everything_again_in_each_run_and_the_failures_may_have_a_file(tmp_path: Path) -> None:
    pipe, errors = tmp_path / "pipe", tmp_path / "errors.jsonl"
    os.mkfifo(pipe)
    for expected in (1, 1):
        received: list[bytes] = []
        reader = threading.Thread(target=lambda received=received: received.append(pipe.read_bytes()))
        reader.start()
        with ResultFiles(pipe, JOB, errors=errors) as files:
            assert files.is_stream
            files.write([good(0)])
            files.write([good(0), bad(1)])
        reader.join()
        assert received[0].count(b"request-0") == expected
        assert ids_in(errors) == ["request-1"]


def test_a_reader_that_has_gone_is_a_broken_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with ResultFiles(pipe, JOB) as files:
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            files.write([good(0)])


def test_a_slow_reader_of_a_pipe_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = bytearray()

    def read_slowly() -> None:
        with pipe.open("rb", buffering=0) as file:
            while data := file.read(4096):
                received.extend(data)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    with ResultFiles(pipe, JOB) as files:
        os.set_blocking(files._results._fd, False)  # type: ignore[union-attr]
        files.write(good(n, words="x" * 20_000) for n in range(50))
    reader.join()
    assert received.count(b"\n") == 50


async def test_a_stream_in_order_gets_its_lines_at_the_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()

    async def rows():
        for n in range(3):
            yield good(n)

    with ResultFiles(pipe, JOB) as files:
        await files.rewrite_in_order(rows())
        assert files.succeeded == 3
    reader.join()
    assert [json.loads(line)["custom_id"] for line in received[0].splitlines()] == [f"request-{n}" for n in range(3)]


def test_a_device_that_is_full_is_one_line(tmp_path: Path) -> None:
    with ResultFiles("/dev/full", JOB) as files, pytest.raises(BackstayError, match="No space left on device"):
        files.write([good(0)])


def test_the_null_device_gets_no_errors_file_beside_it() -> None:
    assert ResultFiles("/dev/null", JOB).errors is None
    assert is_stream("/dev/null")


def test_a_device_that_cannot_be_opened_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be opened for writing"):
        ResultFiles("/proc/self/none", JOB).open()


def test_a_file_in_shared_memory_is_a_file() -> None:
    assert not is_stream("/dev/shm/results.jsonl")


async def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    target, link = tmp_path / "runs" / "one.jsonl", tmp_path / "latest.jsonl"
    link.symlink_to(target)

    async def rows():
        for row in (bad(0), good(1), good(2)):
            yield row

    with ResultFiles(link, JOB) as files:
        files.write([good(2), good(1), bad(0)])
        await files.rewrite_in_order(rows())
    assert link.is_symlink()
    assert ids_in(target) == ["request-1", "request-2"]
    assert standing(link) == (["request-1", "request-2"], ["request-0"])
    assert errors_path(link).exists()
