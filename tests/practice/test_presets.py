"""The official clients of providers with OpenAI's API work against the practice provider, unmodified."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from groq import Groq
from mistralai.client import Mistral
from mistralai.client.errors import HTTPValidationError
from openai import AzureOpenAI, OpenAI
from together import Together

from backstay.practice import Faults, Practice

pytestmark = pytest.mark.slow

KEY = "sk-practice-0123456789"
MESSAGES: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def root() -> AsyncIterator[str]:
    async with Practice(Faults(key=KEY, batch_seconds=0.0)).serving() as base_url:
        yield base_url.removesuffix("/v1")


def batch_lines(url: str | None, count: int = 2) -> io.BytesIO:
    named = {} if url is None else {"method": "POST", "url": url}
    lines = [
        {"custom_id": f"c{n}", **named, "body": {"model": "m", "messages": MESSAGES, "max_tokens": 5}}
        for n in range(count)
    ]
    file = io.BytesIO("".join(json.dumps(line) + "\n" for line in lines).encode())
    file.name = "lines.jsonl"
    return file


def finish(client: Any, endpoint: str, url: str) -> list[str]:
    """A batch from upload to results, as a client of OpenAI's API does it."""
    file = client.files.create(file=batch_lines(url), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
    while batch.status not in ("completed", "failed"):
        batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed", batch.errors
    content = client.files.content(batch.output_file_id).read().decode()
    return sorted(json.loads(line)["custom_id"] for line in content.splitlines())


async def test_groqs_client(root: str) -> None:
    def use() -> None:
        client = Groq(api_key=KEY, base_url=root, max_retries=0, _strict_response_validation=True)
        reply = client.chat.completions.create(model="llama", messages=MESSAGES)
        assert reply.choices[0].message.content
        assert [model.id for model in client.models.list().data]
        assert finish(client, "/v1/chat/completions", "/v1/chat/completions") == ["c0", "c1"]

    await asyncio.to_thread(use)


@pytest.mark.parametrize("form", ["older", "newer"])
async def test_azures_client(root: str, form: str) -> None:
    def use() -> None:
        given: Any = {"api_key": KEY, "max_retries": 0, "_strict_response_validation": True}
        client: Any
        if form == "older":
            client = AzureOpenAI(azure_endpoint=root, api_version="2024-10-21", **given)
        else:
            client = OpenAI(base_url=f"{root}/openai/v1", **given)
        reply = client.chat.completions.create(model="my-deployment", messages=MESSAGES)
        assert reply.choices[0].message.content
        assert client.embeddings.create(model="my-deployment", input="x", encoding_format="float").data
        assert finish(client, "/chat/completions", "/chat/completions") == ["c0", "c1"]

    await asyncio.to_thread(use)


async def test_mistrals_client(root: str) -> None:
    def use() -> None:
        client = Mistral(api_key=KEY, server_url=f"{root}/mistral")
        reply = client.chat.complete(model="mistral-small-latest", messages=MESSAGES)
        assert reply.choices[0].message is not None
        assert reply.choices[0].message.content
        assert {card.model_dump()["id"] for card in client.models.list().data or []} >= {"practice"}
        assert client.models.retrieve(model_id="m").model_dump()["id"] == "m"
        assert client.embeddings.create(model="mistral-embed", inputs=["x", "y"]).data[1].embedding
        with pytest.raises(HTTPValidationError, match="messages"):
            client.chat.complete(model="mistral-small-latest", messages=[])
        file = client.files.upload(file={"file_name": "a.jsonl", "content": batch_lines(None)}, purpose="batch")
        job = client.batch.jobs.create(
            input_files=[file.id], endpoint="/v1/chat/completions", model="m", metadata={"k": "v"}, timeout_hours=24
        )
        while job.status not in ("SUCCESS", "FAILED"):
            job = client.batch.jobs.get(job_id=job.id)
        assert (job.status, job.succeeded_requests, job.metadata) == ("SUCCESS", 2, {"k": "v"}), job.errors
        assert job.output_file
        content = client.files.download(file_id=job.output_file).read().decode()
        assert sorted(json.loads(line)["custom_id"] for line in content.splitlines()) == ["c0", "c1"]
        assert client.batch.jobs.list(page=0, page_size=5).total == 1
        begun = datetime.fromtimestamp(job.created_at, UTC)
        for chosen, total in (
            ({"status": ["SUCCESS"]}, 1),
            ({"status": ["QUEUED", "RUNNING"]}, 0),
            ({"model": "other"}, 0),
            ({"created_after": begun}, 1),
            ({"created_after": begun + timedelta(hours=1)}, 0),
        ):
            assert client.batch.jobs.list(**chosen).total == total, chosen
        assert {each.id for each in client.files.list().data} >= {file.id, job.output_file}
        assert client.batch.jobs.cancel(job_id=job.id).status == "SUCCESS"
        assert client.files.delete(file_id=file.id).deleted

    await asyncio.to_thread(use)


async def test_togethers_client(root: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(batch_lines(None).getvalue())

    def use() -> None:
        client = Together(api_key=KEY, base_url=f"{root}/together", max_retries=0, _strict_response_validation=True)
        reply = client.chat.completions.create(model="m", messages=MESSAGES)
        assert reply.choices[0].message is not None
        file = client.files.upload(file=path, purpose="batch-api")
        assert client.files.upload(file=path, purpose="batch-api").id == file.id, "the same content is one file"
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions").job
        while batch is not None and batch.status not in ("COMPLETED", "FAILED"):
            batch = client.batches.retrieve(str(batch.id))
        assert batch is not None
        assert batch.status == "COMPLETED", batch.error
        content = client.files.content(str(batch.output_file_id)).read().decode()
        assert sorted(json.loads(line)["custom_id"] for line in content.splitlines()) == ["c0", "c1"]
        assert [each.id for each in client.batches.list()] == [batch.id]
        assert file.id in {each.id for each in client.files.list().data}
        assert client.batches.cancel(str(batch.id)).status == "COMPLETED"

    await asyncio.to_thread(use)
