"""kill -9 of real workers at random moments: what ends, what is paid, and what is recorded of it."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backstay import Job, Result
from backstay.core.ids import item_id
from backstay.core.states import ItemState
from tests.stories.stage import Charge, Stage, by_ref, paid_twice, until

pytestmark = pytest.mark.slow

KINDS = ("unaskable", "once", "askable", "task")
CONCURRENCY = 16
WORKERS = 3
AIMED_AT = ("unaskable", "once")
# From the provider's answer to its commit: for its worker a call is in flight a little longer than for the provider.
COMMIT_SECONDS = 2.0


@dataclass(frozen=True)
class Storm:
    items_per_kind: int
    kills: int
    gap_seconds: tuple[float, float]
    seed: int


@dataclass
class Seen:
    """Every result as it was first seen; a committed one never changes."""

    results: dict[tuple[int, int], Result] = field(default_factory=dict)
    changed: list[tuple[Result, Result]] = field(default_factory=list)

    def add(self, job: Job, result: Result) -> None:
        first = self.results.setdefault((job.id, result.position), result)
        if first != result:
            self.changed.append((first, result))


async def watch(jobs: Mapping[str, Job], seen: Seen) -> None:
    while True:
        for job in jobs.values():
            async for result in job.results():
                seen.add(job, result)
        await asyncio.sleep(0.3)


async def rage(stage: Stage, storm: Storm) -> None:
    """Kills a worker at a random moment and starts another in its place, again and again.

    The first kills are aimed: they hit a call that nobody can ask about, and one that must not be repeated.
    """
    rng = random.Random(storm.seed)
    workers = [stage.worker(CONCURRENCY) for _ in range(WORKERS)]
    for kill in range(storm.kills):
        if kill < len(AIMED_AT):
            victim = await calling(stage, AIMED_AT[kill], [worker.pid for worker in workers])
        else:
            await asyncio.sleep(rng.uniform(*storm.gap_seconds))
            victim = rng.randrange(WORKERS)
        stage.kill9(workers[victim])
        workers[victim] = stage.worker(CONCURRENCY)
        if kill < len(AIMED_AT):
            await stage.manners(AIMED_AT[kill], holding=False)


async def calling(stage: Stage, kind: str, pids: list[int]) -> int:
    """Which of these processes has a call of this kind under way; the provider ends none before it is told to."""
    await stage.manners(kind, holding=True)

    async def under_way() -> list[int]:
        return [charge.worker for charge in await stage.bill(kind) if charge.ended_at is None and charge.worker in pids]

    return pids.index((await until(under_way, f"a call of {kind} is under way"))[0])


async def survive(stage: Stage, storm: Storm, patience_seconds: float) -> tuple[dict[str, Job], Seen]:
    await stage.manners("unaskable", seconds_min=0.2, seconds_max=0.8, refuses=0.05, throttles=0.02)
    await stage.manners("once", seconds_min=0.2, seconds_max=0.8, refuses=0.05, throttles=0.02)
    await stage.manners("askable", seconds_min=0.2, seconds_max=0.8, refuses=0.05, forgets=0.04, dawdles=0.01)
    await stage.manners("task", seconds_min=0.1, seconds_max=0.4, refuses=0.05, forgets=0.04, dawdles=0.01)
    jobs = {kind: await stage.submit(kind, range(storm.items_per_kind)) for kind in KINDS}
    seen = Seen()
    watching = asyncio.create_task(watch(jobs, seen))
    await rage(stage, storm)
    for kind, job in jobs.items():
        ended = await job.wait(timeout_seconds=patience_seconds)
        assert ended.done == storm.items_per_kind, f"every item of {kind} ends"
    watching.cancel()
    return jobs, seen


@pytest.mark.parametrize(
    "storm",
    [
        Storm(items_per_kind=100, kills=8, gap_seconds=(0.3, 1.0), seed=11),
        pytest.param(Storm(items_per_kind=5_000, kills=100, gap_seconds=(0.5, 3.0), seed=12), marks=pytest.mark.storm),
    ],
    ids=["short", "long"],
)
async def test_workers_killed_at_random_moments_lose_nothing_and_pay_nothing_twice_that_can_be_asked(
    database_url: str, tmp_path: Path, storm: Storm
) -> None:
    async with Stage(database_url, tmp_path, storm.seed) as stage:
        jobs, seen = await survive(stage, storm, patience_seconds=60 + storm.items_per_kind / 10)
        assert len(stage.kills) == storm.kills
        for job in jobs.values():
            for result in (await stage.results(job)).values():
                seen.add(job, result)
        assert seen.changed == [], "no committed result changes"
        results = {kind: await stage.results(job) for kind, job in jobs.items()}
        for kind in ("unaskable", "askable", "task"):
            check_all_there(results[kind], storm.items_per_kind)
        assert paid_twice(await stage.bill("askable")) == []
        assert paid_twice(await stage.bill("task")) == []
        await check_repeats(stage, jobs["unaskable"], results["unaskable"])
        check_at_most_once(stage, await stage.bill("once"), results["once"])
        await check_one_success_each(stage, jobs, storm.items_per_kind)


def check_all_there(results: Mapping[int, Result], items: int) -> None:
    assert len(results) == items
    lost = [r for r in results.values() if not r.ok or r.value is None or r.value["payload"] != r.position]
    assert lost == [], "no result is lost, and each belongs to its item"


def in_flight_at_a_kill(stage: Stage, charge: Charge) -> bool:
    """Whether a kill hit the call. The dead send nothing, but what they had sent may arrive after the kill."""
    return any(
        kill.pid == charge.worker and (charge.ended_at is None or charge.ended_at >= kill.at - COMMIT_SECONDS)
        for kill in stage.kills
    )


async def check_repeats(stage: Stage, job: Job, results: Mapping[int, Result]) -> None:
    """A provider that cannot be asked is paid again only for what a kill cut off, and each time it is written down."""
    paid = by_ref(await stage.bill("unaskable"))
    assert len(paid) == len(results)
    for charges in paid.values():
        *cut_off, _ = charges
        assert all(in_flight_at_a_kill(stage, charge) for charge in cut_off), charges
        assert results[charges[0].payload].repeats >= len(cut_off), "each repeat is recorded"
    repeated = [result for result in results.values() if result.repeats]
    assert repeated, "no kill hit a call, so this storm has shown nothing"
    assert sum(result.repeats for result in repeated) <= len(stage.kills) * CONCURRENCY
    for result in repeated:
        acts = await stage.acts(item_id(job.id, result.position))
        assert acts.count("repeat") == result.repeats
    assert (await job.show()).repeats == sum(result.repeats for result in repeated)


def check_at_most_once(stage: Stage, bill: list[Charge], results: Mapping[int, Result]) -> None:
    """Never paid twice; what nobody can know has failed as UNKNOWN, for a person to decide."""
    assert paid_twice(bill) == []
    paid = {charge.payload: charge for charge in bill}
    unknown = [result for result in results.values() if not result.ok]
    assert unknown, "no kill hit a call, so this storm has shown nothing"
    for result in unknown:
        assert (result.state, result.error_code) == (ItemState.FAILED, "UNKNOWN"), result
        assert result.position not in paid or in_flight_at_a_kill(stage, paid[result.position])
    assert all(result.position in paid for result in results.values() if result.ok)


async def check_one_success_each(stage: Stage, jobs: Mapping[str, Job], items: int) -> None:
    for job in jobs.values():
        for position in range(items):
            attempts = await stage.store.item_views.attempts(item_id(job.id, position))
            assert sum(attempt.outcome == "succeeded" for attempt in attempts) <= 1
