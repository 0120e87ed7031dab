"""What every part of the engine shares: the store, the handlers, the bounds, time, chance and the bus."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from backstay.clock import Clock, Tasks
from backstay.core.events import Event, Trouble
from backstay.core.limits import Limits, reconcile_after_ms
from backstay.core.measures import MeasureSource, Sums
from backstay.core.models import Claimed, Delivery, JobTerms
from backstay.core.outcomes import Terms
from backstay.core.retry import NAMED, RetryPolicy
from backstay.engine.first_replies import FirstReplies
from backstay.handlers.handler import Handler, Rules
from backstay.handlers.registry import Registry
from backstay.handlers.task import TaskHandler
from backstay.observe.bus import Bus
from backstay.store.store import Store

JOBS_REMEMBERED_MAX = 10_000


class Plan(NamedTuple):
    """How the items of one job are run and settled: its handler's rules, overridden by its own."""

    handler: Handler
    job: JobTerms
    terms: Terms
    run_seconds: float
    source: MeasureSource  # as what its calls are measured


class Refusal(NamedTuple):
    """What the database refuses: since when and when last, on the steady clock, and in what words."""

    since: float
    last: float
    message: str


@dataclass(slots=True)
class Parts:
    store: Store
    registry: Registry
    limits: Limits
    clock: Clock
    rng: Random
    tasks: Tasks
    bus: Bus
    worker: str  # this incarnation's name
    place: str = ""  # where its process's number is good; empty: nobody can tell whether it lives
    policies: Mapping[str, RetryPolicy] = field(
        default_factory=lambda: NAMED
    )  # what a job's choice of retry means here
    only_job: int | None = None  # the one job whose items it sends; lost ones of any job are rescued and polled
    trial: FirstReplies | None = None  # judges the first replies, if no item is to fail because of them
    refusals: dict[str, Refusal] = field(default_factory=dict)  # by who asked in vain, and has not yet been answered
    sums: Sums = field(default_factory=Sums)  # what was measured here and is not yet written
    _jobs: dict[int, JobTerms] = field(default_factory=dict)
    _older: dict[int, JobTerms] = field(default_factory=dict)
    _plans: dict[tuple[int, str], Plan] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        self.bus.emit(event)

    def note_refusal(self, where: str, message: str) -> None:
        """Tells of a refusal, and keeps it until it is `accepted` there."""
        now = self.clock.monotonic()
        before = self.refusals.get(where)
        trouble = Trouble(where, message)
        self.refusals[where] = Refusal(now if before is None else before.since, now, trouble.message)
        self.emit(trouble)

    def note_success(self, where: str) -> None:
        self.refusals.pop(where, None)

    def known_jobs(self) -> Collection[int]:
        """The jobs whose terms are known; they never change.

        Forgets old ones rather than growing without bound, but a generation late: someone may just be at work on them.
        """
        if len(self._jobs) > JOBS_REMEMBERED_MAX:
            self._older, self._jobs = self._jobs, {}
            self._plans.clear()
        return self._jobs.keys()

    def remember(self, jobs: Iterable[JobTerms]) -> None:
        self._jobs.update((job.id, job) for job in jobs)

    def plan(self, item: Claimed) -> Plan:
        """The plan of an item just taken; the items of a job that have one handler have one plan."""
        plan = self._plans.get((item.job_id, item.handler))
        if plan is None:
            job = self._jobs.get(item.job_id) or self._older[item.job_id]
            plan = self._plans[item.job_id, item.handler] = self._make_plan(self.registry[item.handler], job)
        return plan

    def _make_plan(self, handler: Handler, job: JobTerms) -> Plan:
        rules = handler.rules
        terms = Terms(
            policy=rules.retry if job.retry is None else self.policies[job.retry],
            delivery=rules.delivery if job.delivery is None else Delivery(job.delivery),
            limits=self._limits_of(rules),
            askable=handler.askable,
        )
        source = MeasureSource(job.owner, handler.name, handler.provider)
        return Plan(handler, job, terms, self.run_seconds(handler), source)

    def _limits_of(self, rules: Rules) -> Limits:
        if rules.item_timeout_seconds is None:
            return self.limits
        return replace(self.limits, item_timeout_seconds=rules.item_timeout_seconds)

    @property
    def lease_ms(self) -> int:
        return self.limits.lease_ms

    def run_seconds(self, handler: Handler) -> float:
        """How long one run of a handler may take. A task's run is one call; a function's is all it does.

        A run that can be asked about is short enough for its item to be taken up in time after a crash.
        """
        if handler.rules.timeout_seconds is not None:
            return handler.rules.timeout_seconds
        limits = self.limits
        seconds = limits.call_timeout_seconds if isinstance(handler, TaskHandler) else limits.handler_timeout_seconds
        return min(seconds, limits.submitting_seconds - limits.around_seconds) if handler.askable else seconds

    def reconcile_ms(self, handler: Handler) -> int:
        """How long after a claim a request sent under it may still turn up at the provider."""
        return reconcile_after_ms(self.limits, self.run_seconds(handler))
