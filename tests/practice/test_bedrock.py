"""AWS's own client, unmodified, at the practice provider: Converse, the models' own bodies, and errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from backstay.practice import Faults, Practice
from tests.practice.visitor import eventually

pytestmark = pytest.mark.slow

MODEL = "us.anthropic.claude-practice-v1:0"
KEY = "AKIAPRACTICE00000000"


def said(text: str = "hello") -> Any:
    return [{"role": "user", "content": [{"text": text}]}]


class Desk:
    def __init__(self, practice: Practice, root: str) -> None:
        self.practice = practice
        self.root = root

    def client(self, service: str, **more: Any) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.root + more.pop("below", ""),
            region_name="us-east-1",
            aws_access_key_id=more.pop("key", KEY),
            aws_secret_access_key="practice-secret",
            config=Config(retries={"total_max_attempts": 1}),
        )

    async def call(self, name: str, service: str = "bedrock-runtime", **asked: Any) -> Any:
        method: Callable[..., Any] = getattr(self.client(service, below="/s3" if service == "s3" else ""), name)
        return await asyncio.to_thread(lambda: method(**asked))

    async def refused(self, name: str, service: str = "bedrock-runtime", **asked: Any) -> tuple[str, int]:
        with pytest.raises(ClientError) as caught:
            await self.call(name, service, **asked)
        said = caught.value.response
        return said["Error"]["Code"], said["ResponseMetadata"]["HTTPStatusCode"]


@asynccontextmanager
async def desk(**faults: Any) -> AsyncIterator[Desk]:
    practice = Practice(Faults(**{"batch_seconds": 0.05, **faults}))
    async with practice.serving() as base_url:
        yield Desk(practice, base_url.removesuffix("/v1"))


async def test_converse_is_answered_and_billed() -> None:
    async with desk() as at:
        reply = await at.call("converse", modelId=MODEL, messages=said(), system=[{"text": "be brief"}])
        assert reply["output"]["message"]["content"][0]["text"].endswith(" hello")
        assert reply["stopReason"] == "end_turn"
        usage, bill = reply["usage"], at.practice.bill
        used = (bill.total.input_tokens, bill.total.output_tokens)
        assert (bill.charged, used) == (1, (usage["inputTokens"], usage["outputTokens"]))
        models = await at.call("list_foundation_models", "bedrock")
        assert models["modelSummaries"][0]["modelId"].startswith("anthropic.")
        assert bill.charged == 1


async def test_a_short_answer_is_cut_and_a_chosen_tool_is_called() -> None:
    tool = {"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}
    async with desk() as at:
        short = await at.call("converse", modelId=MODEL, messages=said(), inferenceConfig={"maxTokens": 1})
        assert (short["stopReason"], short["usage"]["outputTokens"]) == ("max_tokens", 1)
        config = {"tools": [tool], "toolChoice": {"any": {}}}
        called = await at.call("converse", modelId=MODEL, messages=said(), toolConfig=config)
        assert called["output"]["message"]["content"][0]["toolUse"]["name"] == "look"


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (
            {
                "anthropic_version": "bedrock-2023-05-31",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "x"}],
            },
            lambda reply: reply["content"][0]["text"],
        ),
        ({"messages": said("x"), "inferenceConfig": {"maxTokens": 9}}, lambda reply: reply["output"]["message"]),
        ({"prompt": "x", "max_gen_len": 9}, lambda reply: reply["generation"]),
    ],
    ids=["anthropic", "nova", "llama"],
)
async def test_the_models_own_bodies_are_answered(body: dict[str, Any], answer: Callable[[Any], Any]) -> None:
    async with desk() as at:
        reply = await at.call("invoke_model", modelId=MODEL, body=json.dumps(body))
        assert answer(json.loads(reply["body"].read()))
        headers = reply["ResponseMetadata"]["HTTPHeaders"]
        assert int(headers["x-amzn-bedrock-input-token-count"]) == at.practice.bill.total.input_tokens


async def test_errors_have_the_names_that_the_client_knows() -> None:
    async with desk(key=KEY) as at:
        for model, expected in (
            ("practice-429", ("ThrottlingException", 429)),
            ("practice-503", ("ServiceUnavailableException", 503)),
            ("practice-404", ("ResourceNotFoundException", 404)),
            ("practice-500", ("InternalServerException", 500)),
        ):
            assert await at.refused("converse", modelId=model, messages=said()) == expected
        twice = [*said(), *said()]
        assert await at.refused("converse", modelId=MODEL, messages=twice) == ("ValidationException", 400)
        other = at.client("bedrock-runtime", key="AKIAOTHER")
        with pytest.raises(ClientError, match="UnrecognizedClientException"):
            await asyncio.to_thread(lambda: other.converse(modelId=MODEL, messages=said()))
        assert at.practice.bill.charged == 0


ROLE = "arn:aws:iam::000000000000:role/practice"


def job(name: str = "job-1", **more: Any) -> dict[str, Any]:
    return {
        "jobName": name,
        "clientRequestToken": f"token-{name}",
        "roleArn": ROLE,
        "modelId": MODEL,
        "modelInvocationType": "Converse",
        "inputDataConfig": {"s3InputDataConfig": {"s3Uri": "s3://bucket/in/a.jsonl"}},
        "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": "s3://bucket/out/"}},
        **more,
    }


def records(*bodies: Any) -> bytes:
    lines = [{"recordId": f"r{number}", "modelInput": body} for number, body in enumerate(bodies)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


async def ended(at: Desk, arn: str) -> dict[str, Any]:
    async def has_ended() -> bool:
        return "endTime" in await at.call("get_model_invocation_job", "bedrock", jobIdentifier=arn)

    await eventually(has_ended)
    found: dict[str, Any] = await at.call("get_model_invocation_job", "bedrock", jobIdentifier=arn)
    return found


async def test_a_job_reads_and_writes_objects_at_half_the_price() -> None:
    good, bad = {"messages": said("a")}, {"messages": [], "unknown": 1}
    async with desk() as at:
        await at.call("put_object", "s3", Bucket="bucket", Key="in/a.jsonl", Body=records(good, bad, good))
        arn = (await at.call("create_model_invocation_job", "bedrock", **job()))["jobArn"]
        shown = await ended(at, arn)
        assert shown["status"] == "Completed"
        assert (shown["totalRecordCount"], shown["successRecordCount"], shown["errorRecordCount"]) == (3, 2, 1)
        folder = f"out/{arn.rpartition('/')[2]}"
        listed = await at.call("list_objects_v2", "s3", Bucket="bucket", Prefix="out/")
        assert [each["Key"] for each in listed["Contents"]] == [f"{folder}/a.jsonl.out", f"{folder}/manifest.json.out"]
        found = await at.call("get_object", "s3", Bucket="bucket", Key=f"{folder}/a.jsonl.out")
        lines = {line["recordId"]: line for line in map(json.loads, found["Body"].read().splitlines())}
        assert lines["r0"]["modelOutput"]["output"]["message"]["content"][0]["text"].endswith(" a")
        assert lines["r1"]["error"]["errorCode"] == 400
        usage = lines["r0"]["modelOutput"]["usage"]
        at_once = await at.call("converse", modelId=MODEL, messages=said("a"))
        assert usage == at_once["usage"]
        assert at.practice.bill.charged == 3


async def test_the_same_token_is_the_same_job() -> None:
    async with desk(batch_seconds=60) as at:
        await at.call("put_object", "s3", Bucket="bucket", Key="in/a.jsonl", Body=records({"messages": said()}))
        first = await at.call("create_model_invocation_job", "bedrock", **job())
        again = await at.call("create_model_invocation_job", "bedrock", **job())
        assert first["jobArn"] == again["jobArn"]
        other = await at.refused("create_model_invocation_job", "bedrock", **job(roleArn=f"{ROLE}-2"))
        assert other == ("ConflictException", 409)
        await at.call("create_model_invocation_job", "bedrock", **job("job-2"))
        listed = await at.call("list_model_invocation_jobs", "bedrock", nameContains="job-", maxResults=1)
        assert [each["jobName"] for each in listed["invocationJobSummaries"]] == ["job-2"]
        more = await at.call("list_model_invocation_jobs", "bedrock", nextToken=listed["nextToken"], maxResults=1)
        assert [each["jobArn"] for each in more["invocationJobSummaries"]] == [first["jobArn"]]
        await at.call("stop_model_invocation_job", "bedrock", jobIdentifier=first["jobArn"])
        shown = await at.call("get_model_invocation_job", "bedrock", jobIdentifier=first["jobArn"])
        assert shown["status"] in ("Stopping", "Stopped")
        assert at.practice.bill.charged == 0


async def test_a_job_without_its_object_fails_and_costs_nothing() -> None:
    async with desk() as at:
        arn = (await at.call("create_model_invocation_job", "bedrock", **job()))["jobArn"]
        shown = await ended(at, arn)
        assert (shown["status"], shown["message"]) == ("Failed", "The S3 object of the input was not found.")
        await at.call("put_object", "s3", Bucket="bucket", Key="k", Body=b"x")
        await at.call("delete_object", "s3", Bucket="bucket", Key="k")
        assert await at.refused("get_object", "s3", Bucket="bucket", Key="k") == ("NoSuchKey", 404)
        assert at.practice.bill.charged == 0
