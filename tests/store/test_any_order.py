"""Any verbs, by any workers, at any time: the books stay right and no transition is illegal."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from backstay.core.errors import NotAllowed
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.models import (
    CannotAsk,
    Claimed,
    Delivery,
    Failed,
    Flaw,
    HandedBack,
    Interrupted,
    NeverArrived,
    Running,
    Skipped,
    Stopped,
    Submitted,
    Succeeded,
)
from backstay.store.submissions import Chunk, OpenJob
from tests.databases import Site, Ticker, sqlite_url
from tests.store.store_rig import LEASE_MS, Scene, chunk, decided

pytestmark = pytest.mark.slow

WORKERS = st.sampled_from(["w1", "w2", "w3"])
PICK = st.integers(0, 1_000)
OUTCOMES = st.sampled_from(
    [
        Succeeded('"a"'),
        Succeeded('"b"', flaw=Flaw.TRUNCATED),
        Skipped("why"),
        Stopped(),
        HandedBack("late"),
        Interrupted(),
        NeverArrived(),
        CannotAsk(),
        Submitted("task", "account-1"),
        *(Failed(Failure(ErrorCode.GW_5XX, kind, "no")) for kind in FailureKind),
        Failed(Failure(ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE, "no"), task_ended=True, flaw=Flaw.REFUSED),
    ]
)
POLLED = st.sampled_from(
    [
        Succeeded('"c"', flaw=Flaw.FILTERED),
        Running(10),
        Stopped(),
        Skipped("why"),
        Failed(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, "no"), task_ended=True),
        Failed(Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, "no"), task_ended=True),
    ]
)


class AnyOrder(RuleBasedStateMachine):
    """Every write is audited by the scene itself; the rules only choose what happens next."""

    def __init__(self, make_site: Callable[[], Site]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.site = make_site()
        self.held: list[Claimed] = []
        self.jobs: list[int] = []
        self.growing: list[OpenJob] = []
        self.run(self._open())

    async def _open(self) -> None:
        await self.site.empty()
        self.scene = Scene(self.site)
        self.scene.store.counters.large.items_min = 2
        await self.scene.store.open()

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.scene.store.close())
        self.runner.close()

    def allowed(self, work: Any) -> None:
        """A refusal is a fine answer; a broken book is not."""
        try:
            self.run(work)
        except NotAllowed:
            return

    @initialize(items=st.integers(2, 4), claimed=st.integers(1, 3))
    def begin(self, items: int, claimed: int) -> None:
        """Most steps need something to be there."""
        self.submit(items, True, None)
        self.claim(claimed, "w1")

    @rule(items=st.integers(1, 4), last=st.booleans(), deadline=st.sampled_from([None, 20_000]))
    def submit(self, items: int, last: bool, deadline: int | None) -> None:
        job = self.run(self.scene.open_job(items, last, deadline_ms=deadline, job_timeout_ms=200_000))
        self.jobs.append(job.id)
        if not last:
            self.growing.append(job._replace(total=items))

    @rule(pick=PICK, items=st.integers(0, 2))
    def add_and_seal(self, pick: int, items: int) -> None:
        if self.growing:
            job = self.growing.pop(pick % len(self.growing))
            more = chunk(job.total, items, last=True) if items else Chunk(job.total, (), "", last=True)
            self.allowed(self.scene.store.submissions.add_items("echo", job, more))

    @rule(items=st.integers(1, 4), worker=WORKERS)
    def claim(self, items: int, worker: str) -> None:
        self.held += self.run(self.scene.claim(items, worker))

    @rule(at_once=st.booleans())
    def add_up_counts(self, at_once: bool) -> None:
        self.run(self.scene.store.counters.add_up(at_once))
        self.run(self.scene.store.counters.add_up_forgotten())

    @rule(worker=WORKERS)
    def poll(self, worker: str) -> None:
        self.held += self.run(self.scene.store.items.poll("echo", "account-1", 3, worker, LEASE_MS)).items

    @rule(worker=WORKERS, askable=st.booleans())
    def rescue(self, worker: str, askable: bool) -> None:
        self.held += self.run(self.scene.store.items.rescue("echo", askable, 3, worker, LEASE_MS)).items

    @rule(pick=PICK, outcome=OUTCOMES, polled=POLLED, askable=st.booleans(), once=st.booleans(), keep=st.booleans())
    def settle(self, pick: int, outcome: Any, polled: Any, askable: bool, once: bool, keep: bool) -> None:
        """By whoever ever held the item, at the right time or far too late, perhaps twice."""
        if self.held:
            index = pick % len(self.held)
            item = self.held[index] if keep else self.held.pop(index)
            said = polled if item.state == "processing" else outcome
            delivery = Delivery.AT_MOST_ONCE if once else Delivery.AT_LEAST_ONCE
            self.run(self.scene.settle(item, said, askable=askable, delivery=delivery))

    @rule(outcome=st.sampled_from([Succeeded('"late"'), Submitted("task", "account-1"), HandedBack("late")]))
    def sleep_through_the_lease(self, outcome: Any) -> None:
        """A holder wakes when another has its item, and settles it all the same."""
        sleeping = self.run(self.scene.claim(2, "w1"))
        self.advance(250)
        for askable in (True, False):
            self.rescue("w2", askable)
        for item in sleeping:
            self.run(self.scene.settle(item, outcome))

    @rule(picks=st.lists(st.tuples(PICK, OUTCOMES, POLLED), min_size=2, max_size=5))
    def settle_group(self, picks: list[tuple[int, Any, Any]]) -> None:
        chosen = {pick % len(self.held): (outcome, polled) for pick, outcome, polled in picks if self.held}
        group = []
        for index, (outcome, polled) in chosen.items():
            item = self.held[index]
            group.append(decided(item, polled if item.state == "processing" else outcome, self.site.clock.ms))
        self.run(self.scene.store.items.settle(group))

    @rule(worker=WORKERS)
    def extend(self, worker: str) -> None:
        leases = [(item.id, item.fence) for item in self.held]
        self.run(self.scene.store.items.extend(leases, LEASE_MS, worker))
        self.run(self.scene.store.items.extend_polls(leases, LEASE_MS))
        self.run(self.scene.store.items.report_progress([(*lease, 50) for lease in leases]))

    @rule(seconds=st.sampled_from([0.5, 3, 30, 100, 250]))
    def advance(self, seconds: float) -> None:
        self.run(self.site.advance(seconds))

    @rule()
    def sweep(self) -> None:
        store = self.scene.store
        self.run(store.sweeps.stop_overdue())
        self.run(store.sweeps.expire())
        for job_id, reason in self.run(store.sweeps.stopped_jobs()):
            self.run(store.sweeps.end_stopped(job_id, reason))
        for job_id in self.run(store.jobs.paused_jobs()):
            self.run(store.jobs.park(job_id))

    @rule(pick=PICK, verb=st.sampled_from(["pause", "resume", "cancel", "retry"]))
    def act(self, pick: int, verb: str) -> None:
        if self.jobs:
            self.allowed(getattr(self.scene.store.jobs, verb)(self.jobs[pick % len(self.jobs)], "ann"))


def play(make_site: Callable[[], Site], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: AnyOrder(make_site),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,  # every time other steps; those that broke something are printed
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(("examples", "steps"), [(20, 30), pytest.param(1_000, 60, marks=pytest.mark.storm)])
def test_the_books_stay_right_on_sqlite(sqlite_template: Path, examples: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:

        def fresh() -> Site:
            path = Path(tempfile.mkdtemp(dir=folder)) / "backstay.db"
            return Site(sqlite_url(Path(shutil.copy(sqlite_template, path))), Ticker())

        play(fresh, examples, steps)


@pytest.mark.parametrize(("examples", "steps"), [(4, 30), pytest.param(200, 60, marks=pytest.mark.storm)])
def test_the_books_stay_right_on_postgres(reused_postgres_url: str, examples: int, steps: int) -> None:
    play(lambda: Site(reused_postgres_url, Ticker()), examples, steps)
