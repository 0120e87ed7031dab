"""A provider of another form is one `LlmProvider`: its lanes work, and nothing else changes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay.client import Job
from backstay.core.errors import UsageError
from backstay.core.models import CannotAsk, Flaw
from backstay.llm import providers
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import Endpoint, Lane, load_endpoint
from backstay.llm.formats import InputOptions
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import BackgroundHandler, CallHandler
from tests.databases import Site
from tests.engine.rig import Rig
from tests.llm.request_files import sent
from tests.llm.second_provider import ASK, TWO, TwoServer

KEY = "two-secret-0123456789"
MINUTES_10 = 600


@pytest.fixture(autouse=True)
def two_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_known", {})
    providers.add_provider(TWO)


class TwoRig(Rig):
    server: TwoServer
    handler: CallHandler | BatchHandler

    async def request(self, *questions: str) -> Job:
        bodies = [{"brain": "b", "question": question} for question in questions]
        items = [{"custom_id": f"r{n}", "url": ASK, "body": body} for n, body in enumerate(bodies)]
        return await self.submit(items, self.handler.name)

    async def answers(self, job: Job) -> list[Any]:
        async with self.working():
            await job.wait(timeout_seconds=30)
        return [(result.value or {}).get("body", {}).get("said") for result in await self.results(job)]


@asynccontextmanager
async def lane(site: Site, kind: Lane) -> AsyncIterator[TwoRig]:
    server = TwoServer()
    async with server.serving() as base_url:
        endpoint = Endpoint(base_url, kind, price=(1_000_000, 2_000_000), api="two", fail_on=(Flaw.TRUNCATED,))
        rig = TwoRig(site, await site.open_store(), poll_interval_seconds=0.05)
        wire = Wire(endpoint, KEY, connections_max=10)
        await wire.open()
        rig.server = server
        if kind is Lane.CALL:
            rig.handler = CallHandler(endpoint, wire, clock=site.clock)
        else:
            rig.handler = BatchHandler(endpoint, wire, clock=site.clock, quiet_seconds=0.1)
        rig.app.handlers.add(rig.handler)
        await rig.store.providers.set_pace(rig.handler.pace_name, (None, None), 80_000)
        try:
            yield rig
        finally:
            if isinstance(rig.handler, BatchHandler):
                await rig.handler.close()
            await wire.close()


async def test_a_call_goes_out_with_its_headers_and_is_paid_by_its_usage(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.CALL) as rig:
        rig.server.refusals = [529]
        job = await rig.request("one", "two")
        assert await rig.answers(job) == ["one", "two"]
        head = rig.server.heads[0]
        assert (head["x-api-key"], head["two-version"], head.get("authorization")) == (KEY, "2", None)
        assert (await job.show()).spent_micros == 2 * 20


async def test_results_of_a_batch_find_their_requests_in_any_order(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request("one", "two", "three")
        assert await rig.answers(job) == ["one", "two", "three"]
        assert [len(batch) for batch in rig.server.batches.values()] == [3]


async def test_a_batch_whose_creation_was_lost_is_found_by_our_references(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.server.lose_creates = 1
        job = await rig.request("one", "two")
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        await rig.site.advance(MINUTES_10)
        assert await rig.answers(job) == ["one", "two"]
        assert len(rig.server.batches) == 1


async def test_what_such_a_look_up_does_not_find_is_not_certain_never_to_have_arrived(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        assert rig.handler.askable
        assert await rig.handler.ask("0" * 40) == CannotAsk()


async def test_what_a_provider_does_not_have_is_refused_when_the_lane_is_opened() -> None:
    endpoint = Endpoint("http://127.0.0.1:1", Lane.BACKGROUND, api="two", reconcilable=True)
    wire = Wire(endpoint, KEY, connections_max=1)
    with pytest.raises(UsageError, match="two has no background requests"):
        BackgroundHandler(endpoint, wire)
    with pytest.raises(UsageError, match="two cannot look up a call after a crash"):
        CallHandler(endpoint, wire)


def test_prompts_become_bodies_in_the_words_of_the_provider(tmp_path: Any) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "why"}\n')
    [request] = sent(str(file), InputOptions(model="b", api="two"))
    assert (request.url, request.body) == (ASK, '{"brain":"b","question":"why"}')


def test_an_endpoint_names_its_provider_and_the_first_one_is_named_as_ever() -> None:
    first, second = Endpoint("http://h/v1"), Endpoint("http://h/v1", api="two")
    assert "api" not in json.loads(first.dump())
    assert (load_endpoint(first.dump()), load_endpoint(second.dump())) == (first, second)
    assert first.name != second.name
    with pytest.raises(UsageError, match="there is no provider 'three'"):
        Wire(Endpoint("http://h", api="three"), None, connections_max=1)
