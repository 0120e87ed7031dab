"""Bedrock's batches: objects in S3, results in any order, lost creations, what is gone, and bad requests among good
ones."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from backstay.client import Job
from backstay.core.errors import Transient, UsageError
from backstay.core.models import NeverArrived, Submitted
from backstay.core.states import ItemState
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.http.wire import Wire
from backstay.llm.providers.bedrock import aws
from backstay.llm.providers.bedrock.batch_api import reference_of
from backstay.llm.providers.bedrock.calls import path_to
from backstay.llm.shards import WAITS_IN_VAIN_MAX
from tests.databases import Site
from tests.llm.aws_rig import access_key, no_aws
from tests.llm.lane_rig import HALF, KEY, LaneRig, Provider, lane
from tests.practice.visitor import HeldClock

__all__ = ["access_key", "no_aws"]

CREATE = "POST /model-invocation-job"
LIST = "GET /model-invocation-jobs"
ROLE = "arn:aws:iam::000000000000:role/practice"
MODEL = "amazon.nova-pro-v1:0"
CONVERSE, INVOKE = path_to(MODEL), path_to(MODEL, "invoke")


@pytest.fixture(autouse=True)
def _place(no_aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEDROCK_BATCH_BUCKET", "s3://bucket/some/where")
    monkeypatch.setenv("BEDROCK_BATCH_ROLE_ARN", ROLE)
    monkeypatch.setenv("BEDROCK_BATCH_RECORDS_MIN", "1")


@asynccontextmanager
async def opened(
    site: Site, monkeypatch: pytest.MonkeyPatch, provider: Provider | None = None, **more: Any
) -> AsyncIterator[LaneRig]:
    async with lane(site, Lane.BATCH, provider, **more) as rig:
        await move_to_bedrock(rig, monkeypatch)
        yield rig


async def move_to_bedrock(rig: LaneRig, monkeypatch: pytest.MonkeyPatch, key: str | None = KEY) -> None:
    root = rig.base_url.removesuffix("/v1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"{root}/s3")
    await rig.move_to(Endpoint(root, Lane.BATCH, price=HALF, api="bedrock"), key)


def bodies(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": [{"text": f"say {n}"}]}], **more} for n in range(count)]


async def jobs(rig: LaneRig) -> list[dict[str, Any]]:
    """The newest first."""
    found: list[dict[str, Any]] = (await ask_root(rig, "GET", "/model-invocation-jobs"))["invocationJobSummaries"]
    return found


async def ask_root(rig: LaneRig, method: str, path: str) -> Any:
    url = f"{rig.base_url.removesuffix('/v1')}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url) as reply:
        text = await reply.text()
        return json.loads(text) if text.startswith("{") else text


async def objects(rig: LaneRig) -> str:
    return str(await ask_root(rig, "GET", "/s3/bucket?list-type=2"))


async def texts(rig: LaneRig, job: Job) -> list[Any]:
    found = []
    for result in await rig.results(job):
        body = result.value["body"] if isinstance(result.value, dict) else {}
        content = body["output"]["message"]["content"][0]["text"] if "output" in body else ""
        found.append(content.rpartition(" say ")[2] or None)
    return found


async def lost(rig: LaneRig, job: Job, count: int) -> None:
    """Works until the creation of the job was not answered."""
    async with rig.working():
        await rig.until(lambda: rig.attempts(job, count - 1))
    assert {(await rig.item(job, n)).state for n in range(count)} == {ItemState.SUBMITTING}


async def done(rig: LaneRig, job: Job) -> Any:
    """Works until the job has ended, while time passes quickly."""

    async def ended() -> Any:
        await rig.site.advance(5)
        view = await job.show()
        return view if view.ended else None

    async with rig.working(concurrency=20_000):
        return await rig.until(ended)


async def refs(rig: LaneRig, job: Job, count: int) -> list[str]:
    """The references of the requests, out of what is in the bucket."""
    listed = await objects(rig)
    found: list[str] = []
    for part in listed.split("<Key>")[1:]:
        key = part.partition("</Key>")[0]
        if key.endswith("/input.jsonl"):
            text = str(await ask_root_text(rig, f"/s3/bucket/{key}"))
            found += [ref for line in text.splitlines() if (ref := reference_of(line.encode()))]
    assert len(found) == count
    return found


async def ask_root_text(rig: LaneRig, path: str) -> str:
    url = f"{rig.base_url.removesuffix('/v1')}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        return await reply.text()


async def test_every_request_gets_its_own_answer_and_pays_half(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        job = await rig.request(bodies(60), CONVERSE)
        view = await rig.done(job)
        assert await texts(rig, job) == [str(n) for n in range(60)]
        assert view.spent_micros == rig.provider.bill.total.cost_micros
        [made] = await jobs(rig)
        assert (made["successRecordCount"], made["modelId"], made["modelInvocationType"]) == (60, MODEL, "Converse")
        assert made["jobName"] == made["clientRequestToken"]
        assert made["roleArn"] == ROLE
        place = f"s3://bucket/some/where/backstay/{made['jobName']}"
        assert made["inputDataConfig"]["s3InputDataConfig"]["s3Uri"] == f"{place}/input.jsonl"
        assert made["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"] == f"{place}/out/"


async def test_each_model_and_each_kind_of_bodies_has_its_own_job(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        other = path_to("us.meta.llama3-3-70b-instruct-v1:0", "invoke")
        made = [await rig.request(bodies(2), CONVERSE), await rig.request([{"prompt": "a"}, {"prompt": "b"}], other)]
        for job in made:
            assert (await rig.done(job)).succeeded == 2
        kinds = {(each["modelId"], each["modelInvocationType"]) for each in await jobs(rig)}
        assert kinds == {(MODEL, "Converse"), ("us.meta.llama3-3-70b-instruct-v1:0", "InvokeModel")}


async def test_bad_requests_among_good_ones_fail_alone(sqlite_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = bodies(9)
    asked[2]["unknown"] = 1  # refused when it is run
    asked[4]["requestMetadata"] = {"user": "practice-503"}  # an error each time
    asked[6]["requestMetadata"] = {"user": "practice-nonsense-htmlx1"}  # at first a line that is not JSON
    asked[8]["requestMetadata"] = {"user": "practice-duplicate"}  # two lines
    async with opened(sqlite_site, monkeypatch) as rig:
        job = await rig.request(asked, CONVERSE)
        view = await done(rig, job)
        states = await rig.states(job)
        assert [n for n, state in enumerate(states) if state != "succeeded"] == [2, 4]
        assert view.repeats == 1
        assert (len(await rig.attempts(job, 2)), len(await rig.attempts(job, 4)) > 1) == (1, True)
        assert "unknown" in str((await rig.attempts(job, 2))[-1].message)


async def test_a_creation_whose_answer_is_lost_is_asked_again_with_its_token(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        rig.provider.lose[CREATE] = 1
        job = await rig.request(bodies(5), CONVERSE)
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, rig.provider.bill.charged) == (5, 0, 5)
        assert rig.provider.asked[CREATE] == 2
        assert len(await jobs(rig)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False], ids=["a new process", "the same process"])
async def test_requests_whose_creation_was_not_answered_are_found_and_paid_once(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        rig.provider.lose[CREATE] = 2
        job = await rig.request(bodies(20), CONVERSE)
        await lost(rig, job, 20)
        if is_new:
            rig.restart()
        rig.provider.asked.clear()
        view = await done(rig, job)
        assert (view.succeeded, view.repeats, rig.provider.bill.charged) == (20, 0, 20)
        assert rig.provider.asked[CREATE] == 0


async def test_a_creation_that_never_arrived_is_certain_after_a_while_and_sent_again(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        rig.provider.drop[CREATE] = 2
        job = await rig.request(bodies(4), CONVERSE)
        await lost(rig, job, 4)
        [ref, *_] = await refs(rig, job, 4)
        rig.restart()
        with pytest.raises(Transient, match="may not list the newest"):
            await rig.handler.ask(ref, 1)
        assert "input.jsonl" in await objects(rig)
        await rig.site.advance(rig.handler.channel.lag_seconds + 1)
        assert await rig.handler.ask(ref, 1) == NeverArrived()
        assert "input.jsonl" not in await objects(rig)  # so that a creation that arrives late has nothing to run
        view = await done(rig, job)
        assert (view.succeeded, rig.provider.bill.charged, len(await jobs(rig))) == (4, 4, 1)


async def test_a_creation_that_arrives_after_the_look_up_runs_nothing(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job exists and is not listed yet: its records are gone before it reads them."""
    async with opened(sqlite_site, monkeypatch) as rig:
        rig.provider.clock = held = HeldClock()
        rig.provider.change(visible_after=3_600)
        rig.provider.lose[CREATE] = 2
        job = await rig.request(bodies(4), CONVERSE)
        await lost(rig, job, 4)
        [ref, *_] = await refs(rig, job, 4)
        rig.restart()
        with pytest.raises(Transient):
            await rig.handler.ask(ref, 1)
        await rig.site.advance(rig.handler.channel.lag_seconds + 1)
        assert await rig.handler.ask(ref, 1) == NeverArrived()
        rig.provider.change(visible_after=0)
        held.wake(10_000)

        async def failed() -> bool:
            return [each["status"] for each in await jobs(rig)] == ["Failed"]

        await rig.until(failed)
        assert rig.provider.bill.charged == 0


async def test_what_is_in_no_input_was_never_sent(sqlite_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        assert await rig.handler.ask("0" * 40, 1) == NeverArrived()
        job = await rig.request(bodies(3), CONVERSE)
        assert (await rig.done(job)).succeeded == 3
        rig.restart()
        rig.provider.asked.clear()
        await rig.site.advance(60)
        answers = await asyncio.gather(*(rig.handler.ask(ref, 1) for ref in [*await refs(rig, job, 3), "0" * 40]))
        assert [type(each) for each in answers] == [Submitted] * 3 + [NeverArrived]
        assert rig.provider.asked[LIST] == 1  # for all of them


async def test_a_job_whose_input_was_deleted_is_known_by_its_results(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        job = await rig.request(bodies(3), CONVERSE)
        assert (await rig.done(job)).succeeded == 3
        [ref, *_] = await refs(rig, job, 3)
        [made] = await jobs(rig)
        await ask_root(rig, "DELETE", f"/s3/bucket/some/where/backstay/{made['jobName']}/input.jsonl")
        rig.restart()
        assert isinstance(await rig.handler.ask(ref, 1), Submitted)


async def test_a_stopped_job_gives_what_it_has_and_the_rest_is_run_again(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_site, monkeypatch, Provider(batch_seconds=3.0)) as rig:
        job = await rig.request(bodies(40), CONVERSE)
        async with rig.working(concurrency=20_000):

            async def begun() -> bool:
                return 0 < rig.provider.bill.charged < 40

            await rig.until(begun)
            [made] = await jobs(rig)
            await ask_root(rig, "POST", f"/model-invocation-job/{made['jobArn'].rpartition('/')[2]}/stop")
        rig.provider.change(batch_seconds=0.05)
        view = await done(rig, job)
        assert (view.succeeded, rig.provider.bill.charged) == (40, 40)
        assert rig.provider.bill.bodies_paid_twice == []
        assert len(await jobs(rig)) >= 2


async def test_an_expired_job_gives_what_it_has_and_the_rest_is_run_again(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_site, monkeypatch, Provider(batch_expire=1.0)) as rig:
        job = await rig.request(bodies(10), CONVERSE)
        async with rig.working(concurrency=20_000):
            await rig.until(lambda: rig.provider.bill.charged == 5)
            rig.provider.change(batch_expire=0.0)
        assert (await done(rig, job)).succeeded == 10
        assert rig.provider.bill.bodies_paid_twice == []


async def test_cancelling_stops_the_job(sqlite_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        rig.provider.clock = HeldClock()
        job = await rig.request(bodies(3), CONVERSE)
        async with rig.working():
            await rig.in_state(job, "processing", 0)
            await job.cancel()

            async def stopping() -> bool:
                return (await jobs(rig))[0]["status"] in ("Stopping", "Stopped")

            await rig.until(stopping)
        assert rig.provider.bill.charged == 0


async def test_too_few_requests_are_refused_before_anything_is_sent(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BEDROCK_BATCH_RECORDS_MIN")
    async with opened(sqlite_site, monkeypatch) as rig:
        await rig.move_to(replace(rig.endpoint, timeout_seconds=2.0))  # a quarter of it is spent waiting for others
        job = await rig.request(bodies(99), CONVERSE)
        assert (await rig.done(job)).failed == 99
        assert "fewer than 100 requests of one model, and only 99 are left: run them with --lane call" in str(
            (await rig.attempts(job, 0))[-1].message
        )
        assert rig.provider.asked.total() == 0
        job = await rig.request(bodies(100), CONVERSE)
        assert (await rig.done(job)).succeeded == 100


@pytest.mark.slow
async def test_what_is_left_alone_waits_for_the_rest_of_its_job_and_not_for_ever(
    sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request of each kind: together they would be enough, but they cannot share a batch."""
    monkeypatch.setenv("BEDROCK_BATCH_RECORDS_MIN", "2")
    async with opened(sqlite_site, monkeypatch) as rig:
        await rig.move_to(replace(rig.endpoint, timeout_seconds=2.0))  # a quarter of it is spent waiting for others
        items = [{"custom_id": url, "url": url, "body": bodies(1)[0]} for url in (CONVERSE, INVOKE)]
        job = await rig.submit(items, rig.handler.name)

        async def told(position: int) -> list[str]:
            return [str(each.message) for each in await rig.attempts(job, position)]

        async with rig.working():
            for waits in range(1, WAITS_IN_VAIN_MAX + 2):
                for position in range(2):

                    async def tried(position: int = position, waits: int = waits) -> bool:
                        return len(await told(position)) >= waits

                    await rig.until(tried)
                await rig.site.advance(5)
        for position in range(2):
            *before, last = await told(position)
            assert all("they wait for others of their job" in each for each in before)
            assert (len(before), "run them with --lane call" in last) == (WAITS_IN_VAIN_MAX, True)
        assert (await job.show()).failed == 2
        assert rig.provider.asked.total() == 0


async def test_a_bucket_that_refuses_holds_the_run(sqlite_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(sqlite_site, monkeypatch) as rig:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"{rig.base_url.removesuffix('/v1')}/nowhere")
        rig.restart()
        job = await rig.request(bodies(3), CONVERSE)
        async with rig.working():

            async def held() -> bool:
                return bool(await rig.store.providers.holds())

            await rig.until(held)
        assert (await job.show()).failed == 0
        assert rig.provider.asked[CREATE] == 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("BEDROCK_BATCH_BUCKET", "", "BEDROCK_BATCH_BUCKET is not set"),
        ("BEDROCK_BATCH_BUCKET", "https://bucket", "BEDROCK_BATCH_BUCKET is not s3://bucket/prefix"),
        ("BEDROCK_BATCH_ROLE_ARN", "", "BEDROCK_BATCH_ROLE_ARN is not set"),
        ("BEDROCK_BATCH_ROLE_ARN", "me", "BEDROCK_BATCH_ROLE_ARN is not the ARN of a role"),
        ("BEDROCK_BATCH_RECORDS_MIN", "0", "BEDROCK_BATCH_RECORDS_MIN must be a number"),
    ],
)
async def test_what_is_missing_is_told_in_one_line_before_anything_is_sent(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    endpoint = Endpoint("http://127.0.0.1:9000", Lane.BATCH, api="bedrock")
    with pytest.raises(UsageError, match=said) as caught:
        BatchHandler(endpoint, Wire(endpoint, None, connections_max=1))
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=said):
        aws.check_ready("http://127.0.0.1:9000", True, True)
