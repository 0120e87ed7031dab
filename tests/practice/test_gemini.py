"""Google's own client, unmodified and strict, at the practice provider: answers, models, files, batches and errors."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import pytest
from google import genai
from google.genai import errors, types
from openai import AsyncOpenAI

from backstay.practice import Faults, Practice
from tests.practice.visitor import HeldClock, eventually

pytestmark = pytest.mark.slow

KEY = "AIza-practice-0123"
MODEL = "gemini-2.5-flash"
VERSIONS = ("v1", "v1beta")


def line(key: str, text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"key": key, "request": {"contents": [{"parts": [{"text": text}]}], **more}}


def fault(name: str) -> dict[str, Any]:
    return {"cachedContent": f"cachedContents/practice-{name}"}


class Desk:
    def __init__(self, practice: Practice, root: str, version: str) -> None:
        self.practice = practice
        self.root = root
        retries = types.HttpRetryOptions(attempts=1)
        options = types.HttpOptions(base_url=root, api_version=version, retry_options=retries)
        self.client = genai.Client(api_key=KEY, http_options=options, vertexai=False).aio
        self.models, self.files, self.batches = self.client.models, self.client.files, self.client.batches

    async def upload(self, *lines: dict[str, Any], name: str | None = None) -> types.File:
        raw = "".join(json.dumps(each) + "\n" for each in lines).encode()
        config = types.UploadFileConfig(name=name, mime_type="jsonl", display_name="input")
        return await self.files.upload(file=BytesIO(raw), config=config)

    async def batch(self, *lines: dict[str, Any], model: str = MODEL, name: str = "b") -> types.BatchJob:
        file = await self.upload(*lines)
        return await self.batches.create(model=model, src=str(file.name), config={"display_name": name})

    async def ended(self, batch: types.BatchJob) -> types.BatchJob:
        async def has_ended() -> bool:
            return bool((await self.batches.get(name=str(batch.name))).done)

        await eventually(has_ended)
        return await self.batches.get(name=str(batch.name))

    async def results(self, batch: types.BatchJob) -> dict[str, Any]:
        assert batch.dest is not None
        raw = await self.files.download(file=str(batch.dest.file_name))
        found = [json.loads(each) for each in raw.decode().splitlines()]
        assert len({each["key"] for each in found}) == len(found)
        return {each["key"]: each for each in found}

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession(headers={"x-goog-api-key": KEY}) as session,
            session.request(method, f"{self.root}{path}", **more) as reply,
        ):
            return reply.status, await reply.json(content_type=None)


@asynccontextmanager
async def desk(practice: Practice | None = None, version: str = "v1", **faults: Any) -> AsyncIterator[Desk]:
    provider = practice or Practice(Faults(**{"batch_seconds": 0.05, **faults}))
    async with provider.serving() as base_url:
        at = Desk(provider, base_url.removesuffix("/v1"), version)
        try:
            yield at
        finally:
            await at.client.aclose()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_is_given_and_billed(version: str) -> None:
    async with desk(version=version) as at:
        config = types.GenerateContentConfig(system_instruction="be brief", max_output_tokens=50)
        said = await at.models.generate_content(model=MODEL, contents="hello", config=config)
        assert str(said.text).endswith(" hello")
        assert said.candidates is not None
        assert said.usage_metadata is not None
        assert (said.candidates[0].finish_reason, said.model_version) == (types.FinishReason.STOP, MODEL)
        bill, used = at.practice.bill, said.usage_metadata
        assert (bill.charged, bill.total.input_tokens, bill.total.output_tokens) == (
            1,
            used.prompt_token_count,
            used.candidates_token_count,
        )
        counted = await at.models.count_tokens(model=MODEL, contents="hello")
        assert counted.total_tokens is not None
        assert 0 < counted.total_tokens < (used.prompt_token_count or 0)  # this client leaves the system prompt out
        assert bill.charged == 1  # counting is free


async def test_a_whole_request_can_be_counted() -> None:
    body = {"contents": [{"parts": [{"text": "hello"}]}], "systemInstruction": {"parts": [{"text": "be brief"}]}}
    async with desk() as at:
        _, plain = await at.ask("POST", f"/v1beta/models/{MODEL}:countTokens", json={"contents": body["contents"]})
        asked = {"generateContentRequest": {"model": f"models/{MODEL}", **body}}
        _, whole = await at.ask("POST", f"/v1beta/models/{MODEL}:countTokens", json=asked)
        assert whole["totalTokens"] > plain["totalTokens"]


async def test_thinking_is_paid_beside_the_answer_and_can_leave_no_room_for_it() -> None:
    async with desk() as at:
        think = types.ThinkingConfig(thinking_budget=100)
        config = types.GenerateContentConfig(thinking_config=think, max_output_tokens=5)
        said = await at.models.generate_content(model=MODEL, contents="hello", config=config)
        assert said.candidates is not None
        assert said.usage_metadata is not None
        assert (said.text, said.candidates[0].finish_reason) == (None, types.FinishReason.MAX_TOKENS)
        assert said.usage_metadata.thoughts_token_count == 5
        assert said.usage_metadata.candidates_token_count is None  # zero is left out
        assert at.practice.bill.total.output_tokens == 5
        config = types.GenerateContentConfig(thinking_config=think, candidate_count=2)
        said = await at.models.generate_content(model=MODEL, contents="hello", config=config)
        assert said.usage_metadata is not None
        assert len(said.candidates or ()) == 2
        written = (said.usage_metadata.candidates_token_count or 0) + 8
        assert at.practice.bill.total.output_tokens == 5 + written


async def test_a_short_answer_is_cut_and_a_chosen_function_is_called() -> None:
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="look")])
    calling = types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
    async with desk() as at:
        config = types.GenerateContentConfig(max_output_tokens=1)
        short = await at.models.generate_content(model=MODEL, contents="hello", config=config)
        assert (short.candidates or [])[0].finish_reason == types.FinishReason.MAX_TOKENS
        config = types.GenerateContentConfig(
            tools=[tool], tool_config=types.ToolConfig(function_calling_config=calling)
        )
        called = await at.models.generate_content(model=MODEL, contents="hello", config=config)
        assert [call.name for call in called.function_calls or ()] == ["look"]


async def test_models_are_listed_for_each_api_in_its_own_form() -> None:
    async with desk() as at:
        names = [model.name async for model in await at.models.list(config={"page_size": 1, "query_base": True})]
        assert names == ["models/gemini-practice", "models/gemini-practice-mini"]
        assert (await at.models.get(model="gemini-x")).name == "models/gemini-x"
        with pytest.raises(errors.ClientError):
            await at.models.get(model="practice-404")
        async with AsyncOpenAI(base_url=f"{at.root}/v1", api_key="k", _strict_response_validation=True) as other:
            assert "practice" in [model.id async for model in other.models.list()]
            assert [file.id async for file in other.files.list()] == []


@pytest.mark.parametrize(
    ("model", "code", "status"),
    [
        ("practice-400", 400, "INVALID_ARGUMENT"),
        ("practice-401", 400, "INVALID_ARGUMENT"),  # a wrong key
        ("practice-403", 403, "PERMISSION_DENIED"),
        ("practice-404", 404, "NOT_FOUND"),
        ("practice-429", 429, "RESOURCE_EXHAUSTED"),
        ("practice-500", 500, "INTERNAL"),
        ("practice-503", 503, "UNAVAILABLE"),
        ("practice-504", 504, "DEADLINE_EXCEEDED"),
    ],
)
async def test_errors_have_the_form_of_the_api(model: str, code: int, status: str) -> None:
    async with desk() as at:
        with pytest.raises(errors.APIError) as refused:
            await at.models.generate_content(model=model, contents="hello")
        assert (refused.value.code, refused.value.status) == (code, status)
        assert at.practice.bill.charged == 0


async def test_a_wrong_key_is_a_wrong_argument() -> None:
    async with desk(key="another") as at:
        with pytest.raises(errors.ClientError, match="API_KEY_INVALID"):
            await at.models.generate_content(model=MODEL, contents="hello")
    async with desk(key=KEY) as at:
        await at.models.generate_content(model=MODEL, contents="hello")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "contents is not specified"),
        ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "valid role"),
        ({"contents": [{"parts": []}]}, "must not be empty"),
        ({"contents": [{"parts": [{"text": "x"}]}], "n": 2}, 'Unknown name "n"'),
        ({"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"candidateCount": 9}}, "candidatecount"),
    ],
)
async def test_a_wrong_request_is_refused(body: dict[str, Any], words: str) -> None:
    async with desk() as at:
        status, said = await at.ask("POST", f"/v1beta/models/{MODEL}:generateContent", json=body)
        assert (status, words in said["error"]["message"]) == (400, True)


def wait_in(said: Any) -> list[str]:
    return [each["retryDelay"] for each in said["error"]["details"] if "retryDelay" in each]


async def test_limits_are_told_in_the_body_with_the_time_to_wait() -> None:
    body = {"contents": [{"parts": [{"text": "x"}]}]}
    path = f"/v1beta/models/{MODEL}:generateContent"
    async with desk(rpm=1) as at:
        assert (await at.ask("POST", path, json=body))[0] == 200
        status, said = await at.ask("POST", path, json=body)
        assert status == 429
        assert "PerMinute" in json.dumps(said)
        assert 0 < int(wait_in(said)[0].removesuffix("s")) <= 60
    async with desk(quota=0) as at:
        status, said = await at.ask("POST", path, json=body)
        assert (status, wait_in(said), "spending cap" in json.dumps(said)) == (429, [], True)


async def test_vertex_has_the_same_answers_at_its_own_path() -> None:
    path = f"/v1/projects/p/locations/l/publishers/google/models/{MODEL}:generateContent"
    async with (
        desk(key="token") as at,
        aiohttp.ClientSession(headers={"Authorization": "Bearer token"}) as session,
        session.post(f"{at.root}{path}", json={"contents": [{"parts": [{"text": "hello"}]}]}) as reply,
    ):
        assert (reply.status, at.practice.bill.charged) == (200, 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_file_is_uploaded_in_pieces_shown_listed_and_deleted(version: str) -> None:
    async with desk(version=version, key=KEY) as at:
        big = [line(f"k{n}", "x" * 100_000) for n in range(90)]  # more than one piece
        file = await at.upload(*big, name="files/mine-1")
        assert (file.name, file.state, file.display_name) == ("files/mine-1", types.FileState.ACTIVE, "input")
        assert (await at.files.get(name="files/mine-1")).size_bytes == file.size_bytes
        assert (file.size_bytes or 0) > 8 << 20
        assert [each.name async for each in await at.files.list()] == ["files/mine-1"]
        with pytest.raises(errors.ClientError, match="ALREADY_EXISTS"):
            await at.upload(line("k"), name="files/mine-1")
        with pytest.raises(errors.ClientError):
            await at.files.download(file="files/mine-1")
        await at.files.delete(name="files/mine-1")
        with pytest.raises(errors.ClientError, match="PERMISSION_DENIED"):
            await at.files.get(name="files/mine-1")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_batch_of_a_file_is_run_at_half_the_price(version: str) -> None:
    async with desk(version=version) as at:
        made = await at.batch(*(line(f"k{n}", f"ask {n}") for n in range(30)), name="mine")
        assert (made.display_name, made.state, made.done) == ("mine", types.JobState.JOB_STATE_PENDING, False)
        batch = await at.ended(made)
        assert batch.state == types.JobState.JOB_STATE_SUCCEEDED
        results = await at.results(batch)
        assert list(results) != sorted(results, key=lambda name: int(name[1:])), "the order is not the input's"
        cost = 0
        for n in range(30):
            said = types.GenerateContentResponse.model_validate(results[f"k{n}"]["response"])
            assert str(said.text).endswith(f" ask {n}")
            assert said.usage_metadata is not None
            used = (said.usage_metadata.prompt_token_count or 0, said.usage_metadata.candidates_token_count or 0)
            cost += -(-(used[0] * 150_000 + used[1] * 600_000) // 2_000_000)
        assert at.practice.bill.total.cost_micros == cost
        assert batch.dest is not None
        with pytest.raises(errors.ClientError, match="more than 40 characters"):
            await at.files.get(name=str(batch.dest.file_name))
        assert [each.name async for each in await at.batches.list()] == [batch.name]


async def test_the_requests_of_a_batch_may_be_in_its_creation() -> None:
    async with desk() as at:
        asked: Any = [{"contents": [{"role": "user", "parts": [{"text": f"ask {n}"}]}]} for n in range(3)]
        for number, each in enumerate(asked):
            each["metadata"] = {"key": f"k{number}"}
        batch = await at.ended(await at.batches.create(model=MODEL, src=asked, config={"display_name": "in"}))
        assert batch.dest is not None
        found = {each.metadata["key"]: each.response.text for each in batch.dest.inlined_responses or ()}  # type: ignore[index, union-attr]
        assert {key: str(text).rpartition(" ")[2] for key, text in found.items()} == {"k0": "0", "k1": "1", "k2": "2"}


async def test_a_wrong_request_in_a_batch_is_an_error_of_its_own() -> None:
    async with desk() as at:
        lines = [line("bad", n=2), line("busy", **fault("503")), line("good")]
        batch = await at.ended(await at.batch(*lines))
        results = await at.results(batch)
        assert {key: each["error"]["code"] for key, each in results.items() if "error" in each} == {
            "bad": 400,
            "busy": 503,
        }
        assert "response" in results["good"]
        assert at.practice.bill.charged == 1
        _, shown = await at.ask("GET", f"/v1beta/{batch.name}")
        stats = shown["metadata"]["batchStats"]
        assert stats == {"requestCount": "3", "successfulRequestCount": "1", "failedRequestCount": "2"}
        assert shown["metadata"]["output"]["responsesFile"] == shown["response"]["responsesFile"]


async def test_a_batch_can_fail_as_a_whole_and_needs_a_file_that_exists() -> None:
    async with desk() as at:
        file = await at.upload(line("a"), {"key": "b"})
        batch = await at.ended(await at.batches.create(model=MODEL, src=str(file.name), config={"display_name": "x"}))
        assert batch.state == types.JobState.JOB_STATE_FAILED
        _, shown = await at.ask("GET", f"/v1beta/{batch.name}")
        assert shown["error"] == {"code": 3, "message": "Line 2 of the file is not a request."}
        with pytest.raises(errors.ClientError, match="PERMISSION_DENIED"):
            await at.batches.create(model=MODEL, src="files/none", config={"display_name": "x"})
    async with desk(batch_enqueued_tokens=1) as at:
        batch = await at.ended(await at.batch(line("a")))
        assert (await at.ask("GET", f"/v1beta/{batch.name}"))[1]["error"]["code"] == 8


async def test_a_cancelled_batch_has_what_was_run_and_an_expired_one_has_nothing() -> None:
    clock = HeldClock()
    async with desk(Practice(Faults(batch_seconds=1), clock=clock)) as at:
        batch = await at.batch(*(line(f"k{n}") for n in range(40)))
        await eventually(lambda: clock.sleeping == 1)
        clock.wake(3)
        await eventually(lambda: at.practice.bill.charged > 2)
        await at.batches.cancel(name=str(batch.name))
        clock.wake(1_000)
        batch = await at.ended(batch)
        assert batch.state == types.JobState.JOB_STATE_CANCELLED
        _, shown = await at.ask("GET", f"/v1beta/{batch.name}")
        assert shown["error"]["code"] == 1
        assert int(shown["metadata"]["batchStats"]["successfulRequestCount"]) == at.practice.bill.charged < 40
        await at.batches.delete(name=str(batch.name))
        with pytest.raises(errors.ClientError, match="NOT_FOUND"):
            await at.batches.get(name=str(batch.name))
    async with desk(batch_expire=1.0) as at:
        batch = await at.ended(await at.batch(*(line(f"k{n}") for n in range(4))))
        assert batch.state == types.JobState.JOB_STATE_EXPIRED
        _, shown = await at.ask("GET", f"/v1beta/{batch.name}")
        assert "output" not in shown["metadata"]
        assert "response" not in shown


@pytest.mark.parametrize(("named", "made"), [("cut", 0), ("cut-billed", 1)])
async def test_the_answer_to_a_creation_may_be_lost_before_or_after_it(named: str, made: int) -> None:
    async with desk() as at:
        file = await at.upload(line("r"))
        body = {"batch": {"displayName": "x", "inputConfig": {"fileName": file.name}}}
        path, headers = f"/v1beta/models/{MODEL}:batchGenerateContent", {"X-Practice-Fault": named}
        with pytest.raises(aiohttp.ClientError):
            await at.ask("POST", path, json=body, headers=headers)
        assert len([each async for each in await at.batches.list()]) == made
