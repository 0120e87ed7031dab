"""What Bedrock is sent: the signature of each request, or a key; where the credentials come from; and what is told
when something is missing."""

import asyncio
import io
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import ReadOnlyCredentials  # type: ignore[import-untyped]
from yarl import URL

from backstay.clock import Clock
from backstay.core.errors import ProviderHeld, UsageError
from backstay.llm.endpoint import Endpoint, Lane, parts_of
from backstay.llm.http.wire import Wire
from backstay.llm.prices import LanePrices
from backstay.llm.provider import Channel
from backstay.llm.providers.bedrock import PROVIDER, aws
from backstay.llm.providers.bedrock.batch_api import Bucket
from backstay.llm.providers.bedrock.calls import path_to
from tests.llm.aws_rig import ACCESS_KEY, SECRET, access_key, is_signed, no_aws
from tests.llm.command_rig import run_command
from tests.llm.odd_servers import OddServer, answer

pytestmark = pytest.mark.slow

__all__ = ["access_key", "no_aws"]

MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
CONVERSE = path_to(MODEL)
BODY = '{"messages":[{"role":"user","content":[{"text":"héllo ✓"}]}]}'
OK = answer('{"output":{"message":{"role":"assistant","content":[{"text":"hi"}]}},"stopReason":"end_turn"}')
OWN = "https://bedrock-runtime.eu-west-1.amazonaws.com"


@asynccontextmanager
async def wire_to(url: str, key: str | None = None, http: str = "own") -> AsyncIterator[Wire]:
    wire = Wire(Endpoint(url, api="bedrock"), key, connections_max=5, http=http)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()


@pytest.mark.usefixtures("access_key")
@pytest.mark.parametrize("http", ["own", "aiohttp"])
async def test_every_request_is_signed_over_what_is_sent(http: str) -> None:
    async with OddServer(OK).serving() as server, wire_to(server.url, http=http) as wire:
        reply = await wire.post(CONVERSE, BODY, 10)
        assert (reply.status, reply.path) == (200, CONVERSE)
        await wire.get("/model-invocation-jobs", {"nameContains": "a b/c:+", "maxResults": "5"})
        assert server.targets[0] == f"/model/{MODEL.replace(':', '%3A')}/converse"
        assert [is_signed(raw) for raw in server.requests] == [True, True]
        assert not is_signed(server.requests[0].replace("héllo".encode(), b"other"))
        assert not is_signed(server.requests[0].replace(b"/converse", b"/invoke"))


@pytest.mark.usefixtures("access_key")
async def test_a_call_is_the_one_that_the_client_sends() -> None:
    async with OddServer(OK).serving() as server, wire_to(server.url) as wire:
        await wire.post(CONVERSE, BODY, 10)
        config = Config(retries={"total_max_attempts": 1})
        client = boto3.Session().client("bedrock-runtime", "us-east-1", endpoint_url=server.url, config=config)
        messages = json.loads(BODY)["messages"]
        await asyncio.to_thread(lambda: client.converse(modelId=MODEL, messages=messages))
        assert server.targets[0] == server.targets[1]
        assert json.loads(server.bodies[0]) == json.loads(server.bodies[1])
        assert is_signed(server.requests[1])  # so what is checked here is what AWS checks
        assert server.header("content-type", 0) == server.header("content-type", 1) == "application/json"


@pytest.mark.usefixtures("access_key")
async def test_a_key_is_sent_instead_of_a_signature_and_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "find_spec", lambda name: None)
    async with OddServer(OK).serving() as server, wire_to(server.url, "bedrock-api-key-0123") as wire:
        await wire.post(CONVERSE, BODY, 10)
        assert server.header("authorization") == "Bearer bedrock-api-key-0123"
        assert server.header("x-amz-date") is None


@pytest.mark.usefixtures("no_aws")
async def test_a_service_of_ones_own_needs_no_credentials() -> None:
    async with OddServer(OK).serving() as server, wire_to(server.url) as wire:
        assert (await wire.post(CONVERSE, BODY, 10)).status == 200
        assert server.header("authorization") is None


@pytest.mark.usefixtures("access_key")
async def test_nothing_is_signed_for_another_host() -> None:
    signer = aws.sign_for(parts_of(OWN), None)
    assert "authorization" in await signer.sign("POST", URL(f"{OWN}/model/m/converse"), b"", {})
    assert "authorization" in await signer.sign(
        "GET", URL("https://bedrock.eu-west-1.amazonaws.com/foundation-models"), b"", {}
    )
    for other in ("https://bedrock.eu-west-1.amazonaws.com.example.net/", "https://example.net/", "https://b.s3.x/k"):
        assert await signer.sign("GET", URL(other), b"", {}) == {}
    signer.allow_bucket("https://b.s3.x")
    assert "authorization" in await signer.sign("PUT", URL("https://b.s3.x/k"), b"", {})
    assert await signer.sign("PUT", URL("https://b.s3.x.example.net/k"), b"", {}) == {}


@pytest.mark.usefixtures("no_aws")
async def test_a_key_goes_to_the_host_of_batches_too_and_nowhere_else() -> None:
    signer = aws.sign_for(parts_of(OWN), "bedrock-api-key-0123")
    there = await signer.sign("GET", URL("https://bedrock.eu-west-1.amazonaws.com/x"), b"", {})
    assert there == {"authorization": "Bearer bedrock-api-key-0123"}
    assert await signer.sign("GET", URL("https://example.net/x"), b"", {}) == {}


def script(folder: Path, lasts: timedelta) -> Path:
    """A program that gives out credentials, as single sign-on tools do; each time others."""
    file = folder / "give.py"
    file.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(folder / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        f"print(json.dumps({{'Version': 1, 'AccessKeyId': f'AKIA{{number}}', 'SecretAccessKey': {SECRET!r},"
        f"'SessionToken': 'token', 'Expiration': {(datetime.now(UTC) + lasts).isoformat()!r}}}))\n"
    )
    return file


async def accessed_as(folder: Path, lasts: timedelta, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The access keys of three requests."""
    (folder / "config").write_text(f"[profile p]\ncredential_process = {sys.executable} {script(folder, lasts)}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_PROFILE", "p")
    async with OddServer(OK).serving() as server, wire_to(server.url) as wire:
        for _ in range(3):
            await wire.post(CONVERSE, BODY, 10)
        assert all(map(is_signed, server.requests))
        assert server.header("x-amz-security-token") == "token"
        return [str(server.header("authorization", n)).partition("Credential=")[2].split("/")[0] for n in range(3)]


@pytest.mark.usefixtures("no_aws")
async def test_credentials_of_a_profile_are_used_until_shortly_before_they_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await accessed_as(tmp_path, timedelta(hours=1), monkeypatch) == ["AKIA1", "AKIA1", "AKIA1"]


@pytest.mark.usefixtures("no_aws")
async def test_credentials_that_run_out_soon_are_refreshed_before_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = await accessed_as(tmp_path, timedelta(minutes=12), monkeypatch)
    assert len(set(used)) == 3, used


class SlowCredentials:
    """As those of a role: AWS is asked for new ones, which takes a while."""

    def __init__(self) -> None:
        self.asked_in: list[int] = []

    def refresh_needed(self) -> bool:
        return True

    def get_frozen_credentials(self) -> Any:
        self.asked_in.append(threading.get_ident())
        return ReadOnlyCredentials(ACCESS_KEY, SECRET, None)


@pytest.mark.usefixtures("no_aws")
async def test_a_refresh_does_not_keep_other_requests_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowCredentials()
    monkeypatch.setattr(aws, "load_credentials", lambda: slow)
    signer = aws.sign_for(parts_of(OWN), None)
    for _ in range(2):
        assert "authorization" in await signer.sign("POST", URL(f"{OWN}/model/m/converse"), b"", {})
    assert len(slow.asked_in) == 2
    assert threading.get_ident() not in slow.asked_in


@pytest.mark.usefixtures("no_aws")
async def test_credentials_that_cannot_be_had_hold_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[profile p]\ncredential_process = /nonexistent/tool\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "p")
    signer = aws.sign_for(parts_of(OWN), None)
    with pytest.raises(ProviderHeld, match="AWS credentials cannot be refreshed"):
        await signer.sign("POST", URL(f"{OWN}/model/m/converse"), b"", {})


@pytest.mark.usefixtures("no_aws")
@pytest.mark.parametrize(
    ("region", "url"),
    [
        ("us-east-1", "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_region_gives_the_addresses(region: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PROVIDER.access.base_url == ""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    monkeypatch.setenv("AWS_REGION", region)
    assert PROVIDER.access.base_url == url
    base = parts_of(url)
    assert aws.region_of(base) == region
    assert aws.control_url(base) == url.replace("-runtime", "")
    assert aws.bucket_url(base, "b").startswith(f"https://b.s3.{region}.amazonaws.com")
    monkeypatch.setenv("AWS_REGION", "x/../y")
    with pytest.raises(UsageError, match="not valid"):
        _ = PROVIDER.access.base_url


@pytest.mark.usefixtures("no_aws")
def test_the_address_of_a_private_endpoint_gives_the_region() -> None:
    inside = parts_of("https://vpce-1-abc.bedrock-runtime.us-west-2.vpce.amazonaws.com")
    assert aws.region_of(inside) == "us-west-2"
    assert aws.is_amazon(inside)
    assert not aws.is_amazon(parts_of("https://amazonaws.com.example.net"))


@pytest.mark.usefixtures("no_aws")
def test_what_is_missing_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no AWS credentials were found") as caught:
        aws.check_ready(OWN, False, False)
    assert "AWS_BEARER_TOKEN_BEDROCK" in str(caught.value.hint)
    aws.check_ready(OWN, False, True)
    aws.check_ready("http://127.0.0.1:9000", False, False)
    monkeypatch.setattr(aws, "find_spec", lambda name: None)
    for ask in (lambda: aws.check_ready(OWN, False, False), lambda: aws.sign_for(parts_of(OWN), None)):
        with pytest.raises(UsageError, match="needs the package botocore, which is not installed") as caught:
            ask()
        assert caught.value.hint == "pip install 'backstay[bedrock]', or set AWS_BEARER_TOKEN_BEDROCK"


LINE: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": CONVERSE, "body": json.loads(BODY)}


def contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.usefixtures("access_key")
async def test_a_run_is_signed_and_no_secret_is_kept(tmp_path: Path) -> None:
    async with OddServer(OK).serving() as server:
        ran = await run_command(tmp_path, server.url, [LINE], "--provider", "bedrock")
        assert (ran.code, len(ran.results)) == (0, 1), ran.told
        assert is_signed(server.requests[0])
    kept = contents(tmp_path) + ran.told.encode()
    assert SECRET.encode() not in kept
    assert ACCESS_KEY.encode() not in kept


@pytest.mark.usefixtures("no_aws")
async def test_a_run_without_a_region_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(LINE))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "backstay",
        "run",
        str(tmp_path / "in.jsonl"),
        "--provider",
        "bedrock",
        "--db",
        f"sqlite:///{tmp_path}/run.db",
        env=dict(os.environ),
        stderr=asyncio.subprocess.PIPE,
    )
    _, told = await process.communicate()
    assert process.returncode == 2
    assert b"set AWS_REGION to the region" in told


@pytest.fixture
def _place(no_aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEDROCK_BATCH_BUCKET", "s3://bucket")
    monkeypatch.setenv("BEDROCK_BATCH_ROLE_ARN", "arn:aws:iam::000000000000:role/practice")


@pytest.mark.usefixtures("_place")
def test_batches_need_credentials_beside_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no AWS credentials were found"):
        aws.check_ready(OWN, True, True)
    monkeypatch.setattr(aws, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="batches are kept in S3, which needs the package botocore") as caught:
        aws.check_ready(OWN, True, True)
    assert caught.value.hint == "pip install 'backstay[bedrock]'"


@pytest.mark.usefixtures("access_key", "_place")
async def test_objects_are_signed_for_s3_and_read_by_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = answer("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    missing = answer("<Error><Code>NoSuchKey</Code></Error>", status=404)
    denied = answer("<Error><Code>AccessDenied</Code></Error>", status=403)
    async with OddServer(answer(""), listed, answer("content"), missing, denied).serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        endpoint = Endpoint("http://127.0.0.1:9", Lane.BATCH, api="bedrock")
        wire = Wire(endpoint, None, connections_max=1)
        await wire.open()
        try:
            signer = wire.signer
            assert isinstance(signer, aws.AwsSigner)
            bucket = Bucket(Channel(PROVIDER, wire, LanePrices(endpoint), Clock()), signer)
            await bucket.put("k/input.jsonl", b"x" * 1_000_000, 10)
            assert [each async for each in bucket.inputs()] == []
            assert [is_signed(raw, "s3") for raw in server.requests] == [True, True]
            file = io.BytesIO()
            assert await bucket.download("k", file)
            assert file.getvalue() == b"content"
            assert server.targets[2].startswith("/bucket/k?")
            assert "X-Amz-Signature=" in server.targets[2]
            assert not await bucket.download("k", file)
            with pytest.raises(ProviderHeld, match="cannot read s3://bucket/k from S3"):
                await bucket.download("k", file)
        finally:
            await wire.close()
