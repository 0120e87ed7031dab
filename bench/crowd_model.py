"""A model of many workers on one PostgreSQL: cores, connections, and the sync that commits share."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

SECONDS_MAX = 1e9

# What a step waits for: some seconds ("for"), a core or Python for so long, a sync, or a connection.
Step = tuple[str, float]
Walk = Generator[Step, None, None]


@dataclass(frozen=True)
class Costs:
    """What was measured with one worker alone, in seconds."""

    claim_cpu: float
    settle_cpu: float
    python_cpu: float  # of the measuring program, for one claim and one settlement
    sync: float


@dataclass(frozen=True)
class Crowd:
    workers: int
    cores: int
    connections: int  # to the database, of all workers together
    think: float = 0.0  # seconds between the claim of a batch and its settlement
    python_here: bool = False  # the workers are one Python process on the same cores, as in the measurement


@dataclass
class Line:
    """Something that so many can have at once; the others wait in their order."""

    free: int
    waiting: deque[Callable[[], None]] = field(default_factory=deque)


class Model:
    """The events of one crowd, in the order of their times; the chances are seeded, so the same crowd ends alike."""

    def __init__(self, costs: Costs, crowd: Crowd, batch: int, seed: int = 7) -> None:
        self._costs, self._crowd, self._batch = costs, crowd, batch
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.now = 0.0
        self._lines = {"core": Line(crowd.cores), "python": Line(1), "connection": Line(crowd.connections)}
        self._committing: list[Callable[[], None]] = []
        self._syncing = False
        self.claim_seconds: list[float] = []
        self.items = 0
        self.core_seconds = 0.0

        for _ in range(crowd.workers):
            self._go_on(self._work())

    def run(self, until: float) -> None:
        while self._events and self.now < until:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _work(self) -> Walk:
        costs, crowd = self._costs, self._crowd
        python = costs.python_cpu / 2 if crowd.python_here else 0.0
        yield "for", self._random.uniform(0, crowd.think + 0.01)
        while True:
            began = self.now
            yield "python", python
            yield "connect", 0
            yield "core", costs.claim_cpu
            yield "sync", 0
            yield "leave", 0
            self.claim_seconds.append(self.now - began)
            yield "for", self._random.expovariate(1 / crowd.think) if crowd.think else 0.0
            yield "python", python
            yield "connect", 0
            yield "core", costs.settle_cpu
            yield "sync", 0
            yield "leave", 0
            self.items += self._batch

    def _go_on(self, walk: Walk) -> None:
        kind, value = next(walk)

        def resume() -> None:
            self._go_on(walk)

        if kind == "for":
            self._later(value, resume)
        elif kind == "sync":
            self._commit(resume)
        elif kind == "connect":
            self._take(self._lines["connection"], resume)
        elif kind == "leave":
            self._give(self._lines["connection"])
            resume()
        else:
            self._occupy(kind, value, resume)

    def _occupy(self, kind: str, seconds: float, resume: Callable[[], None]) -> None:
        """A core for so long; Python's own work needs its one thread as well."""
        core = self._lines["core"]

        def end() -> None:
            self._give(core)
            if kind == "python":
                self._give(self._lines["python"])
            resume()

        def begin() -> None:
            self.core_seconds += seconds
            self._later(seconds, end)

        if kind == "python":
            self._take(self._lines["python"], lambda: self._take(core, begin))
        else:
            self._take(core, begin)

    def _commit(self, resume: Callable[[], None]) -> None:
        """Whoever comes while the disk is busy goes with the next sync, all together."""
        self._committing.append(resume)
        if not self._syncing:
            self._sync()

    def _sync(self) -> None:
        going, self._committing = self._committing, []
        self._syncing = bool(going)
        if going:
            self._later(self._costs.sync, lambda: self._synced(going))

    def _synced(self, going: list[Callable[[], None]]) -> None:
        self._sync()
        for resume in going:
            resume()

    def _take(self, line: Line, resume: Callable[[], None]) -> None:
        if line.free:
            line.free -= 1
            self._later(0.0, resume)
        else:
            line.waiting.append(resume)

    def _give(self, line: Line) -> None:
        if line.waiting:
            self._later(0.0, line.waiting.popleft())
        else:
            line.free += 1

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + seconds, self._order, act))


@dataclass(frozen=True)
class Foretold:
    items_per_second: float
    claim_p50_ms: float
    claim_p95_ms: float
    cores_busy: float


def foretell(costs: Costs, crowd: Crowd, batch: int, seconds: float = 2.0) -> Foretold:
    """What the crowd does once it is under way."""
    model = Model(costs, crowd, batch)
    begin = crowd.think + 0.5
    model.run(begin)
    items, core_seconds, claims = model.items, model.core_seconds, len(model.claim_seconds)
    model.run(begin + seconds)
    waited = sorted(model.claim_seconds[claims:]) or [SECONDS_MAX]
    return Foretold(
        (model.items - items) / seconds,
        waited[len(waited) // 2] * 1000,
        waited[int(len(waited) * 0.95)] * 1000,
        (model.core_seconds - core_seconds) / seconds / crowd.cores,
    )
