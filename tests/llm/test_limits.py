"""How long LLM jobs and their items may live: what profile and settings say, in every lane and whoever made the job."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.core.limits import PROFILES
from backstay.llm.endpoint import Endpoint
from tests.databases import Site
from tests.engine.rig import Rig
from tests.llm.lane_rig import Provider
from tests.llm.queued import LANES, moving_site, submit, the_job, worker
from tests.server.openai.openai_rig import opened, requests

ITEM_SECONDS, JOB_SECONDS = 5_000, 90_000


@pytest.fixture
async def site(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BACKSTAY_OWNER", "ann")
    async with moving_site(database_url) as made:
        yield made


async def limits_of(site: Site) -> list[tuple[int, int]]:
    """What the database has as the limit of each job, as a span and as the moment that it ends at."""
    return [(row[0], row[1]) for row in await site.rows("SELECT timeout_ms, timeout_at - created_at FROM jobs")]


def set_limit(monkeypatch: pytest.MonkeyPatch, how: str) -> float:
    """Sets the limit of a job in one of the ways there are, and returns it."""
    if how in PROFILES:
        monkeypatch.setenv("BACKSTAY_PROFILE", how)
        return PROFILES[how].llm_job_timeout_seconds
    if how == "file":
        Path("backstay.toml").write_text("[limits]\nllm_job_timeout_seconds = 4321\n")
    else:
        monkeypatch.setenv("BACKSTAY_LLM_JOB_TIMEOUT_SECONDS", "4321")
    return 4321


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("how", ["conservative", "aggressive", "environment", "file"])
async def test_a_submitted_file_has_the_limit_that_is_set(
    site: Site, monkeypatch: pytest.MonkeyPatch, how: str, lane: str
) -> None:
    seconds = set_limit(monkeypatch, how)
    await submit(site, lane, "http://127.0.0.1:9/v1")
    assert await limits_of(site) == [(seconds * 1000, seconds * 1000)]


async def assert_ends_in_time(rig: Rig) -> None:
    """Tries and polls go on until the time of the item is over, and then it fails after one more of them."""
    for seconds in (0, ITEM_SECONDS / 2, ITEM_SECONDS / 2 - 100):
        await rig.site.advance(seconds)
        await rig.tick()
        assert not (await the_job(rig)).ended
    await rig.site.advance(101)
    await rig.tick()
    job = await the_job(rig)
    assert (job.state, job.failed) == ("failed", 1)
    [(code, in_time)] = await rig.site.rows("SELECT error_code, timed_out_at - queued_at FROM items")
    assert code == "GW_TIMEOUT"
    assert ITEM_SECONDS * 1000 < in_time < (ITEM_SECONDS + 60) * 1000


def set_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_LLM_ITEM_TIMEOUT_SECONDS", str(ITEM_SECONDS))
    monkeypatch.setenv("BACKSTAY_LLM_JOB_TIMEOUT_SECONDS", str(JOB_SECONDS))


def never_ending() -> Provider:
    """It has no time for calls, and never comes to an end with what it takes on."""
    provider = Provider(background_seconds=1e6, batch_seconds=1e6)
    provider.refuse["POST /chat/completions"] = 429
    return provider


@pytest.mark.parametrize("lane", LANES)
async def test_an_item_fails_when_its_time_is_over(site: Site, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    set_limits(monkeypatch)
    async with never_ending().behind_a_door() as base_url:
        await submit(site, lane, base_url, "--timeout", "4s")
        async with worker(site) as rig:
            await assert_ends_in_time(rig)


@pytest.mark.parametrize("lane", LANES)
async def test_a_job_fails_when_its_time_is_over(site: Site, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    set_limits(monkeypatch)
    monkeypatch.setenv("BACKSTAY_LLM_ITEM_TIMEOUT_SECONDS", str(JOB_SECONDS * 2))
    async with never_ending().behind_a_door() as base_url:
        await submit(site, lane, base_url, "--timeout", "4s")
        async with worker(site) as rig:
            await rig.tick()
            await rig.site.advance(JOB_SECONDS - 100)
            await rig.tick()
            assert not (await the_job(rig)).ended
            await rig.site.advance(101)
            await rig.tick()
            assert (await the_job(rig)).state == "failed"
            [(message,)] = await site.rows("SELECT message FROM attempts ORDER BY fence DESC LIMIT 1")
            assert message == "the job exceeded its maximum runtime"


async def until_submitted(site: Site) -> None:
    submitted: list[tuple[int]] = []
    async with asyncio.timeout(20):
        while not submitted:
            await asyncio.sleep(0.01)
            submitted = await site.rows("SELECT 1 FROM jobs WHERE sealed = 1")


async def test_a_batch_of_the_service_has_the_same_limits(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_limits(monkeypatch)
    provider = never_ending()
    async with (
        provider.behind_a_door() as base_url,
        opened(site.url, tmp_path / "data", upstream=Endpoint(base_url), works=False) as desk,
    ):
        batch = await desk.create(requests(1), completion_window="7d")
        await desk.until(batch, "in_progress")
        await until_submitted(site)
        assert await limits_of(site) == [(JOB_SECONDS * 1000, JOB_SECONDS * 1000)]
        assert batch.expires_at == batch.created_at + JOB_SECONDS, "it must not promise more than it keeps"
        async with worker(site) as rig:
            await assert_ends_in_time(rig)


@pytest.mark.parametrize(("lane", "seconds"), [("call", 600.0), ("background", 60.0), ("batch", 240.0)])
async def test_a_call_of_each_lane_has_a_time_limit_of_its_own(site: Site, lane: str, seconds: float) -> None:
    await submit(site, lane, "http://127.0.0.1:9/v1")
    async with worker(site) as rig:
        [handler] = rig.app.handlers
        assert handler.rules.timeout_seconds == seconds
