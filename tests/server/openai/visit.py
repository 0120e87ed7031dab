"""What a program does with OpenAI's client, whichever major is installed: run with (sync, async or azure), url and key.

It knows nothing of Backstay. What it saw it prints as JSON.
"""

import asyncio
import inspect
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai

CHAT = "/v1/chat/completions"


def lines(n: int) -> Iterator[str]:
    for i in range(n):
        body = {"model": "practice", "messages": [{"role": "user", "content": f"Say {i}"}]}
        yield json.dumps({"custom_id": f"request-{i}", "method": "POST", "url": CHAT, "body": body})


def client_of(kind: str, url: str, key: str) -> Any:
    given: dict[str, Any] = {"api_key": key, "_strict_response_validation": True}
    if kind == "azure":
        return openai.AzureOpenAI(azure_endpoint=url, api_version="2024-10-21", **given)
    made: Any = openai.AsyncOpenAI if kind == "async" else openai.OpenAI
    return made(base_url=url + "/v1", **given)


async def asked(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def listed(pages: Any) -> list[Any]:
    if hasattr(pages, "__aiter__"):
        return [one async for one in pages]
    return list(await asked(pages))


async def pages(client: Any) -> list[Any]:
    """The first page of the batches and the last."""
    first = await asked(client.batches.list(limit=3))
    last = first
    while last.has_more:
        last = await asked(client.batches.list(limit=3, after=last.data[-1].id))
    return [first, last]


async def uploads(client: Any, content: bytes) -> list[Any]:
    path = Path(tempfile.mkdtemp()) / "in.jsonl"
    path.write_bytes(content)
    with path.open("rb") as handle:
        files = [
            await asked(client.files.create(file=content, purpose="batch")),
            await asked(client.files.create(file=handle, purpose="batch")),
            await asked(client.files.create(file=path, purpose="batch")),
        ]
    lived = {"expires_after": {"anchor": "created_at", "seconds": 3600}}
    files.append(await asked(client.files.create(file=("in.jsonl", content), purpose="batch", extra_body=lived)))
    return files


async def refused(ask: Any, **given: Any) -> list[Any] | None:
    try:
        await asked(ask(**given))
    except openai.APIStatusError as error:
        tried_again = error.response.request.headers["x-stainless-retry-count"] != "0"
        return [type(error).__name__, error.status_code, error.code, error.param, bool(error.request_id), tried_again]
    return None


async def finished(client: Any, batch: Any) -> Any:
    begun = time.monotonic()
    while batch.status not in ("completed", "failed", "expired", "cancelled") and time.monotonic() < begun + 30:
        await asyncio.sleep(0.05)
        batch = await asked(client.batches.retrieve(batch.id))
    return batch


async def levels(client: Any) -> dict[str, Any]:
    """What is wrong with a file makes the batch failed; what is wrong with one request stands in the error file."""
    first, second = lines(2)
    order = {"endpoint": CHAT, "completion_window": "24h"}
    broken = "\n".join([first, "{oops", second.replace(CHAT, "/v1/responses"), first]).encode()
    refused_later = "\n".join([first, second.replace('"messages": [', '"messages": [0, ')]).encode()
    seen = {}
    for name, content in (("failed", broken), ("partly", refused_later)):
        file = await asked(client.files.create(file=("in.jsonl", content), purpose="batch"))
        seen[name] = await finished(client, await asked(client.batches.create(input_file_id=file.id, **order)))
    error = (await asked(client.files.content(seen["partly"].error_file_id))).text
    told = json.loads(error)
    return {
        "failed": [[one.code, one.line, one.param] for one in seen["failed"].errors.data],
        "partly": [seen["partly"].status, told["custom_id"], told["response"]["status_code"], told["error"]],
    }


async def visit(kind: str, url: str, key: str) -> dict[str, Any]:
    client = client_of(kind, url, key)
    content = "\n".join(lines(5)).encode()
    files = await uploads(client, content)
    order = {"endpoint": CHAT, "completion_window": "24h"}
    made = [
        await asked(client.batches.create(input_file_id=file.id, metadata={"n": str(n)}, **order))
        for n, file in enumerate(files)
    ]
    done = [await finished(client, batch) for batch in made]
    output = await asked(client.files.content(done[0].output_file_id))
    return {
        "version": openai.__version__,
        "statuses": [batch.status for batch in done],
        "completed": [batch.request_counts.completed for batch in done],
        "names": sorted(json.loads(line)["custom_id"] for line in output.text.splitlines()),
        "same": [(await asked(client.files.content(file.id))).content == content for file in files],
        "lives": files[3].expires_at - files[3].created_at,
        "listed": [batch.id for batch in await listed(client.batches.list(limit=2))] == [b.id for b in made[::-1]],
        "files": len(await listed(client.files.list(limit=3))),
        "models": "practice" in [model.id for model in await listed(client.models.list())],
        "conflict": await refused(client.batches.cancel, batch_id=done[0].id),
        "missing": await refused(client.batches.retrieve, batch_id="batch_none"),
        "wrong": await refused(client.batches.create, input_file_id="x", **{**order, "endpoint": "/v1/none"}),
        **await levels(client),
        "more": [page.has_more for page in await pages(client)],
        "deleted": (await asked(client.files.delete(files[1].id))).deleted,
    }


print(json.dumps(asyncio.run(visit(*sys.argv[1:]))))
