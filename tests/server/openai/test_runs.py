"""Runs of the command on the same database are batches, and batches are jobs."""

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import cast

import pytest
from openai import NotFoundError

from backstay.app import Backstay
from backstay.llm.endpoint import Endpoint
from backstay.llm.formats import InputOptions
from backstay.llm.intake import open_source, survey
from backstay.run.run import Run
from backstay.run.submission import Order
from backstay.run.view import View
from backstay.store.batches import Batches, JobsPage
from tests.server.openai.openai_rig import CHAT, Desk, line, opened, requests


class Unseen:
    """A view that shows nothing to anyone."""

    def show(self, *_: object) -> None: ...
    def say(self, text: str) -> None: ...

    def end(self, *_: object) -> None: ...


async def run_of(url: str, base_url: str, content: bytes, folder: Path, owner: str, dedupe: bool = False) -> list[str]:
    """As `backstay run` does it; gives the lines of its results."""
    file, out = folder / "requests.jsonl", folder / "out.jsonl"
    file.write_bytes(content)
    order = Order(Endpoint(base_url), out, folder / "errors.jsonl", dedupe=dedupe)
    async with Backstay(url, owner=owner) as app:
        with open_source(str(file), InputOptions()) as source:
            await Run(app, order, source, survey(source)).run(_show)
    return out.read_text(encoding="utf-8").splitlines()


def _show(job_id: int) -> AbstractContextManager[View]:
    return nullcontext(cast(View, Unseen()))


@pytest.mark.parametrize("dedupe", [False, True])
async def test_a_run_is_listed_and_read_like_a_batch(
    desk: Desk, database_url: str, tmp_path: Path, dedupe: bool
) -> None:
    content = "\n".join(
        [line("a"), line("b", messages="none"), line("c", messages=[]), line("d", messages=[])]
    ).encode()
    ran = await run_of(database_url, desk.base_url, content, tmp_path, "ada", dedupe)
    client = desk.client()
    [listed] = [batch async for batch in client.batches.list()]
    done = await desk.until(listed)
    assert (done.status, done.endpoint, done.model) == ("completed", CHAT, "practice")
    output = await desk.lines(done.output_file_id)
    assert sorted(map(json.dumps, output)) == sorted(json.dumps(json.loads(one)) for one in ran)
    failed = await desk.lines(done.error_file_id) if done.error_file_id else []
    assert {one["custom_id"] for one in [*output, *failed]} == {"a", "b", "c", "d"}
    asked = await client.files.content(done.input_file_id)
    assert [json.loads(one)["custom_id"] for one in asked.text.splitlines()][:2] == ["a", "b"]
    shown = await client.files.retrieve(done.input_file_id)
    assert shown.bytes == len(asked.content)
    assert [batch.id async for batch in client.batches.list()] == [done.id]
    assert [batch async for batch in desk.client("bob").batches.list()] == []


@pytest.mark.slow
@pytest.mark.parametrize("adopted_first", [False, True])
async def test_a_run_whose_failures_were_archived_is_read_like_a_batch(
    desk: Desk, database_url: str, tmp_path: Path, adopted_first: bool
) -> None:
    content = "\n".join([line("a", messages="none"), line("b"), line("c", messages="none")]).encode()
    await run_of(database_url, desk.base_url, content, tmp_path, "ada")
    client = desk.client()
    if adopted_first:
        [listed] = [batch async for batch in client.batches.list()]
        await desk.until(listed)
    archived = await desk.rig.ada.post("/api/dead-letters/archive", json={"older_than_seconds": 0})
    assert archived.json == {"items": 2}
    [listed] = [batch async for batch in client.batches.list()]
    done = await desk.until(listed)
    assert done.error_file_id is not None
    failed = await desk.lines(done.error_file_id)
    assert [(one["custom_id"], one["response"]) for one in failed] == [("a", None), ("c", None)]
    assert "in archive 1" in failed[0]["error"]["message"]
    asked = [json.loads(one) for one in (await client.files.content(done.input_file_id)).text.splitlines()]
    assert [(one["custom_id"], one["body"].get("archived")) for one in asked] == [("a", True), ("b", None), ("c", True)]


async def test_a_runs_requests_can_be_a_batch_again(sqlite_desk: Desk, sqlite_file_url: str, tmp_path: Path) -> None:
    desk = sqlite_desk
    await run_of(sqlite_file_url, desk.base_url, requests(3), tmp_path, "ada")
    [listed] = [batch async for batch in desk.client().batches.list()]
    again = await desk.client().batches.create(
        input_file_id=listed.input_file_id, endpoint=CHAT, completion_window="24h"
    )
    done = await desk.until(again)
    assert done.status == "completed"
    assert len(await desk.lines(done.output_file_id)) == 3
    assert len([batch async for batch in desk.client().batches.list()]) == 2


async def test_a_batch_is_a_job_of_its_owner(desk: Desk) -> None:
    done = await desk.done(requests(2))
    [job] = await desk.rig.service.store.job_views.page("ada")
    assert (job.label, job.succeeded) == (done.id, 2)
    assert await desk.rig.service.store.job_views.page("bob") == []


async def test_a_job_that_a_command_cancels_is_a_cancelled_batch(sqlite_desk: Desk) -> None:
    desk = sqlite_desk
    desk.practice.change(latency=0.05, concurrency=1)
    batch = await desk.until(await desk.create(requests(100)), "in_progress")
    store = desk.rig.service.store
    while not (jobs := await store.job_views.page("ada")):
        pass
    await desk.rig.service.client("ada").job(jobs[0].id).cancel()
    desk.practice.change(latency=0, concurrency=None)
    done = await desk.until(batch)
    assert (done.status, done.cancelling_at) == ("cancelled", None)
    assert done.cancelled_at is not None


async def test_handlers_of_an_application_are_no_batches(sqlite_file_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_file_url, tmp_path / "data") as desk:
        made = desk.rig.made

        @made.handler()
        async def echo(item: object) -> object:
            return item

        await made.submit("echo", [1, 2], idempotency_key="x")
        assert [batch async for batch in desk.client().batches.list()] == []


async def test_the_batch_of_a_deleted_job_is_gone_at_once_with_its_files(desk: Desk) -> None:
    batch = await desk.done(requests(2))
    client, store = desk.client(), desk.rig.service.store
    [job] = await store.job_views.page("ada")
    await store.jobs.disown(job.id, "ada")  # its rows are still there
    assert [one async for one in client.batches.list()] == []
    assert [file.id async for file in client.files.list()] == [batch.input_file_id]
    with pytest.raises(NotFoundError):
        await client.batches.retrieve(batch.id)


async def test_a_list_looks_at_what_is_new_and_now_and_then_at_what_came_late(
    desk: Desk, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs there were in the last hour."""
    batches, client = desk.rig.service.store.batches, desk.client()
    asked: list[int] = []
    adoptable = Batches.adoptable

    async def counted(self: Batches, owner: str, after: int) -> JobsPage:
        asked.append(after)
        return await adoptable(self, owner, after)

    monkeypatch.setattr(Batches, "adoptable", counted)
    assert [one async for one in client.batches.list()] == []
    looked = desk.rig.service.adoption_progress["ada"]
    looked.again_at = float("inf")
    await run_of(database_url, desk.base_url, requests(1), tmp_path, "ada")
    [first] = [one async for one in client.batches.list()]
    await client.batches.list()
    job = (await batches.get(first.id, "ada")).job_id
    assert asked == [0, 0, job], "the job that was seen is not read again"
    looked.newest += 100  # as if later jobs were seen before this one was committed
    (tmp_path / "late").mkdir()
    await run_of(database_url, desk.base_url, requests(2), tmp_path / "late", "ada")
    assert len((await client.batches.list()).data) == 1
    looked.again_at = 0.0
    assert len((await client.batches.list()).data) == 2
