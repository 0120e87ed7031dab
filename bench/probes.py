"""What is run: each probe is one contestant in one kind of server, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class NotMeasured(Exception):
    """A figure that could not be had; the message is the reason to report."""


@dataclass(frozen=True)
class Probe:
    module: str
    server: Literal["postgres", "rabbitmq", "sqlite"]
    items: int
    items_quick: int
    measure: Literal["throughput", "latency", "memory", "claim_scale"] = "throughput"
    ours: bool = False


# Items are many enough for several seconds of work at the pace of each contestant, and no more.
PROBES = {
    "backstay-postgres": Probe("bench.ours", "postgres", 100_000, 10_000, ours=True),
    "backstay-sqlite": Probe("bench.ours", "sqlite", 100_000, 10_000, ours=True),
    "backstay-latency": Probe("bench.ours", "postgres", 200, 50, "latency", ours=True),
    "bare-postgres": Probe("bench.bare", "postgres", 100_000, 10_000, ours=True),
    "bare-sqlite": Probe("bench.bare", "sqlite", 100_000, 10_000, ours=True),
    "claim-scale": Probe("bench.claim_scale", "postgres", 5_000_000, 500_000, "claim_scale", ours=True),
    "memory": Probe("bench.ours", "sqlite", 1_000_000, 100_000, "memory", ours=True),
    "pgqueuer": Probe("bench.peers.pgqueuer", "postgres", 100_000, 10_000),
    "pgqueuer-latency": Probe("bench.peers.pgqueuer", "postgres", 200, 50, "latency"),
    "awa": Probe("bench.peers.awa", "postgres", 30_000, 5_000),
    "dramatiq": Probe("bench.peers.dramatiq", "rabbitmq", 10_000, 2_000),
    "celery": Probe("bench.peers.celery", "rabbitmq", 10_000, 2_000),
    "dbos": Probe("bench.peers.dbos", "postgres", 2_000, 300),
    "procrastinate": Probe("bench.peers.procrastinate", "postgres", 3_000, 500),
    "huey": Probe("bench.peers.huey", "sqlite", 10_000, 2_000),
}
