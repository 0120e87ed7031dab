"""What the settings of the environment do to handlers: what one sees of it at the provider and in the database."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from backstay.settings import load
from tests.databases import Site
from tests.engine.provider import HttpError, Provider, TaskProvider
from tests.engine.rig import Rig

MakeRig = Callable[..., Any]


@pytest.fixture
def make_set_rig(leaping_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRig:
    """A rig with these settings in the environment."""
    monkeypatch.chdir(tmp_path)

    async def make(**settings: Any) -> Rig:
        for name, value in settings.items():
            monkeypatch.setenv(f"BACKSTAY_{name.upper()}", str(value))
        return Rig(leaping_site, await leaping_site.open_store(), **asdict(load().bounds()))

    return make


class HangingTasks(TaskProvider):
    async def submit(self, item: Any, context: Any) -> str:
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")


async def test_a_task_is_submitted_within_the_time_that_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(gateway_timeout_ms=300)
    rig.takes_tasks(HangingTasks())
    job = await rig.submit(["a"], "task")
    await asyncio.wait_for(rig.tick(), 20)
    assert [attempt.error_code for attempt in await rig.attempts(job)] == ["GW_TIMEOUT"]


async def test_an_item_is_tried_as_often_as_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(retry_max_attempts=2)
    provider = rig.serves(Provider(), retry="gateway")
    provider.script = [HttpError(502)] * 9
    job = await rig.submit()
    for _ in range(4):
        await rig.tick()
        await rig.site.advance(3_600)
    assert ((await rig.item(job)).state, provider.calls) == ("failed", 2)


async def test_an_item_waits_as_long_as_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(retry_base_delay_ms=900_000)
    provider = rig.serves(Provider(), retry="gateway")
    provider.script = [HttpError(502)]
    await rig.submit()
    await rig.tick()
    await rig.site.advance(890)
    await rig.tick()
    assert provider.calls == 1
    await rig.site.advance(20)
    await rig.tick()
    assert provider.calls == 2


async def call_one_by_one(rig: Rig, items: int) -> None:
    """In ticks of one item each: the breaker has heard of a call before the next."""
    for _ in range(items):
        await rig.tick()


async def test_the_breaker_judges_as_many_calls_as_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(circuit_window=3, tick_items_max=1, circuit_cooldown_ms=600_000)
    provider = rig.serves(Provider())
    provider.script = [HttpError(502)] * 99
    await rig.submit(range(9))
    await call_one_by_one(rig, 9)
    assert provider.calls == 3, "without the setting, all nine are called"


async def test_in_a_longer_window_a_bad_moment_weighs_less(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(circuit_window=100, tick_items_max=1)
    provider = rig.serves(Provider())
    provider.script = [HttpError(502), *["good"] * 15, *[HttpError(502)] * 12]
    await rig.submit(range(40))
    await call_one_by_one(rig, 40)
    assert provider.calls == 40, "twelve bad ones of twenty would open it"


async def test_the_breaker_opens_at_the_share_of_failures_that_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(circuit_fail_threshold=0.1, tick_items_max=1, circuit_cooldown_ms=600_000)
    provider = rig.serves(Provider())
    provider.script = [HttpError(502), *["good"] * 3] * 9
    await rig.submit(range(30))
    await call_one_by_one(rig, 30)
    assert provider.calls == 10, "three of ten are too many"


async def test_an_open_breaker_cools_as_long_as_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(circuit_window=2, circuit_cooldown_ms=600_000)
    provider = rig.serves(Provider())
    provider.script = [HttpError(502)] * 4
    job = await rig.submit(range(4))
    await rig.tick()
    called = provider.calls
    await rig.site.advance(590)
    await rig.tick()
    assert provider.calls == called
    await rig.site.advance(20)
    for _ in range(4):
        await rig.tick()
    assert (await job.show()).succeeded == 4


async def test_a_worker_runs_as_many_at_once_as_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(worker_concurrency=3)
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(range(10))
    async with rig.app.working():
        await rig.until(lambda: provider.now == 3)
        provider.gate.set()
        await job.wait(timeout_seconds=20)
    assert provider.peak == 3


async def test_what_a_dead_worker_held_is_taken_up_after_the_lease_that_is_set(make_set_rig: MakeRig) -> None:
    rig = await make_set_rig(worker_lease_ttl_sec=20)
    rig.serves(Provider())
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(19)
    await rig.tick()
    assert (await rig.item(job)).state == "submitting"
    await rig.site.advance(2)
    await rig.tick()
    assert (await rig.item(job)).state == "succeeded"
