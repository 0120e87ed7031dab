"""What is run: each probe is one contestant in one kind of server, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class NotMeasured(Exception):
    """A figure that could not be had; the message is the reason to report."""


@dataclass(frozen=True)
class Probe:
    module: str
    server: Literal[
        "postgres", "rabbitmq", "both", "sqlite", "provider", "slow-provider", "practice", "faulty-practice"
    ]
    items: int
    items_quick: int
    measure: str = "throughput"  # a function of the module, but for throughput
    ours: bool = False
    environment: str | None = None
    once: bool = False  # however many repeats are asked for


# Items are many enough for several seconds of work at the pace of each contestant, and no more.
PROBES = {
    "backstay-postgres": Probe("bench.ours", "postgres", 100_000, 10_000, ours=True),
    "backstay-limits": Probe("bench.ours", "postgres", 100_000, 10_000, "limited", ours=True),
    "item-events-postgres": Probe("bench.ours", "postgres", 100_000, 10_000, "with_item_events", ours=True),
    "item-events-sqlite": Probe("bench.ours", "sqlite", 100_000, 10_000, "with_item_events", ours=True),
    "backstay-rabbitmq": Probe("bench.dispatch", "both", 100_000, 10_000, ours=True),
    "relay": Probe("bench.dispatch", "both", 50_000, 5_000, "publish", ours=True),
    "publish-bare": Probe("bench.publish_bare", "rabbitmq", 50_000, 5_000, "publish", ours=True),
    "backstay-sqlite": Probe("bench.ours", "sqlite", 100_000, 10_000, ours=True),
    "backstay-latency": Probe("bench.ours", "postgres", 200, 50, "latency", ours=True),
    "backstay-transaction": Probe("bench.ours", "postgres", 3_000, 300, "submit_transaction", ours=True),
    "bare-postgres": Probe("bench.bare", "postgres", 100_000, 10_000, ours=True),
    "bare-sqlite": Probe("bench.bare", "sqlite", 100_000, 10_000, ours=True),
    "claim-scale": Probe("bench.claim_scale", "postgres", 5_000_000, 500_000, "claim_scale", ours=True),
    "backstay-free": Probe("bench.ours", "postgres", 500_000, 20_000, "free", ours=True),
    "backstay-held": Probe("bench.ours", "postgres", 500_000, 20_000, "held", ours=True),
    "pgqueuer-held": Probe("bench.peers.pgqueuer", "postgres", 500_000, 20_000, "held"),
    "awa-held": Probe("bench.peers.awa", "postgres", 500_000, 20_000, "held"),
    "crowd": Probe("bench.claim_crowd", "postgres", 8, 2, "crowd", ours=True),  # seconds for each number of workers
    "ten-million": Probe("bench.ten_million", "postgres", 10_000_000, 200_000, "ten_million", ours=True, once=True),
    # Seconds of calls at each number of processes, and items for each.
    "processes-waiting": Probe("bench.processes", "postgres", 20, 4, "waiting", ours=True, once=True),
    "processes-free": Probe("bench.processes", "postgres", 200_000, 20_000, "free", ours=True, once=True),
    "memory": Probe("bench.ours", "sqlite", 1_000_000, 100_000, "memory", ours=True),
    "schedules-idle": Probe("bench.schedules", "sqlite", 1_000, 1_000, "idle", ours=True),
    "schedules-idle-postgres": Probe("bench.schedules", "postgres", 1_000, 1_000, "idle", ours=True),
    "pruning": Probe("bench.pruning", "postgres", 1_000_000, 200_000, "beside", ours=True, once=True),
    "pruning-sqlite": Probe("bench.pruning", "sqlite", 1_000_000, 200_000, "beside", ours=True, once=True),
    "pgqueuer": Probe("bench.peers.pgqueuer", "postgres", 100_000, 10_000),
    "pgqueuer-latency": Probe("bench.peers.pgqueuer", "postgres", 200, 50, "latency"),
    "pgqueuer-transaction": Probe("bench.peers.pgqueuer", "postgres", 3_000, 300, "submit_transaction"),
    "awa": Probe("bench.peers.awa", "postgres", 30_000, 5_000),
    "dramatiq": Probe("bench.peers.dramatiq", "rabbitmq", 10_000, 2_000),
    "celery": Probe("bench.peers.celery", "rabbitmq", 10_000, 2_000),
    "dbos": Probe("bench.peers.dbos", "postgres", 2_000, 300),
    "procrastinate": Probe("bench.peers.procrastinate", "postgres", 3_000, 500),
    "procrastinate-transaction": Probe("bench.peers.procrastinate", "postgres", 3_000, 300, "submit_transaction"),
    "huey": Probe("bench.peers.huey", "sqlite", 10_000, 2_000),
    "run": Probe("bench.run_ours", "provider", 20_000, 2_000, "rate", ours=True),
    "run-bare": Probe("bench.run_bare", "provider", 20_000, 2_000, "rate", ours=True),
    "run-bare-uvloop": Probe("bench.run_bare", "provider", 20_000, 2_000, "quick_rate", ours=True),
    "openai": Probe("bench.peers.openai", "provider", 4_000, 500, "rate", environment="openai"),
    "curator": Probe("bench.peers.curator", "provider", 4_000, 500, "rate", environment="curator"),
    "litellm": Probe("bench.peers.litellm", "provider", 2_000, 300, "rate", environment="litellm"),
    "run-practice": Probe("bench.run_ours", "practice", 20_000, 2_000, "rate", ours=True),
    "run-faults": Probe("bench.run_ours", "faulty-practice", 20_000, 2_000, "faulty_rate", ours=True),
    "run-latency": Probe("bench.run_ours", "slow-provider", 40_000, 4_000, "slow_rate", ours=True),
    "run-bare-latency": Probe("bench.run_bare", "slow-provider", 40_000, 4_000, "slow_rate", ours=True),
    "run-memory": Probe("bench.run_ours", "provider", 100_000, 10_000, "rate", ours=True, once=True),
    "map": Probe("bench.map_ours", "provider", 20_000, 2_000, "rate", ours=True),
    "map-table": Probe("bench.map_ours", "provider", 20_000, 2_000, "table_rate", ours=True),
    "map-again": Probe("bench.map_ours", "provider", 5_000, 500, "again_rate", ours=True),
    "map-memory": Probe("bench.map_ours", "provider", 100_000, 10_000, "table_rate", ours=True, once=True),
    "get-item": Probe("bench.service", "sqlite", 20_000, 2_000, "get_item", ours=True),
    "get-item-bare": Probe("bench.bare_service", "sqlite", 20_000, 2_000, "get_item", ours=True),
    "get-batch": Probe("bench.service", "sqlite", 20_000, 2_000, "get_batch", ours=True),
    "get-batch-bare": Probe("bench.bare_service", "sqlite", 20_000, 2_000, "get_batch", ours=True),
    "take-in": Probe("bench.service", "sqlite", 50_000, 5_000, "take_in", ours=True),
    "view-scale": Probe("bench.service_scale", "postgres", 5_000_000, 500_000, "view_scale", ours=True, once=True),
    "page-scale": Probe("bench.page_scale", "postgres", 5_000_000, 500_000, "page_scale", ours=True, once=True),
    "unwatched": Probe("bench.service", "sqlite", 100_000, 10_000, "unwatched", ours=True),
    "watched": Probe("bench.service", "sqlite", 100_000, 10_000, "watched", ours=True),
    "run-memory-large": Probe("bench.run_ours", "provider", 1_000_000, 50_000, "rate", ours=True, once=True),
}
