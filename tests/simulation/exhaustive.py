"""One fault at every suspension point in turn: a small world is run once to count them, then once for each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tests.simulation.plan import CALM, LIMITS, RECONCILE_SECONDS, Faults, Kind, Plan
from tests.simulation.trace import Trace
from tests.simulation.world import World

BEYOND_STEPS = 10
NEVER = 10**9
QUARANTINE_SECONDS = RECONCILE_SECONDS + LIMITS.lease_seconds + 8


FAULTS: Mapping[str, Callable[[int], Faults]] = {
    "kill": lambda step: Faults(kill_at=step),
    # longer than lease and quarantine together, while a healthy process takes over
    "freeze": lambda step: Faults(freeze_at=step, freeze_seconds=QUARANTINE_SECONDS),
    "stop": lambda step: Faults(stop_step=step),
    "cancel": lambda step: Faults(cancel_step=step),
}


def small(kind: Kind, name: str, faults: Faults, seed: int = 0) -> Plan:
    """Two items, one process to be struck, and a healthy one that comes to finish."""
    return Plan(
        f"{name} {kind.name} {seed}",
        [kind],
        items=2,
        processes=[faults],
        weather=replace(CALM, latency_seconds=0.3),
        faults_seconds=1.5 if faults.freeze_at else 4.0,
    )


def points(kind: Kind, what: str, seed: int = 0) -> int:
    """How many suspension points the process has until its work is done, when the fault does not come."""
    world = World(small(kind, "count", FAULTS[what](NEVER), seed))
    world.run()
    return world.steps_to_end + BEYOND_STEPS


def strike(kind: Kind, what: str, step: int, seed: int = 0) -> Trace:
    """One world in which a process is struck at one suspension point; raises Failure when a promise breaks by it."""
    return World(small(kind, f"{what}-{step}", FAULTS[what](step), seed)).run()


def every_point(kind: Kind, what: str, seed: int = 0, stride: int = 1) -> Iterator[Trace]:
    return (strike(kind, what, step, seed) for step in range(1, points(kind, what, seed) + 1, stride))
