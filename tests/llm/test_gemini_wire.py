"""What we send to Gemini, compared field by field with what Google's own client sends for the same request."""

from io import BytesIO
from typing import Any

import pytest
from google import genai
from google.genai import types

from backstay.core.models import Submitted
from backstay.llm.endpoint import Lane
from tests.databases import Site
from tests.llm.lane_rig import KEY, Arrival, LaneRig, Recorder, lane

pytestmark = pytest.mark.slow

MODEL = "gemini-2.5-flash"
URL = f"/v1/models/{MODEL}:generateContent"
OWN = {"x-goog-api-key", "accept", "accept-encoding", "user-agent", "host", "content-length", "connection"}
BODY: dict[str, Any] = {
    "contents": [{"parts": [{"text": "héllo ✓"}], "role": "user"}],
    "systemInstruction": {"parts": [{"text": "be brief"}], "role": "user"},
    "tools": [{"functionDeclarations": [{"name": "f", "description": "d"}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "generationConfig": {"maxOutputTokens": 100, "temperature": 0.5, "stopSequences": ["END"], "topP": 0.9},
}
CONFIG = types.GenerateContentConfig(
    system_instruction="be brief",
    max_output_tokens=100,
    temperature=0.5,
    stop_sequences=["END"],
    top_p=0.9,
    tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="f", description="d")])],
    tool_config=types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.AUTO)
    ),
)


def sdk(rig: LaneRig) -> Any:
    retries = types.HttpRetryOptions(attempts=1)
    options = types.HttpOptions(base_url=rig.base_url.removesuffix("/v1"), api_version="v1", retry_options=retries)
    return genai.Client(api_key=KEY, http_options=options, vertexai=False).aio


def check_same(ours: Arrival, theirs: Arrival) -> None:
    assert (ours.method, ours.path, ours.query) == (theirs.method, theirs.path, theirs.query)
    assert ours.headers["x-goog-api-key"] == theirs.headers["x-goog-api-key"] == KEY
    told = {name: value for name, value in ours.headers.items() if name.startswith("x-goog-upload")}
    assert told == {name: theirs.headers[name] for name in told}
    assert ours.headers.keys() <= OWN | told.keys() | {"content-type"}


async def test_a_call_is_the_request_that_the_client_sends(sqlite_site: Site) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.CALL, recorder, api="gemini") as rig:
        client = sdk(rig)
        job = await rig.request([BODY], URL)
        assert (await rig.done(job)).succeeded == 1
        [ours] = recorder.take()
        await client.models.generate_content(model=MODEL, contents="héllo ✓", config=CONFIG)
        [theirs] = recorder.take()
        await client.aclose()
        check_same(ours, theirs)
        assert ours.value == theirs.value
        assert ours.headers["content-type"] == theirs.headers["content-type"] == "application/json"


async def test_a_batch_is_uploaded_created_shown_read_and_cancelled_as_by_the_client(sqlite_site: Site) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.BATCH, recorder, api="gemini") as rig:
        client = sdk(rig)
        job = await rig.request([BODY, {**BODY, "tools": []}], URL)
        assert (await rig.done(job)).succeeded == 2
        start, create, *shows, results, _ = recorder.take()
        size = int(start.headers["x-goog-upload-header-content-length"])
        config = {"mime_type": "application/jsonl", "display_name": start.value["file"]["displayName"]}
        file = await client.files.upload(file=BytesIO(b"x" * size), config=config)
        [theirs] = recorder.take()
        check_same(start, theirs)
        name = create.value["batch"]["displayName"]
        await client.batches.create(model=MODEL, src=file.name, config={"display_name": name})
        [theirs] = recorder.take()
        check_same(create, theirs)
        used = create.value["batch"].pop("inputConfig")
        assert list(used) == ["fileName"]
        assert {**create.value["batch"], "inputConfig": {"fileName": file.name}} == {
            **theirs.value["batch"],
            "displayName": theirs.value["batch"].get("displayName"),
            "inputConfig": {"fileName": file.name},
        }
        batch_id = shows[0].path.rpartition("/")[2]
        shown = await client.batches.get(name=f"batches/{batch_id}")
        check_same(shows[0], recorder.take()[0])
        await client.files.download(file=shown.dest.file_name)
        check_same(results, recorder.take()[0])
        await rig.handler.cancel(f"{batch_id}/x")  # type: ignore[union-attr]
        [cancel] = recorder.take()
        await client.batches.cancel(name=f"batches/{batch_id}")
        check_same(cancel, recorder.take()[0])
        assert cancel.body == b""
        await client.aclose()


async def test_a_list_is_asked_for_as_by_the_client(sqlite_site: Site) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.BATCH, recorder, api="gemini") as rig:
        client = sdk(rig)
        job = await rig.request([BODY], URL)
        assert (await rig.done(job)).succeeded == 1
        rig.restart()
        task = (await rig.item(job)).provider_task_id
        assert task is not None
        recorder.take()
        assert isinstance(await rig.handler.ask(task.rpartition("/")[2], 1), Submitted)
        listed, results = recorder.take()
        _ = [each async for each in await client.batches.list(config={"page_size": 100})]
        check_same(listed, recorder.take()[0])
        assert results.path.endswith(":download")
        await client.aclose()
