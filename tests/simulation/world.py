"""One simulated world: processes, providers, people and faults on a virtual clock, and what must be true of it."""

import asyncio
import hashlib
from contextvars import Context
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from backstay.client import Client, Job, Options
from backstay.clock import Tasks, wait_for_event
from backstay.core.errors import BackstayError, DatabaseUnreachable
from backstay.core.events import Event, ItemsSubmitted, JobEnded
from backstay.core.ids import show_item
from backstay.engine.engine import Engine
from backstay.engine.parts import Parts, beat, drop_lost_items
from backstay.engine.tick import Tick
from backstay.engine.worker import Worker
from backstay.handlers.function import dump
from backstay.observe.bus import Bus
from backstay.store import job_links
from backstay.store.store import Store
from backstay.testing import InlineSQLite, ScriptedProvider
from tests.simulation import verdict
from tests.simulation.loop import CURRENT, Process, SimulatedLoop
from tests.simulation.plan import BOUND_SECONDS, CALM, GOOD_SECONDS, LIMITS, RECONCILE_SECONDS, Faults, Kind, Plan
from tests.simulation.post import Post
from tests.simulation.trace import Trace
from tests.simulation.watch import Line, Watch, WatchedDatabase, WatchedStore
from tests.simulation.work import Work, registry_of

LOOK_SECONDS = 0.5
TICK_SECONDS = 2.0
LIFE_SECONDS = 86_400.0


class Failure(AssertionError):
    """A world in which a promise was broken; its seed makes it again."""

    def __init__(self, seed: str, message: str, trace: Trace) -> None:
        lines = "\n".join(trace.lines[-60:])
        super().__init__(f"seed {seed}: {message}\n{lines}\nreplay: python -m tests.simulation --seed {seed}")
        self.seed = seed
        self.trace = trace


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.trace = Trace()
        self.rng = Random(f"world {plan.seed}")
        self.loop = SimulatedLoop(Random(f"loop {plan.seed}"), self._process_told)
        self.clock = self.loop.clock
        self.trace.clock = self.clock
        self.database = InlineSQLite(self.clock)
        self.watch = Watch(self.database.connection)
        self.works = [self._work(kind) for kind in plan.kinds]
        self.calm_at = float("inf")
        self.respawned = 0
        self.post = Post(plan.seed, self.database, self.clock, self.trace.reached) if plan.hints else None
        self.processes: list[Process] = []
        self.lines: list[Line] = []
        self.jobs: list[Job] = []
        self.followed: dict[int, int] = {}  # a job that follows another, and that one
        self.calm = False
        self.steps_to_end = 0

    # the outside

    def _work(self, kind: Kind) -> Work:
        plan = self.plan
        provider = ScriptedProvider(
            then=plan.weather,
            rng=Random(f"provider {plan.seed} {kind.name}"),
            deduplicates=kind.deduplicates,
            visible_after_seconds=plan.visible_after_seconds,
            find_fails=plan.find_fails,
            task_fails=plan.task_fails,
            task_seconds=2.0,
            listener=lambda act, ref: self._provider_told(kind, act, ref),
        )
        work = self._make_work(kind, plan, provider, self.clock, self.trace.reached, self.watch.wrong)
        work.killed = lambda: self.loop.call_later(1.0, self._respawn, context=Context())
        return work

    def _make_work(self, *given: Any) -> Work:
        return Work(*given)

    def _respawn(self) -> None:
        """As a supervisor does, when an item has killed its worker."""
        self.respawned += 1
        self.worker(f"respawned-{self.respawned}", Faults())

    def _provider_told(self, kind: Kind, act: str, ref: str) -> None:
        self.trace.say(kind.name, f"{act} {self.trace.label(ref)}")
        if act in ("found", "not found", "recognised"):
            self.trace.reached(f"a request was {act}")

    def _process_told(self, process: Process, what: str) -> None:
        self.trace.say(process.name, what)
        self.trace.reached(what.split(" for ")[0])
        if what == "killed" and process.asking:
            self.trace.reached("killed while asking")
        if what == "killed" and process.polling:
            self.trace.reached("killed while polling")

    def calm_down(self) -> None:
        self.calm = True
        self.calm_at = self.clock.monotonic()
        for work in self.works:
            work.provider.then = CALM
            work.provider.find_fails = work.provider.task_fails = 0.0
        for line in self.lines:
            line.cut, line.slow, line.deaf = False, 0.0, 0.0

    # processes

    def process(self, name: str, faults: Faults) -> Process:
        process = Process(name, self.loop)
        process.kill_at = faults.kill_at
        process.freeze_at, process.freeze_seconds = faults.freeze_at, faults.freeze_seconds
        self.processes.append(process)
        return process

    def line(self, name: str) -> Line:
        line = Line(self.clock, Random(f"line {self.plan.seed} {name}"), self.trace.reached)
        if not self.calm:
            line.slow, line.deaf = self.plan.database_slow, self.plan.answers_lost
        self.lines.append(line)
        return line

    def engine(self, name: str, line: Line) -> Engine:
        bus = Bus()
        bus.subscribe(lambda event: self._event(name, event))
        store = WatchedStore(WatchedDatabase(self.database, self.watch, line))
        rng = Random(f"engine {self.plan.seed} {name}")
        parts = Parts(store, registry_of(self.works), LIMITS, self.clock, rng, Tasks(), bus, name)
        return Engine(parts, 4, hints=self.post.counter() if self.post is not None else None)

    def _event(self, name: str, event: Event) -> None:
        self.trace.event(name, event)
        if isinstance(event, ItemsSubmitted):
            self.trace.reached("a job was filled from another")
        if isinstance(event, JobEnded):
            self.steps_to_end = self.processes[0].steps

    def worker(self, name: str, faults: Faults) -> Process:
        process = self.process(name, faults)
        line = self.line(name)
        signal = asyncio.Event()
        process.start(self._work_on(name, line, faults, signal))
        if faults.stop_step is not None:
            process.interrupt_at, process.interrupted = faults.stop_step, signal.set
        elif faults.cancel_step is not None:
            process.interrupt_at, process.interrupted = faults.cancel_step, self._cancel_first
        if faults.cut_off_at is not None:
            self.loop.call_later(faults.cut_off_at, self._cut, name, line, True)
            self.loop.call_later(faults.cut_off_at + faults.cut_off_seconds, self._cut, name, line, False)
        return process

    def _cut(self, name: str, line: Line, cut: bool) -> None:
        if not (cut and self.calm):
            self.trace.say(name, "cut off from the database" if cut else "back at the database")
            line.cut = cut

    def _cancel_first(self) -> None:
        self.loop.create_task(self._act(self.jobs[0], "cancel"), context=Context())

    async def _work_on(self, name: str, line: Line, faults: Faults, signal: asyncio.Event) -> None:
        while True:
            engine = self.engine(name, line)
            worker = Worker(engine, 1.0)
            try:
                await worker.start()
                break
            except DatabaseUnreachable:
                name += "'"
        beating = engine.parts.tasks.spawn(self._beat(engine))
        await wait_for_event(signal, faults.stop_at or LIFE_SECONDS)
        self.trace.reached("stopped politely")
        await worker.stop(0.0 if faults.stop_step else self.rng.choice([0.0, 0.3, 3.0]))
        beating.cancel()
        self._left_behind(name, line)

    def _left_behind(self, name: str, line: Line) -> None:
        """A process that was stopped politely, and could reach the database, exits with nothing in its hands."""
        held = "SELECT count(*) FROM items WHERE leased_by = ? AND state = 'submitting'"
        items = self.database.connection.execute(held, (name,)).fetchone()[0]
        if items and not (line.cut or line.slow or line.deaf):
            self.watch.wrong(f"{name} was stopped politely and left {items} items behind")
        exited = CURRENT.get()
        if exited is not None:
            exited.kill()

    async def _beat(self, engine: Engine) -> None:
        """The heart without its thread; it shares the fate of its process."""
        parts = engine.parts
        while True:
            await self.clock.sleep(parts.limits.heartbeat_seconds)
            try:
                lost = await beat(parts.store, engine.flights, parts)
            except DatabaseUnreachable:
                continue
            if any(
                (flight.item.id, flight.item.fence) in lost and flight.is_running for flight in engine.flights.all()
            ):
                self.trace.reached("a lease was lost during a run")
            drop_lost_items(lost, engine.flights, parts)

    async def _ticks(self) -> None:
        """A trigger that starts an invocation every few seconds, whatever became of the last."""
        number = 0
        while True:
            faults = self.plan.processes[number] if number < len(self.plan.processes) else Faults()
            number += 1
            name = f"tick-{number}"
            self.process(name, faults).start(self._tick(name))
            await self.clock.sleep(TICK_SECONDS)

    async def _tick(self, name: str) -> None:
        engine = self.engine(name, self.line(name))
        beating = engine.parts.tasks.spawn(self._beat(engine))
        try:
            await Tick(engine).run()
            self.trace.reached("a tick ran")
        except BackstayError as error:
            self.trace.say(name, f"the tick failed: {error}")
        finally:
            beating.cancel()

    # people

    async def _submit(self) -> None:
        store = Store(self.database)
        client = Client(store, "people", LIMITS, self.clock, Bus())
        options = Options(deadline_seconds=self.plan.deadline_seconds)
        for number in range(self.plan.jobs):
            for kind in self.plan.kinds[:1] if self.plan.fallback else self.plan.kinds:
                items = [f"{number}.{item}" for item in range(self.plan.items)]
                fallback = self.plan.kinds[1].name if self.plan.fallback else None
                told = replace(options, fallback=fallback)
                self.jobs.append(await client.submit(kind.name, items, told, dump, lambda: None))
        if self.plan.after is not None:
            for job in list(self.jobs):
                kind = self.plan.kinds[-1]
                told = replace(options, after=job.id, after_items=self.plan.after)
                later = await client.submit(kind.name, None, told, dump, lambda: None)
                self.followed[later.id] = job.id
                self.jobs.append(later)
        self.watch.committed()

    async def _submit_doubles(self) -> None:
        """Several people submit the same, over networks that lose answers; each tries until it has an answer."""
        await asyncio.gather(*(self._submit_double(number) for number in range(self.plan.submitters)))

    async def _submit_double(self, number: int) -> None:
        line = self.line(f"submitter-{number}")
        client = Client(Store(WatchedDatabase(self.database, self.watch, line)), "people", LIMITS, self.clock, Bus())
        items = [f"9.{item}" for item in range(number, number + self.plan.items)]
        for told in (Options(unique="the same", unique_seconds=86_400), Options(item_key=str)):
            while True:
                try:
                    job = await client.submit(self.plan.kinds[0].name, items, told, dump, lambda: None)
                    break
                except DatabaseUnreachable:
                    self.trace.reached("a submit was made again")
            self.jobs.append(job)

    async def _people(self) -> None:
        last = 0.0
        for at, word in self.plan.acts:
            await self.clock.sleep(at - last)
            last = at
            await self._act(self.rng.choice(self.jobs), word)

    async def _act(self, job: Job, word: str) -> None:
        try:
            await getattr(job, word)()
        except BackstayError as error:
            self.trace.say("people", f"{word} {job.id} refused: {error}")
        else:
            self.trace.say("people", f"{word} {job.id}")
            self.trace.reached(f"{word} by hand")
        self.watch.committed()

    # the course of things

    async def _run(self) -> None:
        await self._submit()
        if self.plan.submitters > 1:
            await self._submit_doubles()
        if self.post is not None:
            self.loop.create_task(self.post.run())
        if self.plan.ticks:
            self.loop.create_task(self._ticks())
        else:
            for number, faults in enumerate(self.plan.processes, 1):
                self.worker(f"worker-{number}", faults)
        await self._people()
        await self.clock.sleep(max(self.plan.faults_seconds - self.clock.monotonic(), 0))
        self.calm_down()
        for job in self.jobs:
            if (await job.show()).state == "paused":
                await self._act(job, "resume")
        self.worker("healer", Faults())
        await self._end()

    async def _end(self) -> None:
        """Waits until every item has ended and every sleeper has woken, and then for what may still come late."""
        bound = self.clock.monotonic() + BOUND_SECONDS
        while not verdict.ended(self.database.connection) or any(p.frozen and p.alive for p in self.processes):
            self._stop_if_wrong()
            if self.clock.monotonic() > self.calm_at + GOOD_SECONDS and (good := self._unfinished_good()):
                raise Failure(self.plan.seed, f"items that are not poison are not done: {good}", self.trace)
            if self.clock.monotonic() > bound:
                raise Failure(self.plan.seed, verdict.stuck(self.database.connection), self.trace)
            await self.clock.sleep(LOOK_SECONDS)
        await self.clock.sleep(RECONCILE_SECONDS + LIMITS.lease_seconds)

    def _unfinished_good(self) -> list[str]:
        """Of a job that follows another the items exist only when the other has ended: they get as much time."""
        before = self.clock.now_ms() - int(GOOD_SECONDS * 1000)
        rows = self.database.connection.execute(
            "SELECT items.id, requests.body FROM items JOIN requests ON requests.item_id = items.id"
            f" WHERE {verdict.UNFINISHED} AND items.created_at <= ?",
            (before,),
        ).fetchall()
        return [show_item(item) for item, body in rows if not verdict.is_poison(body, self.plan.poison)]

    def _stop_if_wrong(self) -> None:
        if self.watch.wrongs:
            raise Failure(self.plan.seed, self.watch.wrongs[0], self.trace)

    def run(self) -> Trace:
        """The whole story of one plan; raises Failure when a promise was broken."""
        try:
            with patch.object(job_links, "CHUNK_ITEMS", 2):  # so small that filling a job takes several steps
                self.loop.run_until_complete(self._run())
            self._stop_if_wrong()
            if wrongs := self._wrongs():
                raise Failure(self.plan.seed, "; ".join(wrongs), self.trace)
        finally:
            self.loop.bury()
        return self.trace

    def _wrongs(self) -> list[str]:
        jobs = sorted({job.id for job in self.jobs})
        found = verdict.wrongs(self.database, self.watch, self.works, jobs)
        found += verdict.followed(self.database.connection, self.watch, self.followed, self.plan.after)
        found += verdict.doubles(self.database.connection, self.plan.submitters)
        # A task of the engine that died of an exception is a part that no longer works.
        return found + [f"a task died: {what}" for what in self.loop.unhandled]


def run_plan(plan: Plan) -> Trace:
    return World(plan).run()


def digest(trace: Trace) -> str:
    return hashlib.sha256("\n".join(trace.lines).encode()).hexdigest()
