"""What the settings of the environment do to LLM requests: the breaker, the retries and the time limit of a call."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.databases import Site
from tests.llm.lane_rig import Provider
from tests.llm.queued import moving_site, submit, worker

STARTS = {"call": "POST /chat/completions", "background": "POST /responses", "batch": "POST /batches"}
BEGINS = {**STARTS, "batch": "POST /files"}  # what fails before a request is under way at the provider
LANES = list(STARTS)


@pytest.fixture
async def site(sqlite_file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BACKSTAY_OWNER", "ann")
    async with moving_site(sqlite_file_url) as made:
        yield made


async def attempts(site: Site) -> list[tuple[str, str]]:
    rows = await site.rows("SELECT outcome, error_code FROM attempts ORDER BY item_id, fence")
    return [(outcome, code) for outcome, code in rows]


def hanging(lane: str, seconds: float) -> Provider:
    provider = Provider()

    async def hang() -> None:
        await asyncio.sleep(seconds)

    provider.before[STARTS[lane]] = hang
    return provider


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(("setting", "option"), [("400", ()), ("600000", ("--timeout", "400ms"))])
async def test_a_call_that_hangs_is_cut_off_at_the_limit_that_is_set(
    site: Site, monkeypatch: pytest.MonkeyPatch, lane: str, setting: str, option: tuple[str, ...]
) -> None:
    monkeypatch.setenv("BACKSTAY_GATEWAY_TIMEOUT_MS", setting)
    async with hanging(lane, 30).behind_a_door() as base_url:
        await submit(site, lane, base_url, *option)
        async with worker(site) as rig:
            await asyncio.wait_for(rig.tick(), 20)
        assert [code for _, code in await attempts(site)] == ["GW_TIMEOUT"]


@pytest.mark.parametrize("lane", LANES)
async def test_the_option_of_a_run_wins_over_a_shorter_setting(
    site: Site, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setenv("BACKSTAY_GATEWAY_TIMEOUT_MS", "400")
    async with hanging(lane, 1).behind_a_door() as base_url:
        await submit(site, lane, base_url, "--timeout", "8s")
        async with worker(site) as rig:
            await asyncio.wait_for(rig.tick(), 20)
        assert "GW_TIMEOUT" not in [code for _, code in await attempts(site)]
        assert await site.one("SELECT state FROM items") in ("processing", "succeeded")


@pytest.mark.parametrize("lane", LANES)
async def test_a_request_is_tried_as_often_as_is_set(site: Site, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    monkeypatch.setenv("BACKSTAY_RETRY_MAX_ATTEMPTS", "2")
    provider = Provider()
    provider.retry_after = None
    provider.refuse[BEGINS[lane]] = 500
    async with provider.behind_a_door() as base_url:
        await submit(site, lane, base_url, "--timeout", "4s")
        async with worker(site) as rig:
            for _ in range(4):
                await rig.tick()
                await site.advance(3_600)
    assert [outcome for outcome, _ in await attempts(site)] == ["retry", "failed"]
    assert provider.asked[BEGINS[lane]] == 2


@pytest.mark.parametrize("lane", LANES)
async def test_a_request_waits_as_long_as_is_set(site: Site, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    monkeypatch.setenv("BACKSTAY_RETRY_BASE_DELAY_MS", "900000")
    provider = Provider()
    provider.retry_after = None
    provider.refuse[BEGINS[lane]] = 500
    async with provider.behind_a_door() as base_url:
        await submit(site, lane, base_url, "--timeout", "4s", count=8)
        async with worker(site) as rig:
            await rig.tick()
    # A call waits anywhere up to twice that, to come back at another time than its like.
    assert await site.one("SELECT max(due_at - last_attempt_at) FROM items") > 60_000


async def call_one_by_one(site: Site, lane: str, provider: Provider, count: int) -> int:
    """In ticks of one item each: the breaker has heard of a call before the next. Returns how many there were."""
    async with provider.behind_a_door() as base_url:
        await submit(site, lane, base_url, count=count)
        async with worker(site) as rig:
            for _ in range(count):
                await rig.tick()
    return provider.asked[STARTS[lane]]


@pytest.mark.parametrize("lane", ["call", "background"])
async def test_the_breaker_judges_as_many_calls_as_is_set(
    site: Site, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setenv("BACKSTAY_CIRCUIT_WINDOW", "3")
    monkeypatch.setenv("BACKSTAY_TICK_ITEMS_MAX", "1")
    provider = Provider()
    provider.refuse[STARTS[lane]] = 500
    assert await call_one_by_one(site, lane, provider, 9) == 3, "without the setting, all nine are called"


async def test_in_a_longer_window_a_bad_moment_weighs_less(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_CIRCUIT_WINDOW", "100")
    monkeypatch.setenv("BACKSTAY_TICK_ITEMS_MAX", "1")
    provider, name = Provider(), STARTS["call"]
    provider.drop[name] = 1

    async def lose_twelve_after_sixteen() -> None:
        if provider.asked[name] == 16:
            provider.drop[name] = 12

    provider.before[name] = lose_twelve_after_sixteen
    assert await call_one_by_one(site, "call", provider, 40) == 40, "twelve bad ones of twenty would open it"


async def test_the_breaker_opens_at_the_share_of_failures_that_is_set(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTAY_CIRCUIT_FAIL_THRESHOLD", "0.1")
    monkeypatch.setenv("BACKSTAY_RETRY_BASE_DELAY_MS", "900000")  # only first tries are evidence, so only they are made
    monkeypatch.setenv("BACKSTAY_TICK_ITEMS_MAX", "1")
    provider, name = Provider(), STARTS["call"]
    provider.drop[name] = 1

    async def lose_the_next_of_four() -> None:
        provider.drop[name] = int(provider.asked[name] % 4 == 0)

    provider.before[name] = lose_the_next_of_four
    assert await call_one_by_one(site, "call", provider, 30) == 10, "three of ten are too many"


async def test_a_breaker_that_is_open_cools_as_long_as_is_set(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_CIRCUIT_WINDOW", "2")
    monkeypatch.setenv("BACKSTAY_CIRCUIT_COOLDOWN_MS", "600000")
    monkeypatch.setenv("BACKSTAY_RETRY_BASE_DELAY_MS", "0")
    provider = Provider()
    provider.retry_after = None
    provider.refuse[STARTS["call"]] = 500
    async with provider.behind_a_door() as base_url:
        await submit(site, "call", base_url, count=4)
        async with worker(site) as rig:
            await rig.tick()
            provider.refuse.clear()
            sent = provider.asked[STARTS["call"]]
            await site.advance(590)
            await rig.tick()
            assert provider.asked[STARTS["call"]] == sent, "it is open yet"
            await site.advance(20)
            for _ in range(4):
                await rig.tick()
    assert await site.one("SELECT count(*) FROM items WHERE state = 'succeeded'") == 4
