"""Limits of own handlers over many processes that are killed, at the provider's own count."""

import asyncio
import random
from pathlib import Path

import pytest

from backstay.core.money import Period
from tests.stories.stage import Stage, until

pytestmark = pytest.mark.slow

PRICES = {"paid": 10_000, "paid_twofold": 20_000, "paid_threefold": 30_000}
LIMIT_MICROS = 1_500_000
PROCESSES, KILLS = 8, 6


async def storm(stage: Stage, seed: int) -> None:
    """Kills processes at random moments, and starts others in their place."""
    rng = random.Random(seed)
    workers = [stage.worker(10) for _ in range(PROCESSES)]
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(0.5, 1.2))
        victim = rng.randrange(PROCESSES)
        stage.kill9(workers[victim])
        workers[victim] = stage.worker(10)


async def test_a_budget_of_three_handlers_is_never_exceeded_by_eight_processes_under_kills(
    postgres_url: str, tmp_path: Path
) -> None:
    async with Stage(postgres_url, tmp_path, seed=5) as stage:
        await stage.store.budgets.set("local", "", Period.TOTAL, LIMIT_MICROS)
        for handler in PRICES:
            await stage.manners(handler, seconds_min=0.2, seconds_max=0.8, refuses=0.05, forgets=0.04)
            await stage.submit(handler, range(80))
        await storm(stage, seed=6)

        async def used_up() -> bool:
            [budget] = await stage.store.budgets.all()
            return budget.reserved_micros == 0 and budget.left_micros < max(PRICES.values())

        what = "the budget is used up and nothing is under way"
        await until(used_up, what, progress=stage.store.budgets.all)
        charged = sum(PRICES[charge.kind] for charge in await stage.bill())
        assert len(stage.kills) == KILLS
        assert 0.5 * LIMIT_MICROS < charged <= LIMIT_MICROS


async def test_a_rate_holds_at_the_providers_own_count_across_processes(postgres_url: str, tmp_path: Path) -> None:
    async with Stage(postgres_url, tmp_path, seed=7) as stage:
        job = await stage.submit("rated", range(90))
        await stage.manners("rated", seconds_min=0.05, seconds_max=0.3)
        await storm(stage, seed=8)

        async def ended() -> bool:
            return (await job.show()).ended

        await until(ended, "the job has ended", progress=job.show)
        assert (await job.show()).succeeded == 90
        times = sorted(charge.at for charge in await stage.bill("rated"))
    per_10_seconds = max(sum(at <= each < at + 10 for each in times) for at in times)
    assert per_10_seconds <= 300 / 6 + 10, "five calls a second, and a burst that left late"
    assert times[-1] - times[0] > 12
