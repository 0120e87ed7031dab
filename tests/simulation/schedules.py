"""A world of schedules: workers and ticks that fire them, are killed, frozen and cut off, and people who pause them.

Workers run the scheduler alone, and look once a minute instead of once a second: so a week takes seconds. Ticks are
whole.
"""

from contextvars import Context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from backstay.clock import Tasks, cron
from backstay.core.errors import BackstayError, DatabaseUnreachable
from backstay.core.models import MissedPolicy, NewSchedule
from backstay.engine.engine import Engine
from backstay.engine.parts import Parts
from backstay.engine.tick import Tick
from backstay.handlers.function import FunctionHandler, Registry
from backstay.handlers.handler import Rules
from backstay.observe.bus import Bus
from backstay.store.store import Store
from backstay.testing import InlineSQLite
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.plan import LIMITS
from tests.simulation.trace import Trace
from tests.simulation.watch import Line, Watch, WatchedDatabase
from tests.simulation.world import Failure

OWNER = "people"
LOOK_SECONDS = 60.0
REST_SECONDS = 3_600.0  # after the faults: a healthy worker makes up for what was missed
SCHEDULES = (
    NewSchedule("all", "work", "*/3 * * * *", missed=MissedPolicy.ALL),
    NewSchedule("once", "work", "*/7 * * * *", "Europe/Berlin"),
    NewSchedule("skip", "work", "*/20 * * * *", "America/New_York", missed=MissedPolicy.SKIP),
    NewSchedule("daily", "work", "30 2 * * *", "Europe/Berlin", missed=MissedPolicy.ALL),
    NewSchedule("paused", "work", "*/5 * * * *", missed=MissedPolicy.ALL),
    NewSchedule("broken", "work", "* * * * *", payload="[]"),
)


@dataclass
class SchedulePlan:
    seed: str
    minutes: int = 240
    workers: int = 3
    tick_minutes: int | None = None
    kills: float = 0.0  # for each process and hour, how many
    freezes: float = 0.0
    answers_lost: float = 0.0
    cuts: float = 0.0
    pauses: list[tuple[float, float]] = field(default_factory=list)  # from and to, in seconds, one after the other
    watched: bool = True  # every item after every commit: too much for a long story
    kill_at: int | None = None  # of the first worker: this step
    freeze_at: int | None = None


def schedule_plan(seed: int) -> SchedulePlan:
    rng = Random(f"schedules {seed}")
    plan = SchedulePlan(f"schedules {seed}", workers=rng.randint(1, 4), tick_minutes=rng.choice([None, 5, 20]))
    plan.kills, plan.freezes = rng.choice([0, 1, 4]), rng.choice([0, 0.5, 2])
    plan.answers_lost, plan.cuts = rng.choice([0, 0.05, 0.2]), rng.choice([0, 0.5])
    plan.pauses = pauses_in(plan.minutes * 60, rng.choice([0, 2, 5]), rng)
    return plan


def pauses_in(seconds: float, many: int, rng: Random) -> list[tuple[float, float]]:
    moments = sorted(rng.uniform(0, seconds) for _ in range(2 * many))
    return list(zip(moments[::2], moments[1::2], strict=True))


def frozen_before_a_pause(step: int) -> SchedulePlan:
    """The only worker sleeps from one of its steps on, and wakes when its schedule has been paused meanwhile."""
    return SchedulePlan(f"asleep {step}", minutes=30, workers=1, freeze_at=step, pauses=[(302, 1_600)])


class Unwatched(Watch):
    def committed(self) -> None:
        """It does not look."""


class ScheduleWorld:
    def __init__(self, plan: SchedulePlan) -> None:
        self.plan = plan
        self.trace = Trace()
        self.rng = Random(f"world {plan.seed}")
        self.loop = SimulatedLoop(Random(f"loop {plan.seed}"), self._process_told)
        self.clock = self.loop.clock
        self.trace.clock = self.clock
        self.database = InlineSQLite(self.clock)
        self.watch = (Watch if plan.watched else Unwatched)(self.database.connection)
        self.calm = False
        self.ticks = 0
        self.first: Process | None = None
        self.spans: list[tuple[int, int]] = []  # when the schedule "paused" was paused

    def _process_told(self, process: Process, what: str) -> None:
        self.trace.say(process.name, what)
        self.trace.reached(what.split(" for ")[0])

    # processes

    def engine(self, name: str) -> Engine:
        line = Line(self.clock, Random(f"line {self.plan.seed} {name}"), self.trace.reached)
        line.deaf = 0.0 if self.calm else self.plan.answers_lost
        self._strike(line, "cuts", lambda: setattr(line, "cut", True))
        registry, bus = Registry(), Bus()
        registry.add(FunctionHandler(_work, "work", "work", Rules()))
        for new in SCHEDULES[:2]:  # these stand in the code, the others were added by hand
            registry.add_schedule(new)
        bus.subscribe(lambda event: self.trace.event(name, event))
        store = Store(WatchedDatabase(self.database, self.watch, line))
        rng = Random(f"engine {self.plan.seed} {name}")
        return Engine(Parts(store, registry, LIMITS, self.clock, rng, Tasks(), bus, name, owner=OWNER), 4)

    def _strike(self, line: Line | None, what: str, strike: Any) -> None:
        """At a time of its own, if it is so unlucky; a line that is cut is whole again some minutes later."""
        often: float = getattr(self.plan, what)
        if often and not self.calm:
            self.loop.call_later(self.rng.expovariate(often / 3_600), self._once, line, strike, context=Context())

    def _once(self, line: Line | None, strike: Any) -> None:
        if not self.calm:
            strike()
            if line is not None:
                self.loop.call_later(self.rng.uniform(60, 900), setattr, line, "cut", False, context=Context())

    def worker(self, name: str) -> Process:
        process = Process(name, self.loop)
        self._strike(None, "kills", lambda: self._kill(process))
        self._strike(None, "freezes", lambda: process.freeze(self.rng.uniform(30, 1_800)))
        process.start(self._look(name))
        return process

    def _kill(self, process: Process) -> None:
        """Between two of its next steps; someone starts another after a while."""
        process.kill_at = process.steps + self.rng.randint(1, 40)
        self.loop.call_later(self.rng.uniform(60, 600), self._respawn, process, context=Context())

    def _respawn(self, process: Process) -> None:
        process.kill()
        self.worker(f"{process.name}'")

    async def _look(self, name: str) -> None:
        scheduler, rng = self.engine(name).scheduler, Random(name)
        while True:
            idle = LOOK_SECONDS * rng.uniform(0.8, 1.2)
            try:
                due_ms = await scheduler.run_once()
                idle = idle if due_ms is None else min(idle, max(due_ms / 1000, 0.01))
            except DatabaseUnreachable:
                self.trace.say(name, "no database")
            await self.clock.sleep(idle)

    async def _trigger(self, minutes: int) -> None:
        while True:
            await self.clock.sleep(minutes * 60)
            self.ticks += 1
            process = Process(f"tick-{self.ticks}", self.loop)
            if self.plan.kills and self.rng.random() < 0.3 and not self.calm:
                process.kill_at = self.rng.randint(1, 60)
            process.start(self._tick(process.name))

    async def _tick(self, name: str) -> None:
        try:
            await Tick(self.engine(name)).run()
            self.trace.reached("a tick ran")
        except BackstayError as error:
            self.trace.say(name, f"the tick failed: {error}")

    # the course of things

    async def _people(self) -> None:
        schedules = Store(self.database).schedules
        for start, end in self.plan.pauses:
            await self.clock.sleep(max(start - self.clock.monotonic(), 0))
            paused = await schedules.pause("paused", OWNER)
            await self.clock.sleep(max(end - self.clock.monotonic(), 0))
            resumed = await schedules.resume("paused", OWNER)
            assert paused.paused_at is not None
            self.spans.append((paused.paused_at, resumed.now))

    async def _run(self) -> None:
        store, seconds = Store(self.database), self.plan.minutes * 60.0
        for new in SCHEDULES:
            await store.schedules.add(new, OWNER)
        self.begun = self.clock.now_ms()
        for number in range(self.plan.workers):
            process = self.worker(f"worker-{number + 1}")
            self.first = self.first or process
        assert self.first is not None
        self.first.kill_at = self.plan.kill_at
        self.first.freeze_at, self.first.freeze_seconds = self.plan.freeze_at, 1_000.0
        if self.plan.tick_minutes is not None:
            self.loop.create_task(self._trigger(self.plan.tick_minutes), context=Context())
        people = self.loop.create_task(self._people(), context=Context())
        await self.clock.sleep(seconds)
        await people
        self.calm = True
        self.worker("healer")
        await self.clock.sleep(REST_SECONDS)
        self.ended = self.clock.now_ms()

    def run(self) -> Trace:
        """The whole story of one plan; raises Failure when a promise was broken."""
        try:
            self.loop.run_until_complete(self._run())
            wrongs = [*self.watch.wrongs, *self._wrongs(), *(f"a task died: {what}" for what in self.loop.unhandled)]
            if wrongs:
                raise Failure(self.plan.seed, "; ".join(wrongs[:5]), self.trace)
        finally:
            self.loop.bury()
        return self.trace

    # the promises

    def _wrongs(self) -> list[str]:
        found = []
        for new in SCHEDULES:
            made, due = self._made(new.name), self._due(new)
            times = [at for at, _ in made]
            found += [f"{new.name} fired {times.count(at)} times for {at}" for at in set(times) if times.count(at) > 1]
            found += [f"{new.name} fired for {at}, which is no time of it" for at in set(times) - set(due)]
            found += [f"{new.name} fired at {created}, before {at}" for at, created in made if created < at]
            found += self._left_out(new, times, due)
            if new.name == "paused":
                held = [at for at, made_at in made if any(start < made_at < end for start, end in self.spans)]
                found += [f"it fired for {at} while it was paused" for at in held]
        return found

    def _left_out(self, new: NewSchedule, times: list[int], due: list[int]) -> list[str]:
        """Of each policy, the firings that must be there. The last half hour may be under way."""
        past = [at for at in due if at < self.ended - 1_800_000]
        if new.name == "broken":
            return ["the broken one fired"] if times else []
        if new.missed is MissedPolicy.ALL:
            open_at = [at for at in past if not any(start <= at <= end for start, end in self._paused(new))]
            return [f"{new.name} did not fire for {at}" for at in open_at if at not in set(times)]
        if new.missed is MissedPolicy.ONCE:
            return [f"nothing was fired for {at} or later" for at in past if not times or at > max(times)]
        return ["nothing was fired since the faults are over"] if past[-1] not in times else []

    def _paused(self, new: NewSchedule) -> list[tuple[int, int]]:
        """With the firings that were missed before the pause: a pause ends what was not fired yet."""
        if new.name != "paused":
            return []
        made = sorted(created for _, created in self._made(new.name))
        before = [max((at for at in made if at < start), default=self.begun) for start, _ in self.spans]
        return [(first, end) for first, (_, end) in zip(before, self.spans, strict=True)]

    def _due(self, new: NewSchedule) -> list[int]:
        return list(cron.firings_between(new.cron, new.timezone, self.begun + 1, self.clock.now_ms()))

    def _made(self, name: str) -> list[tuple[int, int]]:
        """For each job of a schedule the time in its label, which no constraint keeps unique, and when it was made."""
        sql = "SELECT idempotency_key, label, created_at FROM jobs WHERE label LIKE ? ORDER BY id"
        rows = self.database.connection.execute(sql, (f"{name} %",)).fetchall()
        return [(_time_of(key), created) for key, _, created in rows]


def _time_of(key: str) -> int:
    at = datetime.strptime(key.partition(":")[2].partition(":")[2][:20], "%Y-%m-%dT%H:%M:%SZ")
    return int(at.replace(tzinfo=UTC).timestamp() * 1000)


async def _work(item: dict[str, Any]) -> str:
    return "done"


def run_schedules(plan: SchedulePlan) -> Trace:
    return ScheduleWorld(plan).run()
