"""How the requests of a run get into the database, from a file that may change meanwhile."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from backstay import Backstay
from backstay.client import Client, chunks
from backstay.core.errors import NotAllowed, UsageError
from backstay.core.states import JobState
from backstay.llm import intake
from backstay.llm.endpoint import Endpoint
from backstay.llm.formats import InputOptions
from backstay.llm.intake import RequestSource, open_source, survey
from backstay.run.submission import Order, Submission
from tests.llm.request_files import batch_line

FEW = 2


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "CHECKED_REQUESTS", FEW)
    monkeypatch.setattr(chunks, "CHUNK_ITEMS", FEW)


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Client]:
    async with Backstay(database_url) as app:
        yield await app.open()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


@pytest.fixture
def source(file: Path) -> Iterator[RequestSource]:
    write(file, "abcdefgh")
    with open_source(str(file), InputOptions()) as source:
        yield source


def write(file: Path, names: str) -> None:
    file.write_text("".join(f"{batch_line(name)}\n" for name in names))


def submission(source: RequestSource) -> Submission:
    endpoint = Endpoint("http://127.0.0.1:9/v1")
    return Submission(Order(endpoint, "out.jsonl"), source, survey(source))


async def send(client: Client, sending: Submission) -> int:
    await sending.find(client)
    return await sending.send(client, lambda: None)


async def test_a_job_whose_file_changes_while_it_is_read_is_cancelled_with_nothing_unseen_in_it(
    opened: Client, file: Path, source: RequestSource
) -> None:
    sending = submission(source)
    write(file, "abcdefzh")
    with pytest.raises(UsageError, match="was changed while it was read") as refused:
        await send(opened, sending)
    (job,) = await opened.store.job_views.page(opened.owner)
    assert (job.state, job.total) == (JobState.CANCELLED, 4)
    assert f"job {job.id}, " in refused.value.hint
    assert "--new" in refused.value.hint

    write(file, "abcdefgh")
    with pytest.raises(NotAllowed, match="contains only a part of this file") as refused_again:
        await send(opened, submission(source))
    assert "--new" in refused_again.value.hint


async def test_a_job_that_is_whole_goes_on_when_its_file_changes_later(
    opened: Client, file: Path, source: RequestSource
) -> None:
    job_id = await send(opened, submission(source))
    again = submission(source)
    write(file, "abcdefzh")
    with pytest.raises(UsageError, match="was changed while it was read"):
        await send(opened, again)
    assert (await opened.job(job_id).show()).state is JobState.QUEUED
