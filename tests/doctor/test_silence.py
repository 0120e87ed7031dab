"""What accepts connections and never answers costs the doctor its patience once, and is told in words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backstay.cli.doctor import Finding, Level, Setup, command, ok, services
from backstay.cli.doctor.command import DoctorOptions, examine
from backstay.store.databases import schema

PATIENCE_SECONDS = 0.3


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """Where someone listens and says nothing."""
    asked: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert asked, "it was not even asked"
    finally:
        for writer in asked:
            writer.close()
        server.close()


async def told(asked: DoctorOptions, check: str) -> list[str]:
    return [one.says async for name, one in examine(asked) if name == check and one.level is Level.FAIL]


async def test_a_place_for_files_that_never_answers_is_told_in_time(
    sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "ANSWER_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(services, "DELETE_SECONDS", PATIENCE_SECONDS)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    async with silent() as place, asyncio.timeout(15):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{place}")
        says = await told(DoctorOptions(sqlite_file_url, data="s3://bucket/x"), "files")
    assert says == ["files: s3://bucket/x does not store files: it did not answer in time"]


async def test_a_database_that_never_answers_is_told_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "ANSWER_SECONDS", PATIENCE_SECONDS)
    async with silent() as place:
        [says] = await told(DoctorOptions(f"postgresql://ada@{place}/x"), "database")
    assert says.endswith("cannot reach PostgreSQL: it did not answer in time")


async def test_checks_wait_at_the_same_time(sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = asyncio.Barrier(2)

    async def first(setup: Setup) -> AsyncIterator[Finding]:
        await meeting.wait()
        yield ok("met")

    async def second(setup: Setup) -> AsyncIterator[Finding]:
        await meeting.wait()
        yield ok("met, too")

    monkeypatch.setattr(command, "AROUND", (first, second))
    monkeypatch.setattr(command, "CHECK_SECONDS", 5.0)
    found = [f"{name}: {one.says}" async for name, one in examine(DoctorOptions(sqlite_file_url))]
    assert found[:2] == ["first: met", "second: met, too"]


async def test_providers_that_never_answer_are_waited_for_together(
    sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "ASK_SECONDS", PATIENCE_SECONDS)
    async with silent() as place:
        says = await told(DoctorOptions(sqlite_file_url, base_url=f"http://{place}/v1"), "providers")
    assert says == [f"{place} cannot be reached: no answer within 0.3 s"]
