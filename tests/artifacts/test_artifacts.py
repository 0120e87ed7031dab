import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.artifacts import PART_BYTES, Artifacts, artifacts_at
from backstay.core.errors import FilesUnreachable, NotFound, UsageError
from backstay.core.failures import ErrorCode, FailureKind, failure_of_exception
from tests.servers.s3 import BUCKET, PrivateS3

MANY = 3 * (PART_BYTES >> 20)  # pieces of a megabyte: more than one part of an upload


async def pieces(count: int, then: BaseException | None = None) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number % 251]) * (1 << 20)
    if then is not None:
        raise then


async def read(artifacts: Artifacts, name: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([piece async for piece in artifacts.get(name, start, end)])


async def names(artifacts: Artifacts, prefix: str) -> list[str]:
    return sorted([name async for name in artifacts.names(prefix)])


@pytest.mark.parametrize("count", [0, 1, MANY])
async def test_what_was_put_is_read_back(artifacts: Artifacts, count: int) -> None:
    assert await artifacts.put("files/one", pieces(count)) == count << 20
    assert await artifacts.size("files/one") == count << 20
    assert await read(artifacts, "files/one") == b"".join([piece async for piece in pieces(count)])


async def test_a_range_is_read_as_far_as_there_is_something(artifacts: Artifacts) -> None:
    async def few() -> AsyncIterator[bytes]:
        yield b"0123456789"

    await artifacts.put("few", few())
    assert await read(artifacts, "few", 3, 6) == b"345"
    assert await read(artifacts, "few", 8) == b"89"
    assert await read(artifacts, "few", 8, 99) == b"89"
    assert await read(artifacts, "few", 10) == b""
    assert await read(artifacts, "few", 1 << 40) == b""


@pytest.mark.parametrize("count", [1, MANY])
async def test_what_breaks_off_leaves_nothing_and_says_what_broke_it(artifacts: Artifacts, count: int) -> None:
    with pytest.raises(ConnectionResetError, match="the sender is gone"):
        await artifacts.put("files/half", pieces(count, ConnectionResetError("the sender is gone")))
    assert await artifacts.size("files/half") is None
    assert await names(artifacts, "files") == []


async def test_what_breaks_off_leaves_what_was_there_before(artifacts: Artifacts) -> None:
    await artifacts.put("files/one", pieces(1))
    with pytest.raises(ValueError, match="no more"):
        await artifacts.put("files/one", pieces(MANY, ValueError("no more")))
    assert await artifacts.size("files/one") == 1 << 20


async def test_nobody_sees_a_name_before_it_is_whole(artifacts: Artifacts) -> None:
    seen: list[int | None] = []

    async def looking() -> AsyncIterator[bytes]:
        async for piece in pieces(MANY):
            seen.append(await artifacts.size("files/slow"))
            yield piece

    await artifacts.put("files/slow", looking())
    assert set(seen) == {None}
    assert await artifacts.size("files/slow") == MANY << 20


async def test_a_cancelled_put_leaves_nothing(artifacts: Artifacts) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        async for piece in pieces(MANY):
            yield piece
        begun.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(artifacts.put("files/cut", endless()))
    await begun.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await artifacts.size("files/cut") is None


async def test_what_is_deleted_is_gone_and_may_be_deleted_again(artifacts: Artifacts) -> None:
    await artifacts.put("files/one", pieces(1))
    await artifacts.delete("files/one")
    await artifacts.delete("files/one")
    assert await artifacts.size("files/one") is None
    with pytest.raises(NotFound):
        await read(artifacts, "files/one")


async def test_names_go_by_whole_parts(artifacts: Artifacts) -> None:
    for name in ("logs/1/a", "logs/1/b", "logs/12/c", "other"):
        await artifacts.put(name, pieces(0))
    assert await names(artifacts, "logs/1") == ["logs/1/a", "logs/1/b"]
    assert await names(artifacts, "nothing") == []


async def test_an_upload_that_broke_off_leaves_no_parts_in_the_bucket(
    s3: PrivateS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []

    async def breaking() -> AsyncIterator[bytes]:
        async for piece in pieces(MANY):
            yield piece
        seen.extend(await asyncio.to_thread(s3.unfinished))
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        await artifacts_at(f"s3://{BUCKET}/parts").put("half", breaking())
    assert seen == ["parts/half"]
    assert s3.unfinished() == []
    assert s3.objects("parts") == {}


@pytest.mark.slow
async def test_a_place_that_does_not_answer_is_said_without_its_address(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    for name, value in PrivateS3().environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused_tcp_port}")
    gone = artifacts_at("s3://some-bucket/prefix")
    for work in (gone.size("x"), gone.put("x", pieces(1)), gone.delete("x"), names(gone, "x"), read(gone, "x")):
        with pytest.raises(FilesUnreachable) as caught:
            await work
        assert "127.0.0.1" not in str(caught.value)
        assert "some-bucket" not in str(caught.value)
    failure = failure_of_exception(caught.value)
    assert (failure.code, failure.kind) == (ErrorCode.IO_ERROR, FailureKind.INFRASTRUCTURE)


@pytest.mark.parametrize("place", ["s3://", "s3:///prefix", "s3://key:secret@bucket/prefix", "s3://bucket?x=1"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(UsageError):
        artifacts_at(place)


def test_the_folder_is_made_and_nobody_else_reads_it(tmp_path: Path) -> None:
    artifacts_at(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


async def test_a_first_part_may_have_a_place_of_its_own(tmp_path: Path) -> None:
    both = artifacts_at(str(tmp_path / "data"), {"results": str(tmp_path / "xml")})
    await both.put("results/12/0-a", pieces(1))
    await both.put("files/a", pieces(0))
    assert (tmp_path / "xml" / "results" / "12" / "0-a").stat().st_size == 1 << 20
    assert not (tmp_path / "data" / "results").exists()
    assert await names(both, "results/12") == ["results/12/0-a"]
    assert await both.size("results/12/0-a") == len(await read(both, "results/12/0-a")) == 1 << 20
    await both.delete("results/12/0-a")
    assert await names(both, "results") == []
    assert await names(both, "files") == ["files/a"]


KILLED = """
import asyncio, os, sys
from backstay.artifacts import artifacts_at

async def chunks():
    for _ in range(20):
        yield bytes(1 << 20)
    os._exit(9)

asyncio.run(artifacts_at(sys.argv[1]).put("files/half", chunks()))
"""


def test_what_a_killed_process_had_put_goes_with_its_name(tmp_path: Path) -> None:
    for _ in range(2):  # the second puts beside what the first left
        assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)]).returncode == 9
    left = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert left == ["half#1", "half#2"]
    asyncio.run(artifacts_at(str(tmp_path)).delete("files/half"))
    assert list((tmp_path / "files").iterdir()) == []
