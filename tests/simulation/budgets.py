"""A world of budgets: handlers that declare their cost, two owners, people who set, raise and remove budgets meanwhile,
and a provider with its own books.

It begins shortly before the end of January, so that a day and a month turn over while it lasts.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

from typing_extensions import override

from backstay import Context
from backstay.client import Client, Options
from backstay.core.ids import show_item
from backstay.core.money import Period, period_of
from backstay.handlers.function import dump
from backstay.handlers.handler import CallLimits, Rules, Weighed
from backstay.observe.bus import Bus
from backstay.store.store import Store
from backstay.testing import Chances
from tests.simulation import verdict
from tests.simulation.plan import LIMITS, Faults, Kind, Plan
from tests.simulation.trace import Trace
from tests.simulation.watch import Broken, Watch
from tests.simulation.work import Work
from tests.simulation.world import LOOK_SECONDS, Failure, World

CENT = 10_000
MONTH_SECONDS = 31 * 86_400.0
TURN_SECONDS = 40.0  # after the start
ENDED_SECONDS = 70.0  # after that everything has ended, well before an item is so old that it fails of its age
OWNERS = ("ann", "bob")
PAGES = 3  # the most that an item has
HANDLERS = {
    "number": Kind("number"),
    "function": Kind("function", can_find=True),
    "reported": Kind("reported", deduplicates=True),
    "task": Kind("task", is_task=True, can_find=True),
}


class BudgetKey(NamedTuple):
    owner: str
    handler: str
    period: Period

    def covers(self, charged: "Charged") -> bool:
        return self.owner in ("", charged.owner) and self.handler in ("", charged.handler)


class Act(NamedTuple):
    """A person sets a budget, or removes it: None."""

    at: float
    key: BudgetKey
    micros: int | None


class PlannedJob(NamedTuple):
    owner: str
    handler: str
    pages: tuple[int, ...]  # of each item
    micros: int | None = None  # the job's own budget
    weighed: bool = True  # its items are stored with their cost; otherwise the worker asks its handler


@dataclass
class BudgetPlan(Plan):
    planned: list[PlannedJob] = field(default_factory=list)
    budgets: list[Act] = field(default_factory=list)
    raise_seconds: float | None = 60.0  # after the start: from here on money is no reason to wait
    compares: bool = True  # the sums in the database, after every transaction


def budget_plan(seed: int) -> BudgetPlan:
    rng = Random(f"budgets {seed}")
    plan = BudgetPlan(f"budgets {seed}", [HANDLERS[name] for name in rng.sample(sorted(HANDLERS), rng.randint(2, 4))])
    plan.planned = [_job(plan, rng) for _ in range(rng.randint(2, 4))]
    plan.budgets = _budgets(plan, rng)
    plan.processes = [_faults(rng) for _ in range(rng.randint(2, 3))]
    plan.weather = Chances(
        broken=rng.choice([0, 0.1]),
        refused=rng.choice([0, 0.05]),
        lost=rng.choice([0, 0.2]),
        hanging=rng.choice([0, 0.1]),
        arrives_seconds_max=rng.choice([0, 3.0]),
    )
    plan.answers_lost = rng.choice([0, 0.05])
    plan.visible_after_seconds = rng.choice([0, 0.5])
    plan.dawdles = rng.choice([0, 0.3])
    plan.acts = [(rng.uniform(1, 20), "cancel")] if rng.random() < 0.25 else []
    return plan


def _job(plan: Plan, rng: Random) -> PlannedJob:
    pages = tuple(rng.randint(1, PAGES) for _ in range(rng.randint(3, 6)))
    own = rng.choice([None, None, rng.randint(PAGES, 12) * CENT])
    return PlannedJob(
        rng.choice(OWNERS), rng.choice(plan.kinds).name, pages, own, own is not None or rng.random() < 0.6
    )


def _budgets(plan: Plan, rng: Random) -> list[Act]:
    acts = []
    for _ in range(rng.randint(2, 4)):
        handler = rng.choice(["", rng.choice(plan.kinds).name])
        key = BudgetKey(rng.choice(["", *OWNERS]), handler, rng.choice(list(Period)))
        micros = rng.randint(0, 15) * CENT
        acts.append(Act(rng.choice([0.0, 0.0, rng.uniform(0.5, 20)]), key, micros))
        if rng.random() < 0.6:
            act = rng.choice([None, micros + rng.randint(1, 15) * CENT])
            acts.append(Act(rng.uniform(20, 50), key, act))
    return sorted(acts, key=lambda act: act.at)


def _faults(rng: Random) -> Faults:
    what = rng.random()
    if what < 0.4:
        return Faults(kill_at=rng.randint(1, 400))
    if what < 0.6:
        return Faults(freeze_at=rng.randint(1, 400), freeze_seconds=rng.choice([4.0, 12.0]))
    return Faults(stop_at=rng.uniform(1, 20)) if what < 0.7 else Faults()


def struck(step: int, what: str = "kill") -> BudgetPlan:
    """Two workers, two owners, one budget over both that allows two calls at a time; one worker is struck at a step."""
    kinds = [HANDLERS["number"], HANDLERS["reported"]]
    faults = Faults(kill_at=step) if what == "kill" else Faults(freeze_at=step, freeze_seconds=12.0)
    plan = BudgetPlan(f"{what} {step}", kinds, processes=[faults, Faults()], weather=Chances(latency_seconds=0.3))
    plan.planned = [PlannedJob("ann", "number", (1, 2, 3)), PlannedJob("bob", "reported", (2, 1, 3))]
    plan.budgets = [Act(0.0, BudgetKey("", "", Period.TOTAL), 9 * CENT)]
    plan.faults_seconds, plan.raise_seconds = 2.0, 4.0
    return plan


def turning(period: Period) -> BudgetPlan:
    """Nobody raises the budget: the half that does not fit waits for the next period, and bob waits for nothing."""
    plan = BudgetPlan(f"turn of the {period}", [HANDLERS["number"]], processes=[Faults(), Faults()])
    plan.raise_seconds = None
    plan.planned = [PlannedJob(owner, "number", (1,) * 6) for owner in OWNERS]
    plan.budgets = [Act(0.0, BudgetKey("ann", "", period), 3 * PAGES * CENT)]
    return plan


class PaidWork(Work):
    """A payload is `number of the job.position.pages`, and a page costs a cent."""

    @override
    def rules(self) -> Rules:
        cost = _dollars if self.kind.name == "function" else PAGES * CENT
        return replace(super().rules(), calls=CallLimits(cost=cost))

    def price(self, payload: str) -> int:
        """What the provider really takes."""
        exact = self.kind.name in ("function", "reported")
        return pages_of(payload) * CENT if exact else PAGES * CENT

    @override
    async def run(self, payload: Any, context: Context, send: Callable[..., Any]) -> Any:
        value = await super().run(payload, context, send)
        if self.kind.name == "reported":
            context.usage(cost_micros=self.price(payload))
        return value


def _weighed(calls: CallLimits, item: Any) -> Weighed:
    return Weighed(dump(item), *calls.weigh(dump(item)))


def pages_of(payload: str) -> int:
    return int(payload.rpartition(".")[2])


def _dollars(payload: str) -> float:
    return pages_of(payload) / 100


class Charged(NamedTuple):
    at_ms: int
    job: int
    owner: str
    handler: str
    micros: int


@dataclass
class Ceiling:
    since_ms: int
    micros: int


class Ledger:
    """The provider's own count of money, against what people allowed."""

    def __init__(self) -> None:
        self.charges: list[Charged] = []
        self.ceilings: dict[BudgetKey, Ceiling] = {}
        self.jobs: dict[int, int] = {}  # the budgets of single jobs

    def allow(self, key: BudgetKey, now_ms: int, micros: int, under_way: int) -> None:
        """What was sent before a budget was set is nobody's fault."""
        known = self.ceilings.get(key)
        if known is None:
            self.ceilings[key] = Ceiling(now_ms, max(micros, under_way))
        else:
            known.micros = max(known.micros, micros)

    def charge(self, charged: Charged) -> list[str]:
        """What is wrong after one more charge."""
        self.charges.append(charged)
        found = []
        for key, ceiling in self.ceilings.items():
            if key.covers(charged):
                since = max(ceiling.since_ms, period_of(key.period, charged.at_ms)[0])
                paid = sum(one.micros for one in self.charges if one.at_ms >= since and key.covers(one))
                if paid > ceiling.micros:
                    found.append(f"the provider took {paid} under a budget of {ceiling.micros}: {key}")
        paid = sum(one.micros for one in self.charges if one.job == charged.job)
        if paid > self.jobs.get(charged.job, paid):
            found.append(f"the provider took {paid} for job {charged.job}, which may spend {self.jobs[charged.job]}")
        return found


class BudgetWatch(Watch):
    """After every transaction, what is set aside in each budget is what its jobs have set aside, and their items."""

    @override
    def committed(self) -> None:
        changed = self._connection.total_changes != self._changes
        super().committed()
        if changed:
            for what, sums in (("budget", _OF_BUDGETS), ("job", _OF_JOBS)):
                for subject, kept, summed in self._connection.execute(sums):
                    raise self.wrong(f"{what} {subject} has {kept} set aside, but what it covers has {summed}")


_OF_BUDGETS = """
SELECT budgets.id, budgets.reserved_micros, coalesce(sum(jobs.reserved_micros), 0) AS summed
FROM budgets LEFT JOIN jobs ON budgets.owner IN ('', jobs.owner) AND budgets.handler IN ('', jobs.handler)
GROUP BY budgets.id HAVING budgets.reserved_micros <> summed"""
_OF_JOBS = """
SELECT jobs.id, jobs.reserved_micros, coalesce(sum(items.reserved_micros), 0) AS summed
FROM jobs LEFT JOIN items ON items.job_id = jobs.id AND items.finished_at IS NULL
GROUP BY jobs.id HAVING jobs.reserved_micros <> summed"""
_BOOKED = """
SELECT budgets.owner, budgets.handler, period, used_micros, coalesce(sum(spent_micros + unknown_micros), 0) AS summed
FROM budgets LEFT JOIN jobs ON budgets.owner IN ('', jobs.owner) AND budgets.handler IN ('', jobs.handler)
WHERE period = 'total' GROUP BY budgets.id HAVING used_micros <> summed"""
_ASIDE = "SELECT '{0} ' || id FROM {0}s WHERE reserved_micros <> 0"
_WITHOUT_REASON = """
SELECT items.id, items.state, items.error_code, attempts.message FROM items LEFT JOIN attempts
ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.state NOT IN ('succeeded', 'cancelled') AND (items.state <> 'failed' OR items.error_code IS NULL
     OR attempts.message IS NULL)"""


class BudgetWorld(World):
    def __init__(self, plan: BudgetPlan) -> None:
        super().__init__(plan)
        self.told = plan
        self.ledger = Ledger()
        self.clock.seconds = MONTH_SECONDS - TURN_SECONDS
        self.begun = self.clock.monotonic()
        if plan.compares:
            self.watch = BudgetWatch(self.database.connection)
            for work in self.works:
                work._wrong = self.watch.wrong
        self.store = Store(self.database)
        self.first = {act.key for act in plan.budgets if not act.at}  # they were there before any job
        self.waiting: list[int] = []  # jobs that had not ended before the period turned and anything was raised

    @override
    def _make_work(self, *given: Any) -> Work:
        return PaidWork(*given)

    @override
    def _provider_told(self, kind: Kind, act: str, ref: str) -> None:
        super()._provider_told(kind, act, ref)
        if act == "billed":
            work = next(work for work in self.works if work.kind == kind)
            payload = work.provider.bill[-1].payload
            number = int(payload.partition(".")[0])
            micros = work.price(payload) if isinstance(work, PaidWork) else 0
            charged = Charged(self.clock.now_ms(), number, self.told.planned[number].owner, kind.name, micros)
            for wrong in self.ledger.charge(charged):
                self.watch.wrong(wrong)

    # people

    @override
    async def _submit(self) -> None:
        rules = {work.kind.name: work.rules().calls for work in self.works}
        for number, job in enumerate(self.told.planned):
            client = Client(self.store, job.owner, LIMITS, self.clock, Bus())
            items = [f"{number}.{at}.{pages}" for at, pages in enumerate(job.pages)]
            body: Callable[[Any], Any] = dump
            if job.weighed:
                calls = rules[job.handler]
                body = partial(_weighed, calls)
            told = Options(budget_micros=job.micros)
            self.jobs.append(await client.submit(job.handler, items, told, body, lambda: None))
            if job.micros is not None:
                self.ledger.jobs[number] = job.micros
        self.watch.committed()

    async def _change(self, act: Act) -> None:
        """Sets, raises or removes a budget. One that is there is never lowered."""
        self.trace.say("people", f"{act.key} {act.micros}")
        known = self.ledger.ceilings.get(act.key)
        if act.micros is None and known is not None:
            del self.ledger.ceilings[act.key]
            self.first.discard(act.key)
            await self.store.budgets.remove(*act.key)
            self.trace.reached("a budget was removed")
        elif act.micros is not None:
            micros = act.micros if known is None else max(act.micros, known.micros)
            self.trace.reached("a budget was set" if known is None else "a budget was raised")
            made = await self.store.budgets.set(*act.key, micros)
            self.ledger.allow(act.key, self.clock.now_ms(), micros, made.reserved_micros)
        with suppress(Broken):  # it is noted
            self.watch.committed()

    async def _until(self, seconds: float) -> None:
        await self.clock.sleep(max(self.begun + seconds - self.clock.monotonic(), 0))

    async def _spend(self) -> None:
        for act in self.told.budgets:
            if act.at:
                await self._until(act.at)
                await self._change(act)

    @override
    async def _run(self) -> None:
        for act in self.told.budgets:
            if not act.at:
                await self._change(act)
        await self._submit()
        for number, faults in enumerate(self.told.processes, 1):
            self.worker(f"worker-{number}", faults)
        people = self.loop.create_task(self._people())
        spending = self.loop.create_task(self._spend())
        await self._until(self.told.faults_seconds)  # which ends before the period does
        self._note_waits()
        self.calm_down()
        self.worker("healer", Faults())
        await spending
        await people
        if self.told.raise_seconds is not None:
            await self._until(self.told.raise_seconds)
            await self._raise_all()
        await self._end()

    def _note_waits(self) -> None:
        rows = self.database.connection.execute("SELECT id, short FROM jobs WHERE finished_at IS NULL").fetchall()
        self.waiting = [job for job, _ in rows]
        self.trace.probes["a job waits for money"] += any(short for _, short in rows)

    async def _raise_all(self) -> None:
        for key in list(self.ledger.ceilings):
            await self._change(Act(0.0, key, 1_000 * CENT))
        for number in list(self.ledger.jobs):
            del self.ledger.jobs[number]
            await self.store.jobs.change_budget(self.jobs[number].id, self.told.planned[number].owner, None)

    @override
    async def _end(self) -> None:
        bound = self.clock.monotonic() + ENDED_SECONDS
        while not verdict.ended(self.database.connection) or any(one.frozen and one.alive for one in self.processes):
            self._stop_if_wrong()
            if self.clock.monotonic() > bound:
                raise Failure(self.plan.seed, verdict.stuck(self.database.connection), self.trace)
            await self.clock.sleep(LOOK_SECONDS)
        await self.clock.sleep(LIMITS.lease_seconds)

    # the promises

    @override
    def _wrongs(self) -> list[str]:
        """Everything has ended: nothing is set aside, all that was used is booked, and every item is done or says why
        not."""
        rows = self.database.connection.execute
        found = super()._wrongs()
        found += [f"{one} has money set aside" for what in ("job", "budget") for (one,) in rows(_ASIDE.format(what))]
        booked = [row for row in rows(_BOOKED).fetchall() if BudgetKey(*row[:3]) in self.first]
        found += [f"the budget {row[:3]} has {row[3]} used, but its jobs {row[4]}" for row in booked]
        silent = [(show_item(row[0]), *row[1:]) for row in rows(_WITHOUT_REASON).fetchall()]
        found += [f"these ended without a reason: {silent}"] if silent else []
        return found


def run_budgets(plan: BudgetPlan) -> Trace:
    return BudgetWorld(plan).run()
