"""What we send to Bedrock and S3 for a batch, compared field by field with what AWS's own client sends for it."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from backstay.core.models import Submitted
from backstay.llm.endpoint import Lane
from backstay.llm.providers.bedrock.calls import path_to
from tests.databases import Site
from tests.llm.aws_rig import access_key, no_aws
from tests.llm.lane_rig import Arrival, LaneRig, Recorder, lane
from tests.llm.test_bedrock_batches import MODEL, ROLE, bodies, move_to_bedrock

__all__ = ["access_key", "no_aws"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("access_key", "_bucket")]
SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=(\w+)/\d{8}/([\w-]+)/(\w+)/aws4_request")


@pytest.fixture
def _bucket(access_key: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEDROCK_BATCH_BUCKET", "s3://bucket/some/where")
    monkeypatch.setenv("BEDROCK_BATCH_ROLE_ARN", ROLE)
    monkeypatch.setenv("BEDROCK_BATCH_RECORDS_MIN", "1")


class Client:
    """AWS's client, at the address where ours sends its requests."""

    def __init__(self, rig: LaneRig, recorder: Recorder) -> None:
        root = rig.base_url.removesuffix("/v1")
        # The last one: without checksums of its own, which not every service that is like S3 knows.
        config = Config(
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
        )
        session = boto3.Session()
        self.jobs = session.client("bedrock", "us-east-1", endpoint_url=root, config=config)
        self.objects = session.client("s3", "us-east-1", endpoint_url=f"{root}/s3", config=config)
        self._recorder = recorder

    async def sends(self, ask: Callable[[], Any]) -> Arrival:
        self._recorder.take()
        with suppress(ClientError):  # the answer does not matter here
            await asyncio.to_thread(ask)
        [sent] = self._recorder.take()
        return sent


def scope_of(arrival: Arrival) -> tuple[str, ...]:
    found = SCOPE.match(arrival.headers["authorization"])
    assert found is not None, arrival.headers["authorization"]
    return found.groups()


def check_same(ours: Arrival, theirs: Arrival) -> None:
    assert (ours.method, ours.path, ours.query) == (theirs.method, theirs.path, theirs.query)
    assert scope_of(ours) == scope_of(theirs)
    if theirs.headers.get("content-type") == "application/json":
        assert (ours.headers["content-type"], ours.value) == (theirs.headers["content-type"], theirs.value)
    else:
        assert ours.body == theirs.body


def only(arrivals: list[Arrival], method: str, pattern: str) -> Arrival:
    return next(each for each in arrivals if each.method == method and re.search(pattern, each.path))


async def test_a_batch_is_stored_created_shown_read_and_stopped_as_by_the_client(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.BATCH, recorder) as rig:
        await move_to_bedrock(rig, monkeypatch, key=None)
        job = await rig.request(bodies(2), path_to(MODEL))
        assert (await rig.done(job)).succeeded == 2
        sent = recorder.take()
        client = Client(rig, recorder)
        put, create = only(sent, "PUT", "/s3/"), only(sent, "POST", "/model-invocation-job$")
        key = put.path.removeprefix("/s3/bucket/")
        kind = put.headers["content-type"]
        theirs = await client.sends(
            lambda: client.objects.put_object(Bucket="bucket", Key=key, Body=put.body, ContentType=kind)
        )
        check_same(put, theirs)
        assert [json.loads(line).keys() for line in put.body.splitlines()] == [{"recordId", "modelInput"}] * 2
        # Every member is one that the client knows, in the form that its own model of the API asks for.
        check_same(create, await client.sends(lambda: client.jobs.create_model_invocation_job(**create.value)))
        show = only(sent, "GET", "/model-invocation-job/")
        arn = f"arn:aws:bedrock:us-east-1:000000000000:model-invocation-job/{show.path.rpartition('/')[2]}"
        theirs = await client.sends(lambda: client.jobs.get_model_invocation_job(jobIdentifier=arn.rpartition("/")[2]))
        check_same(show, theirs)
        read = only(sent, "GET", r"input\.jsonl\.out$")
        theirs = await client.sends(
            lambda: client.objects.get_object(Bucket="bucket", Key=read.path[len("/s3/bucket/") :])
        )
        assert (read.method, read.path) == (theirs.method, theirs.path)
        assert read.query["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"  # a link: the download has no other key with it
        recorder.take()
        await rig.handler.cancel(f"{show.path.rpartition('/')[2]}/x")  # type: ignore[union-attr]
        [stop] = recorder.take()
        theirs = await client.sends(lambda: client.jobs.stop_model_invocation_job(jobIdentifier=arn.rpartition("/")[2]))
        assert (stop.method, stop.path, stop.query, stop.body) == (
            theirs.method,
            theirs.path,
            theirs.query,
            theirs.body,
        )


async def test_jobs_and_objects_are_listed_as_by_the_client(sqlite_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.BATCH, recorder) as rig:
        await move_to_bedrock(rig, monkeypatch, key=None)
        job = await rig.request(bodies(1), path_to(MODEL))
        assert (await rig.done(job)).succeeded == 1
        task = (await rig.item(job)).provider_task_id
        assert task is not None
        rig.restart()
        recorder.take()
        since_ms = rig.site.clock.now_ms() // 1000 * 1000
        assert isinstance(await rig.handler.ask(task.rpartition("/")[2], since_ms), Submitted)
        sent = recorder.take()
        client = Client(rig, recorder)
        objects, listed = only(sent, "GET", "^/s3/bucket$"), only(sent, "GET", "/model-invocation-jobs$")
        prefix = objects.query["prefix"]
        theirs = await client.sends(lambda: client.objects.list_objects_v2(Bucket="bucket", Prefix=prefix))
        assert theirs.query.pop("encoding-type") == "url"  # ours reads the keys as they are written in XML
        check_same(objects, theirs)
        after = datetime.strptime(listed.query["submitTimeAfter"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        theirs = await client.sends(
            lambda: client.jobs.list_model_invocation_jobs(
                nameContains="backstay-", submitTimeAfter=after, maxResults=1_000
            )
        )
        check_same(listed, theirs)
