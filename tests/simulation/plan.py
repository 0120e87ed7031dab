"""What a seed stands for: the provider, the processes, the weather, the faults and what people do."""

from dataclasses import dataclass, field
from random import Random

from backstay import BreakerPolicy, Limits
from backstay.core.models import Delivery
from backstay.testing import Chances

FAULTS_SECONDS = 30.0  # after this nothing new goes wrong
BOUND_SECONDS = 240.0  # within this after the faults, every item has ended
GOOD_SECONDS = 100.0  # within this after the faults, every item that is not poison has, whatever the others do
POISON = ("500", "403", "hang", "kill")  # what an item may do whenever it is called: the last kills its worker
LIMITS = Limits(
    lease_seconds=3,
    heartbeat_seconds=1,
    send_guard_seconds=1,
    call_timeout_seconds=4,
    call_retries_max=1,
    handler_timeout_seconds=8,
    visibility_lag_seconds=1,
    reconcile_margin_seconds=1,
    poll_interval_seconds=1,
    shutdown_seconds=3,
    cancel_grace_seconds=6,
    late_result_seconds=60,
    invocation_seconds=20,
    item_timeout_seconds=150,
    tick_concurrency=4,
)
RECONCILE_SECONDS = 1 + 8 + 1 + 1
BREAKER = BreakerPolicy(
    window_calls=8, calls_min=4, fail_ratio=0.5, open_ms=3_000, open_ms_max=12_000, probes_max=2, window_ms=30_000
)
LONGEST_FREEZE_SECONDS = 60.0


@dataclass(frozen=True)
class Kind:
    """A class of provider, and what it promises about money."""

    name: str
    is_task: bool = False
    can_find: bool = False
    deduplicates: bool = False
    delivery: Delivery = Delivery.AT_LEAST_ONCE

    @property
    def pays_once(self) -> bool:
        return self.can_find or self.deduplicates


KINDS = {
    kind.name: kind
    for kind in (
        Kind("call_at_least_once"),
        Kind("call_at_most_once", delivery=Delivery.AT_MOST_ONCE),
        Kind("call_with_find", can_find=True),
        Kind("call_with_key", deduplicates=True),
        Kind("task_with_find", is_task=True, can_find=True),
        Kind("task_without_find", is_task=True),
        Kind("task_at_most_once", is_task=True, delivery=Delivery.AT_MOST_ONCE),
    )
}
CALM = Chances(latency_seconds=0.5)


@dataclass
class Faults:
    """What befalls one process. Steps count its suspension points."""

    kill_at: int | None = None
    freeze_at: int | None = None
    freeze_seconds: float = 0.0
    cut_off_at: float | None = None  # from the database; the provider can still be reached
    cut_off_seconds: float = 0.0
    stop_at: float | None = None  # a polite shutdown
    stop_step: int | None = None  # the same, at a suspension point, and without grace
    cancel_step: int | None = None  # a person cancels a job at this suspension point


@dataclass
class Plan:
    seed: str
    kinds: list[Kind]
    items: int = 4
    jobs: int = 1
    ticks: bool = False
    processes: list[Faults] = field(default_factory=list)
    weather: Chances = CALM
    find_fails: float = 0.0
    task_fails: float = 0.0
    visible_after_seconds: float = 0.0
    answers_lost: float = 0.0  # the chance that a committed transaction's answer is lost
    database_slow: float = 0.0
    dawdles: float = 0.0  # the chance that a handler waits before it sends
    acts: list[tuple[float, str]] = field(default_factory=list)
    deadline_seconds: float | None = None
    faults_seconds: float = FAULTS_SECONDS
    concurrency: int | None = None
    hints: bool = False  # workers are given hints, by a careless post
    poison: dict[str, str] = field(default_factory=dict)  # payload -> what it does
    after: str | None = None  # every job is followed by one that takes these of its results: succeeded or all
    fallback: bool = False  # the second kind is the fallback of the first
    submitters: int = 1  # so many people submit the same unique job, and overlapping items


def plan_of(seed: int) -> Plan:
    rng = Random(f"plan {seed}")
    plan = Plan(str(seed), [KINDS[name] for name in rng.sample(sorted(KINDS), rng.choice([1, 1, 2]))])
    plan.items = rng.randint(2, 7)
    plan.jobs = rng.choice([1, 1, 2])
    plan.ticks = rng.random() < 0.25
    plan.processes = [_faults(rng) for _ in range(rng.randint(1, 3))]
    plan.weather = _weather(rng)
    plan.find_fails = rng.choice([0, 0, 0.3])
    plan.task_fails = rng.choice([0, 0.2])
    plan.visible_after_seconds = rng.choice([0, 0.5, 1.5])
    plan.answers_lost = rng.choice([0, 0, 0.02, 0.1])
    plan.database_slow = rng.choice([0, 0, 0.05])
    plan.dawdles = rng.choice([0, 0.3])
    plan.acts = _acts(rng) if rng.random() < 0.4 else []
    plan.deadline_seconds = rng.choice([None, None, None, 20.0])
    plan.concurrency = rng.choice([None, 1, 2])
    if rng.random() < 0.15:
        _outlive_leases(plan, rng)
    plan.hints = not plan.ticks and rng.random() < 0.4
    if rng.random() < 0.3:
        _poison(plan, rng)
    _follow(plan, rng)
    return plan


def _follow(plan: Plan, rng: Random) -> None:
    """What jobs have to do with each other and with those submitted before."""
    what = rng.random()
    if what < 0.12:
        plan.after = rng.choice(["succeeded", "all"])
    elif what < 0.24:
        _fall_back(plan, rng)
    elif what < 0.36:
        plan.submitters = rng.randint(2, 4)


def _fall_back(plan: Plan, rng: Random) -> None:
    calls = sorted(name for name, kind in KINDS.items() if not kind.is_task)
    plan.kinds = [KINDS[name] for name in rng.sample(calls, 2)]
    plan.fallback = True


def following(seed: int) -> Plan:
    """A stormy world in which jobs follow others, fall back, or are submitted by several people at once."""
    plan = stormy(seed)
    rng = Random(f"following {seed}")
    plan.seed = f"following {seed}"
    match seed % 3:
        case 0:
            plan.after = rng.choice(["succeeded", "all"])
            plan.acts = [(rng.uniform(0.5, 6), "cancel")] if seed % 2 else []
        case 1:
            _fall_back(plan, rng)
            plan.weather = Chances(lost=0.4, broken=0.4)
            plan.processes = [Faults()]
        case _:
            plan.submitters, plan.answers_lost = 3, 0.2
    return plan


def _poison(plan: Plan, rng: Random) -> None:
    """A few bad items among more good ones."""
    plan.items = rng.randint(5, 9)
    for position in rng.sample(range(plan.items), rng.choice([1, 2])):
        plan.poison[f"{rng.randrange(plan.jobs)}.{position}"] = rng.choice(POISON)


def _outlive_leases(plan: Plan, rng: Random) -> None:
    """Calls that take longer than a lease, made by a process that cannot reach the database to extend it."""
    plan.ticks, plan.acts, plan.deadline_seconds = False, [], None
    plan.kinds = [KINDS[rng.choice(["call_at_least_once", "call_at_most_once", "call_with_key"])]]
    plan.weather = Chances(slow=0.9, slow_seconds=7.8)
    plan.processes = [Faults(cut_off_at=rng.uniform(0.3, 1), cut_off_seconds=rng.uniform(4, 6)), Faults()]


def _weather(rng: Random) -> Chances:
    if rng.random() < 0.2:
        return Chances(broken=0.9)
    return Chances(
        broken=rng.choice([0, 0.1, 0.3]),
        throttled=rng.choice([0, 0.1]),
        refused=rng.choice([0, 0.05]),
        lost=rng.choice([0, 0.1, 0.3]),
        hanging=rng.choice([0, 0.1]),
        slow=rng.choice([0, 0.2, 0.5]),
        slow_seconds=rng.choice([3.9, 7.5]),
        arrives_seconds_max=rng.choice([0, 1.0, LIMITS.call_timeout_seconds]),
    )


def _faults(rng: Random) -> Faults:
    faults = Faults()
    what = rng.random()
    if what < 0.3:
        faults.kill_at = rng.randint(1, 600)
    elif what < 0.7:
        faults.freeze_at = rng.randint(1, 600)
        faults.freeze_seconds = rng.choice([LIMITS.lease_seconds + 1, 6.0, RECONCILE_SECONDS + 1, 40.0])
    elif what < 0.8:
        faults.stop_at = rng.uniform(1, 20)
    if rng.random() < 0.35:
        faults.cut_off_at = rng.uniform(0, 10)
        faults.cut_off_seconds = rng.uniform(3, 9)
    return faults


def _acts(rng: Random) -> list[tuple[float, str]]:
    words = [rng.choice(["pause", "resume", "retry", "retry", "cancel"]) for _ in range(rng.randint(1, 5))]
    return sorted((rng.uniform(0.5, FAULTS_SECONDS), word) for word in words)


def poisoned(seed: int) -> Plan:
    """A calm world but for two items that always fail among six good ones."""
    plan = Plan(f"poison {seed}", [KINDS["call_at_least_once"]], items=8, processes=[Faults()], faults_seconds=1.0)
    kind = POISON[seed % len(POISON)]
    plan.poison = {f"0.{position}": kind for position in (seed % 5, 7)}
    return plan


def stormy(seed: int) -> Plan:
    """A world of lost processes and requests that arrive late: where safeguards are needed most."""
    rng = Random(f"storm {seed}")
    plan = Plan(f"storm {seed}", [KINDS[sorted(KINDS)[seed % len(KINDS)]]], items=6)
    plan.weather = Chances(lost=0.2, hanging=0.2, slow=0.2, slow_seconds=3.9, arrives_seconds_max=4.0, broken=0.1)
    plan.processes = [_struck(rng) for _ in range(3)]
    plan.visible_after_seconds = 1.5
    plan.dawdles = 0.3
    plan.answers_lost = rng.choice([0, 0.05])
    plan.hints = seed % 2 == 1
    return plan


def _struck(rng: Random) -> Faults:
    step = rng.randint(5, 120)
    if rng.random() < 0.5:
        return Faults(kill_at=step)
    return Faults(freeze_at=step, freeze_seconds=rng.choice([4.0, 9.0, 20.0]))
