"""Batches of providers whose batches are like OpenAI's: from the first request to its result, and found again."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from backstay.client import Job
from backstay.clock import Clock
from backstay.core.errors import Transient
from backstay.llm.batch import BatchHandler
from backstay.llm.bodies import id_in, object_in
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.http.wire import Wire
from backstay.llm.prices import LanePrices
from backstay.llm.provider import Channel
from backstay.llm.providers import provider_named
from backstay.llm.providers.mistral import MistralFilesAndJobs, read_job
from backstay.llm.providers.together import TogetherFilesAndBatches
from tests.databases import Site
from tests.engine.rig import Rig
from tests.llm.lane_rig import CHAT, HALF, KEY, MINUTES_10, Provider, chats
from tests.llm.odd_servers import answer
from tests.llm.wire_rig import wired

PLACES = {
    "azure": "",
    "azure?": "?api-version=2024-10-21",
    "groq": "",
    "mistral": "/mistral/v1",
    "together": "/together/v1",
}
LISTS = {"mistral": "/mistral/v1/batch/jobs", "together": "/together/v1/batches"}
CREATES = {
    "azure?": "POST /openai/batches",
    "mistral": "POST /mistral/v1/batch/jobs",
    "together": "POST /together/v1/batches",
}


class BatchRig(Rig):
    provider: Provider
    handler: BatchHandler
    root: str

    async def request(self, bodies: list[dict[str, Any]], url: str = CHAT) -> Job:
        lines = [{"custom_id": f"r{n}", "url": url, "body": body} for n, body in enumerate(bodies)]
        return await self.submit(lines, self.handler.name)

    async def done(self, job: Job) -> Any:
        async with self.working():
            return await job.wait(timeout_seconds=60)

    async def listed(self, path: str) -> list[Any]:
        heads = {"Authorization": f"Bearer {KEY}"}
        async with aiohttp.ClientSession(headers=heads) as session, session.get(f"{self.root}{path}") as reply:
            said = json.loads(await reply.read())
        return said if isinstance(said, list) else said["data"]


@asynccontextmanager
async def batches_at(site: Site, api: str, place: str, **faults: Any) -> AsyncIterator[BatchRig]:
    """The real engine and a provider's batches, over HTTP to the practice provider."""
    provider = Provider(key=KEY, **faults)
    async with provider.behind_a_door() as base_url:
        root = base_url.removesuffix("/v1")
        endpoint = Endpoint(f"{root}{place}", Lane.BATCH, price=HALF, api=api)
        rig = BatchRig(site, await site.open_store(), poll_interval_seconds=0.05)
        wire = Wire(endpoint, KEY, connections_max=10)
        await wire.open()
        rig.provider, rig.root = provider, root
        rig.handler = BatchHandler(endpoint, wire, clock=site.clock, quiet_seconds=0.1)
        rig.app.handlers.add(rig.handler)
        await rig.store.providers.set_pace(rig.handler.pace_name, (None, None), 80_000)
        try:
            yield rig
        finally:
            await rig.handler.close()
            await wire.close()


@pytest.mark.parametrize("place", PLACES)
async def test_requests_become_one_batch_and_come_back_each_once(sqlite_site: Site, place: str) -> None:
    async with batches_at(sqlite_site, place.rstrip("?"), PLACES[place]) as rig:
        job = await rig.request(chats(8))
        assert (await rig.done(job)).succeeded == 8
        assert len(await rig.listed(LISTS.get(place, "/v1/batches"))) == 1
        assert (rig.provider.bill.charged, rig.provider.bill.bodies_paid_twice) == (8, [])


@pytest.mark.parametrize("place", PLACES)
async def test_a_batch_whose_creation_was_lost_is_found_and_not_paid_again(sqlite_site: Site, place: str) -> None:
    async with batches_at(sqlite_site, place.rstrip("?"), PLACES[place]) as rig:
        rig.provider.lose[CREATES.get(place, "POST /openai/v1/batches")] = 1
        job = await rig.request(chats(3))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 3
        assert len(await rig.listed(LISTS.get(place, "/v1/batches"))) == 1
        assert rig.provider.bill.charged == 3


async def test_azure_waits_for_its_file_and_sends_again_when_too_many_tokens_waited(sqlite_site: Site) -> None:
    async with batches_at(sqlite_site, "azure", "", file_seconds=0.3, batch_enqueued_tokens=1) as rig:
        job = await rig.request(chats(4))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        [refused] = await rig.listed("/v1/batches")
        assert refused["errors"]["data"][0]["code"] == "token_limit_exceeded"
        rig.provider.change(batch_enqueued_tokens=None)
        await rig.site.advance(MINUTES_10)
        assert ((await rig.done(job)).succeeded, rig.provider.bill.charged) == (4, 4)


async def test_together_does_not_get_the_same_file_twice_and_its_store_gets_no_key(sqlite_site: Site) -> None:
    async with batches_at(sqlite_site, "together", "/together/v1") as rig:
        calls = TogetherFilesAndBatches(rig.handler.channel)
        first, second = [await calls.upload(f"backstay-{'0' * 32}.jsonl", io.BytesIO(b"{}\n"), 30) for _ in range(2)]
        assert (first.status, second.status) == (200, 200)
        assert id_in(object_in(first)) == id_in(object_in(second))
        [file] = await calls.our_files()
        assert file.digest == "0" * 32
        assert "PUT /together/store/*" not in rig.provider.asked, "it goes straight to the place that was named"


@asynccontextmanager
async def mistral_jobs(*pages: dict[str, Any]) -> AsyncIterator[MistralFilesAndJobs]:
    async with wired(*(answer(json.dumps(page)) for page in pages), api="mistral") as (wire, _):
        prices = LanePrices(Endpoint("http://127.0.0.1", api="mistral"))
        yield MistralFilesAndJobs(Channel(provider_named("mistral"), wire, prices, Clock()))


def job(number: int, created_at: int = 100, **more: Any) -> dict[str, Any]:
    return {"id": f"j{number}", "status": "RUNNING", "created_at": created_at, "input_files": ["f"], **more}


async def test_all_pages_of_mistrals_list_are_read_up_to_its_total() -> None:
    async with mistral_jobs({"data": [job(1)], "total": 2}, {"data": [job(1), job(2)], "total": 2}) as calls:
        assert [batch.id for batch in await calls.since(0)] == ["j1", "j2"]
    async with mistral_jobs({"data": [job(1, 100), job(2, 50)], "total": 9}) as calls:
        assert [batch.id for batch in await calls.since(60)] == ["j1"], "older ones need not be read"


async def test_a_list_that_ends_before_its_total_is_not_certain() -> None:
    async with mistral_jobs({"data": [job(1)], "total": 2}, {"data": [], "total": 2}) as calls:
        with pytest.raises(Transient, match="ends before its total"):
            await calls.since(0)


@pytest.mark.parametrize(
    ("status", "ended", "running"),
    [
        ("QUEUED", False, False),
        ("RUNNING", False, True),
        ("SUCCESS", True, False),
        ("FAILED", True, False),
        ("TIMEOUT_EXCEEDED", True, False),
        ("CANCELLATION_REQUESTED", False, False),
        ("CANCELLED", True, False),
        ("SOMETHING_NEW", False, False),
    ],
)
def test_mistrals_statuses(status: str, ended: bool, running: bool) -> None:
    batch = read_job({"id": "j", "status": status})
    assert (batch.ended, batch.running) == (ended, running)
