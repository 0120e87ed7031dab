"""Every request of a cancelled batch stands in exactly one of its files, however far it had come."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openai.types import Batch

from backstay.server.openai import mover, survey
from backstay.server.openai.shapes import content
from backstay.server.service import Service
from backstay.store.files import StoredFile
from tests.server.openai.openai_rig import Desk, line, opened, requests


async def _names(desk: Desk, batch: Batch) -> Counter[str]:
    """The custom_ids in both files, and how often each is there."""
    lines = [*await desk.lines(batch.error_file_id)]
    assert {one["error"]["code"] for one in lines} == {"batch_cancelled"}
    assert len({one["id"] for one in lines}) == len(lines)
    if batch.output_file_id:
        lines += await desk.lines(batch.output_file_id)
    return Counter(one["custom_id"] for one in lines)


@pytest.mark.parametrize("ends_by", ["the batch", "the job", "the batch, its file deleted"])
async def test_what_was_not_in_yet_is_told_as_cancelled(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_by: str
) -> None:
    going_on = asyncio.Event()

    async def halting(service: Service, file: StoredFile) -> AsyncIterator[bytes]:
        """Stands still behind the requests that are in the job by then."""
        whole = b"".join([piece async for piece in content(service, file)])
        half = whole.index(b"request-4500")
        yield whole[:half]
        await going_on.wait()
        yield whole[half:]

    monkeypatch.setattr(survey, "content", halting)
    async with opened(database_url, tmp_path / "data") as desk:
        batch = await desk.create(requests(5_000))
        views = desk.rig.service.store.job_views
        async with asyncio.timeout(30):
            while not (jobs := await views.page("ada")) or jobs[0].total < 4_000:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        if ends_by == "the job":
            await desk.rig.service.client("ada").job(jobs[0].id).cancel()
        else:
            await desk.client().batches.cancel(batch.id)
        if "deleted" in ends_by:
            await desk.client().files.delete(batch.input_file_id)
        going_on.set()
        done = await desk.until(batch)
        assert done.status == "cancelled"
        assert (await views.page("ada"))[0].total == 4_000, "the rest was never sent"
        assert done.request_counts is not None
        assert done.request_counts.total == 5_000
        assert await _names(desk, done) == Counter(f"request-{n}" for n in range(5_000))
        errors = (await desk.rig.ada.get(f"/v1/batches/{batch.id}/errors")).lines
        assert errors == await desk.lines(done.error_file_id)


async def test_a_batch_that_is_cancelled_before_it_began_names_all_its_requests(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = asyncio.Event()
    looked = survey.check_file

    async def late(service: Service, batch: object) -> object:
        await cancelled.wait()
        return await looked(service, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(mover, "check_file", late)
    good, bad = await desk.create(requests(5)), await desk.create(f"{line('a')}\n{line('a')}".encode())
    for batch in (good, bad):
        assert (await desk.client().batches.cancel(batch.id)).status == "cancelling"
    cancelled.set()
    done = await desk.until(good)
    assert done.status == "cancelled"
    assert done.request_counts is not None
    assert done.request_counts.model_dump() == {"total": 5, "completed": 0, "failed": 0}
    assert await _names(desk, done) == Counter(f"request-{n}" for n in range(5))
    invalid = await desk.until(bad)
    assert (invalid.status, invalid.error_file_id) == ("cancelled", None), "what is not valid has no requests"
