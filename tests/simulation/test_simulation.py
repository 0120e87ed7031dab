"""The whole engine on a virtual clock: the short version of `make simulate`."""

import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice

import pytest

from tests.simulation import fronts
from tests.simulation.ablations import ABLATIONS, hunted
from tests.simulation.campaign import PROBES, run_seeds
from tests.simulation.exhaustive import FAULTS, every_point, small
from tests.simulation.plan import KINDS, Faults, Plan, following, plan_of
from tests.simulation.world import Failure, digest, run_plan

SEEDS = 100
SEEDS_WITH_FRONTS = 60
PARTS = 8
FOLLOWED_POINTS = 400  # suspension points of a worker until the second job has ended, and some more
HASHED_SEEDS = 6
STRUCK = {"kill": "killed", "freeze": "thawed"}  # what tells that the fault has come
DIGESTS = f"from tests.simulation.campaign import run_seeds; print(run_seeds(range({HASHED_SEEDS})).digests)"


def test_no_seeded_world_breaks_a_promise_and_every_rare_situation_is_reached() -> None:
    campaign = run_seeds(range(SEEDS))
    assert campaign.failures == []
    assert campaign.missing(PROBES) == []


@pytest.mark.slow
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_no_fault_at_any_suspension_point_breaks_a_promise(kind, what: str) -> None:
    traces = list(every_point(kind, what, seed=1))
    assert len(traces) > 50
    if what in STRUCK:
        struck = sum(trace.probes[STRUCK[what]] for trace in traces)
        assert struck >= len(traces) - 15  # the last points lie beyond the end


@pytest.mark.slow
def test_the_same_seed_tells_the_same_story() -> None:
    for seed in range(6):
        assert digest(run_plan(plan_of(seed))) == digest(run_plan(plan_of(seed)))


@pytest.mark.slow
def test_the_story_does_not_hang_on_the_order_of_hashes() -> None:
    said = [_digests(hash_seed) for hash_seed in ("0", "4242")]
    assert said[0] == said[1] == str(run_seeds(range(HASHED_SEEDS)).digests)


def _digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGESTS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_safeguard_switched_off_is_noticed(name: str) -> None:
    with ABLATIONS[name](), pytest.raises(Failure):
        _run_all(hunted())


def _run_all(plans: Iterable[Plan]) -> None:
    for plan in plans:
        run_plan(plan)


@pytest.mark.slow
def test_the_worlds_that_notice_them_are_whole_when_nothing_is_switched_off() -> None:
    _run_all(islice(hunted(), 0, None, PARTS))


def test_looks_that_start_at_a_front_break_no_promise() -> None:
    with fronts.used():
        _run_all(map(plan_of, range(SEEDS_WITH_FRONTS)))


@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_follow_others_fall_back_or_are_submitted_twice_break_no_promise(seed: int) -> None:
    run_plan(following(seed))


@pytest.mark.slow
def test_a_job_that_follows_another_is_filled_once_wherever_its_worker_is_killed() -> None:
    filled = 0
    for step in range(1, FOLLOWED_POINTS, 3):
        plan = small(KINDS["call_at_least_once"], f"follow-{step}", Faults(kill_at=step))
        plan.items, plan.after = 5, "succeeded"
        filled += run_plan(plan).probes["a job was filled from another"]
    assert filled >= FOLLOWED_POINTS // 3  # several steps in each world
