"""Replies of the practice provider against the official clients' own types: nothing is missing, wrong or unknown."""

import asyncio
import json
from typing import Any

import anthropic
import boto3  # type: ignore[import-untyped]
import openai
import pydantic
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from google.genai import types

from backstay.practice import Faults, Practice
from tests.practice.test_bedrock import MODEL, job, records, said
from tests.practice.visitor import batch_lines, eventually, visiting

pytestmark = pytest.mark.slow

HELLO: Any = [{"role": "user", "content": "hello"}]
UNTYPED = {
    "[].object",
    "[].store",
}  # of OpenAI's pages and responses: its API sends them, its client has no type for them


def unknown_fields(value: Any, at: str = "") -> set[str]:
    """What a client got and its types do not know."""
    if isinstance(value, pydantic.BaseModel):
        inner = ((f"{at}.{name}", getattr(value, name)) for name in type(value).model_fields)
        return {f"{at}.{name}" for name in value.model_extra or {}}.union(*(unknown_fields(v, k) for k, v in inner))
    if isinstance(value, list | tuple):
        return set[str]().union(*(unknown_fields(each, f"{at}[]") for each in value))
    return set()


async def test_anthropics_replies_have_no_unknown_field() -> None:
    async with (
        Practice(Faults(batch_seconds=0.0)).serving() as base_url,
        anthropic.AsyncAnthropic(base_url=base_url.removesuffix("/v1"), api_key="k", max_retries=0) as client,
    ):
        call: Any = {"model": "m", "max_tokens": 9, "messages": HELLO}
        batches = client.messages.batches
        batch = await batches.create(requests=[{"custom_id": "a", "params": call}])
        seen: list[Any] = [batch, await client.messages.create(**call), await client.models.list()]

        async def has_ended() -> bool:
            return (await batches.retrieve(batch.id)).processing_status == "ended"

        await eventually(has_ended)
        seen += [await batches.retrieve(batch.id), [each async for each in await batches.results(batch.id)]]
        assert unknown_fields(seen) == set()


async def test_openais_replies_have_no_unknown_field() -> None:
    async with (
        Practice(Faults(batch_seconds=0.0)).serving() as base_url,
        openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client,
    ):
        body = {"model": "m", "messages": HELLO}
        file = await client.files.create(file=("in.jsonl", batch_lines(body)), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        seen: list[Any] = [file, batch, await client.chat.completions.create(model="m", messages=HELLO)]
        seen += [await client.responses.create(model="m", input="x"), await client.models.list()]

        async def has_ended() -> bool:
            return (await client.batches.retrieve(batch.id)).status == "completed"

        await eventually(has_ended)
        seen.append(await client.batches.retrieve(batch.id))
        assert unknown_fields(seen) - UNTYPED == set()


async def test_geminis_replies_are_what_googles_types_allow() -> None:
    """These types refuse unknown fields when they read a reply as it came."""
    body: dict[str, Any] = {"contents": [{"parts": [{"text": "hello"}]}]}
    thinking = {**body, "generationConfig": {"thinkingConfig": {"thinkingBudget": 5}, "maxOutputTokens": 3}}
    async with visiting() as visitor:
        for asked in (body, thinking, {**body, "cachedContent": "cachedContents/c"}):
            reply = await visitor.post("/v1beta/models/gemini-x:generateContent", asked)
            types.GenerateContentResponse.model_validate(reply.json)
        reply = await visitor.post("/v1beta/models/gemini-x:countTokens", body)
        types.CountTokensResponse.model_validate(reply.json)


def check_shape(shape: Any, value: Any) -> None:
    """AWS's own description of an operation: required members, types, no unknown members, and names of statuses."""
    report = ParamValidator().validate(value, shape)
    assert not report.has_errors(), report.generate_report()
    if shape.type_name == "structure":
        for name, inner in value.items():
            check_shape(shape.members[name], inner)
    elif shape.type_name == "list":
        for each in value:
            check_shape(shape.member, each)
    elif getattr(shape, "enum", None):
        assert value in shape.enum, (shape.name, value)


class Checked:
    """AWS's client, each of whose replies is checked as it came."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.operations: set[str] = set()

    async def call(self, service: str, operation: str, **asked: Any) -> Any:
        client = boto3.client(
            service,
            endpoint_url=self._root,
            region_name="us-east-1",
            aws_access_key_id="k",
            aws_secret_access_key="s",
            config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
        )
        client.meta.events.register(f"before-parse.{service}.*", self._check)
        return await asyncio.to_thread(lambda: getattr(client, operation)(**asked))

    def _check(self, operation_model: Any, response_dict: Any, **_: Any) -> None:
        self.operations.add(operation_model.name)
        check_shape(operation_model.output_shape, json.loads(response_dict["body"]))


async def test_bedrocks_replies_are_what_awss_description_allows() -> None:
    async with Practice(Faults(batch_seconds=0.0)).serving() as base_url:
        root = base_url.removesuffix("/v1")
        aws, bucket = Checked(root), Checked(f"{root}/s3")
        bucket._check = lambda **_: None  # type: ignore[method-assign]  # S3 answers in XML
        await aws.call("bedrock-runtime", "converse", modelId=MODEL, messages=said())
        await aws.call("bedrock-runtime", "count_tokens", modelId=MODEL, input={"converse": {"messages": said()}})
        await aws.call("bedrock", "list_foundation_models")
        await bucket.call("s3", "put_object", Bucket="bucket", Key="in/a.jsonl", Body=records({"messages": said()}))
        arn = (await aws.call("bedrock", "create_model_invocation_job", **job()))["jobArn"]

        async def has_ended() -> bool:
            return "endTime" in await aws.call("bedrock", "get_model_invocation_job", jobIdentifier=arn)

        await eventually(has_ended)
        await aws.call("bedrock", "list_model_invocation_jobs")
        assert len(aws.operations) == 6, aws.operations
