"""Files of a batch that arrive as something else, or not as a whole: what they lack is not sent and paid again."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from typing import Any, NamedTuple

import pytest

from backstay.core.errors import Transient
from backstay.core.failures import FailureKind
from backstay.core.models import Failed, Running, Submitted
from backstay.llm.batch import BatchHandler
from backstay.llm.batch_results import ends_whole
from backstay.llm.endpoint import Lane
from tests.databases import Site
from tests.llm.aws_rig import access_key, no_aws
from tests.llm.lane_rig import HALF, LaneRig, chats, lane
from tests.llm.test_bedrock_batches import CONVERSE, move_to_bedrock
from tests.practice.visitor import HeldClock

__all__ = ["access_key", "no_aws"]

GEMINI = "/v1beta/models/m:generateContent"
PAGE = b"<html>Bad gateway</html>"
Change = Callable[[bytes], bytes]
SPOILT: dict[str, Change] = {
    "page": lambda text: PAGE,
    "nothing": lambda text: b"",
    "other": lambda text: b'{"error": "try again"}',
    "cut": lambda text: text[: len(text) * 2 // 3],
}


class Place(NamedTuple):
    url: str
    bodies: list[dict[str, Any]]
    results: str  # the end of the path of the results


SAYS = ("say 0", "say 1", "say 2", "say 3")
MESSAGES = [{"model": "m", "max_tokens": 40, "messages": [{"role": "user", "content": text}]} for text in SAYS]
PLACES = {
    "openai": Place("/v1/chat/completions", chats(4), "/content"),
    "anthropic": Place("/v1/messages", MESSAGES, "/results"),
    "gemini": Place(
        GEMINI, [{"contents": [{"role": "user", "parts": [{"text": text}]}]} for text in SAYS], ":download"
    ),
    "bedrock": Place(
        CONVERSE, [{"messages": [{"role": "user", "content": [{"text": text}]}]} for text in SAYS], "/input.jsonl.out"
    ),
}
# Where a new process finds requests: in the file that a batch was made of, or in its results when it has ended.
INPUTS = {"openai": "/content", "bedrock": "/input.jsonl"}


@asynccontextmanager
async def opened(site: Site, api: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LaneRig]:
    monkeypatch.setenv("BEDROCK_BATCH_BUCKET", "s3://bucket/some/where")
    monkeypatch.setenv("BEDROCK_BATCH_ROLE_ARN", "arn:aws:iam::000000000000:role/practice")
    monkeypatch.setenv("BEDROCK_BATCH_RECORDS_MIN", "1")
    async with lane(site, Lane.BATCH, price=HALF, api="openai" if api == "bedrock" else api) as rig:
        if api == "bedrock":
            await move_to_bedrock(rig, monkeypatch)
        yield rig


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("api", PLACES)
@pytest.mark.usefixtures("no_aws")
async def test_results_that_are_not_whole_are_asked_for_again(
    sqlite_site: Site, api: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = PLACES[api]
    async with opened(sqlite_site, api, monkeypatch) as rig:
        rig.provider.spoil[place.results] = changes = [SPOILT[how]]
        view = await rig.done(await rig.request(place.bodies, place.url))
        assert changes == [], "the results were asked for"
        assert (view.succeeded, view.repeats, rig.provider.bill.charged) == (4, 0, 4)


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("api", PLACES)
@pytest.mark.usefixtures("no_aws")
async def test_a_request_is_not_taken_for_lost_because_a_file_was_not_whole(
    sqlite_site: Site, api: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = PLACES[api]
    async with opened(sqlite_site, api, monkeypatch) as rig:
        rig.provider.clock = held = HeldClock()
        job = await rig.request(place.bodies, place.url)
        async with rig.working():
            await rig.in_state(job, "processing", 3)
        refs = [str((await rig.item(job, n)).provider_task_id).rpartition("/")[2] for n in range(4)]
        if api not in INPUTS:
            held.wake(1_000)
            assert (await rig.done(job)).succeeded == 4
        rig.restart()  # a new process knows nothing
        assert isinstance(rig.handler, BatchHandler)
        rig.provider.spoil[INPUTS.get(api, place.results)] = changes = [SPOILT[how]]
        for ref in refs:
            with suppress(Transient):
                assert isinstance(await rig.handler.ask(ref, 1), Submitted)
        assert changes == [], "the file was asked for"
        await rig.site.advance(10)
        for ref in refs:
            assert isinstance(await rig.handler.ask(ref, 1), Submitted)


async def test_results_that_stay_spoilt_are_given_up_after_some_time(sqlite_site: Site) -> None:
    place = PLACES["anthropic"]
    async with lane(sqlite_site, Lane.BATCH, price=HALF, api="anthropic") as rig:
        rig.provider.spoil[place.results] = [SPOILT["page"]] * 1_000
        job = await rig.request(place.bodies[:1], place.url)
        async with rig.working():
            await rig.in_state(job, "processing", 0)
        task = str((await rig.item(job)).provider_task_id)
        await rig.until(lambda: rig.provider.bill.charged)

        assert isinstance(rig.handler, BatchHandler)
        poll = rig.handler.poll

        async def not_whole() -> bool:
            try:
                return not isinstance((await poll([task]))[task], Running)
            except Transient as error:
                return "were not received as a whole" in str(error)

        await rig.until(not_whole)
        await rig.site.advance(901)
        answer = (await poll([task]))[task]
        assert isinstance(answer, Failed)
        assert answer.failure.kind is FailureKind.UNKNOWN


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (b"", True),
        (b"\n\r\n", True),
        (b'{"a": 1}\n', True),
        (b'{"a": 1}\r\n\r\n', True),
        (b'{"a": 1}', True),
        (b'not a line\n{"a": 1}\n', True),  # one bad line among good ones
        (b'{"a": 1}\n{"a": ', False),
        (b'{"a": 1}\n[]\n', False),
        (PAGE, False),
    ],
)
def test_a_file_of_lines_ends_with_an_object(text: bytes, whole: bool) -> None:
    assert ends_whole(BytesIO(text)) == whole
