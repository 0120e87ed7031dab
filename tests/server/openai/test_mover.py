"""Batches are moved on whoever dies, and end when their time is over."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.core.errors import BackstayError
from backstay.server.openai import mover, survey
from backstay.server.openai.shapes import content
from backstay.server.service import Service, drop_blobs
from backstay.store.batches import NewBatch
from backstay.store.files import StoredFile
from tests.server.openai.openai_rig import CHAT, Desk, line, opened, requests


@pytest.mark.slow
async def test_when_a_window_ends_what_was_not_sent_has_expired_and_what_was_sent_is_of_unknown_outcome(
    sqlite_file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten are answered; of thirty that the provider never answers, and bills, twenty are under way at the end."""
    monkeypatch.setenv("BACKSTAY_SHUTDOWN_SECONDS", "1")
    good = requests(10)
    silent = "".join(f"{line(f'silent-{i}', model='practice-hang-billed')}\n" for i in range(30)).encode()
    async with opened(sqlite_file_url, tmp_path / "data") as desk:
        batch = await desk.create(good + silent, completion_window="6s")
        done = await desk.until(batch)
        output, errors = await desk.lines(done.output_file_id), await desk.lines(done.error_file_id)
    assert done.status == "expired"
    assert done.expired_at is not None
    assert done.completed_at is None
    assert {one["custom_id"] for one in output} == {f"request-{i}" for i in range(10)}
    assert len({one["custom_id"] for one in [*output, *errors]}) == 40
    assert Counter(one["error"]["code"] for one in errors) == {"outcome_unknown": 20, "batch_expired": 10}
    assert [one["response"] for one in errors] == [None] * 30
    [words] = {one["error"]["message"] for one in errors if one["error"]["code"] == "batch_expired"}
    assert "completion window" in words


async def test_a_batch_expires_even_if_nobody_works(sqlite_file_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_file_url, tmp_path / "data", works=False) as desk:
        done = await desk.done(requests(3), completion_window="1s")
        assert (done.status, done.output_file_id) == ("expired", None)
        assert len(await desk.lines(done.error_file_id)) == 3


async def test_a_submission_that_broke_off_goes_on_where_it_was(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = [True]

    async def torn(service: Service, file: StoredFile) -> AsyncIterator[bytes]:
        async for chunk in content(service, file):
            half = len(chunk) * 3 // 4
            yield chunk[:half]
            if breaks:
                breaks.pop()
                raise BackstayError("the disk went away")
            yield chunk[half:]

    monkeypatch.setattr(survey, "content", torn)
    monkeypatch.setattr(mover, "TROUBLE_MS", 10)
    async with opened(database_url, tmp_path / "data", works=False) as desk:
        store = desk.rig.service.store
        await desk.create(requests(2_800))
        while not (jobs := await store.job_views.page("ada")) or not jobs[0].sealed:
            pass
        assert breaks == []
        assert [job.total for job in jobs] == [2_800]
        asked = [json.loads(body)["custom_id"] async for page in store.batches.requests(jobs[0].id) for body in page]
        assert asked == [f"request-{i}" for i in range(2_800)]


async def test_a_batch_that_a_dead_process_left_behind_is_taken_up(database_url: str, tmp_path: Path) -> None:
    """Whatever the last thing was that it wrote."""
    async with opened(database_url, tmp_path / "data", works=False) as desk:
        file = await desk.upload(requests(5))
    async with desk.rig.made as made:
        batches = (await made.open()).store.batches
        for number in range(3):
            new = NewBatch(f"batch_{number}", "ada", CHAT, file.id, "24h", 86_400_000, None, None)
            await batches.create(new, None)
            if number > 0:
                assert await batches.begin(new.id, 5, "practice")
            if number > 1:
                assert await batches.finalize(new.id)  # and its job was deleted by someone
    async with opened(database_url, tmp_path / "data") as desk:
        found = [await desk.client().batches.retrieve(f"batch_{number}") for number in range(3)]
        assert [(await desk.until(batch)).status for batch in found] == ["completed"] * 3
        assert len(await desk.lines((await desk.client().batches.retrieve("batch_1")).output_file_id)) == 5


async def test_many_movers_move_each_batch_once(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path / "data") as desk:
        movers = [mover.Mover(desk.rig.service) for _ in range(3)]
        for one in movers:
            one.start()
        batches = await asyncio.gather(*(desk.create(requests(5), metadata={"n": str(n)}) for n in range(12)))
        done = [await desk.until(batch) for batch in batches]
        for one in movers:
            await one.stop()
        assert {batch.status for batch in done} == {"completed"}
        assert len(await desk.rig.service.store.job_views.page("ada")) == 12
        outputs = [name async for name in desk.rig.service.artifacts.names("files")]
        assert len(outputs) == 24  # an input and an output each, and nothing besides


async def test_a_deleted_input_is_kept_until_its_requests_are_in(
    sqlite_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = asyncio.Event()

    async def slow(service: Service, file: StoredFile) -> AsyncIterator[bytes]:
        await going_on.wait()
        async for chunk in content(service, file):
            yield chunk

    monkeypatch.setattr(survey, "content", slow)
    desk = sqlite_desk
    batch = await desk.until(await desk.create(requests(3)), "in_progress")
    await desk.client().files.delete(batch.input_file_id)
    going_on.set()
    done = await desk.until(batch)
    assert done.status == "completed"
    assert await drop_blobs(desk.rig.service) == 1
    assert await desk.rig.service.artifacts.size("files") is None
    assert len(await desk.lines(done.output_file_id)) == 3
