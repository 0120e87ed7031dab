"""What is claimed: each row sets a figure of Backstay against bars, most of them set by a peer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """Our figure over the peer's, or our figure alone where there is no peer, must reach a limit."""

    limit: float
    against: str | None = None
    at_most: bool = False

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}{'x' if self.against else ''}"


@dataclass(frozen=True)
class Row:
    name: str
    figure: str
    ours: str
    bars: tuple[Bar, ...]

    def probes(self) -> list[str]:
        return [self.ours, *(bar.against for bar in self.bars if bar.against)]


ROWS = (
    Row("submit-postgres", "submit_per_second", "backstay-postgres", (Bar(1.5, "pgqueuer"),)),
    Row(
        "submit-transaction",
        "commits_per_second",
        "backstay-transaction",
        (Bar(0.8, "pgqueuer-transaction"), Bar(0.8, "procrastinate-transaction")),
    ),
    Row(
        "finish-postgres",
        "finish_per_second",
        "backstay-postgres",
        (
            Bar(1.0, "pgqueuer"),
            Bar(2.4, "awa"),
            Bar(3.0, "dramatiq"),
            Bar(5.0, "celery"),
            Bar(30.0, "dbos"),
            Bar(35.0, "procrastinate"),
        ),
    ),
    Row(
        "finish-held",
        "finish_per_second",
        "backstay-held",
        (Bar(0.8, "backstay-free"), Bar(2.0, "pgqueuer-held"), Bar(1.5, "awa-held")),
    ),
    Row("crowd", "crowd_ratio", "crowd", (Bar(0.8),)),
    Row("ten-million", "last_ratio", "ten-million", (Bar(0.8),)),
    Row("processes-waiting", "share_of_linear", "processes-waiting", (Bar(0.9),)),
    Row("processes-free", "gain", "processes-free", (Bar(0.9),)),
    Row("finish-limits", "finish_per_second", "backstay-limits", (Bar(0.6, "backstay-postgres"),)),
    Row("item-events-postgres", "finish_per_second", "item-events-postgres", (Bar(0.6, "backstay-postgres"),)),
    Row("item-events-sqlite", "finish_per_second", "item-events-sqlite", (Bar(0.6, "backstay-sqlite"),)),
    Row(
        "finish-rabbitmq",
        "finish_per_second",
        "backstay-rabbitmq",
        (Bar(1.5, "dramatiq"), Bar(3.0, "celery"), Bar(0.5, "backstay-postgres")),
    ),
    Row("publish-rabbitmq", "publish_per_second", "relay", (Bar(0.7, "publish-bare"),)),
    Row("finish-sqlite", "finish_per_second", "backstay-sqlite", (Bar(8.0, "huey"),)),
    Row("bare-postgres", "whole_per_second", "backstay-postgres", (Bar(0.5, "bare-postgres"),)),
    Row("bare-sqlite", "whole_per_second", "backstay-sqlite", (Bar(0.5, "bare-sqlite"),)),
    Row("latency-postgres", "p50_ms", "backstay-latency", (Bar(1.0, "pgqueuer-latency", at_most=True),)),
    Row("claim-scale", "claim_time_ratio", "claim-scale", (Bar(1.5, at_most=True),)),
    Row("schedules-idle", "core_percent", "schedules-idle", (Bar(1.0, at_most=True),)),
    Row("schedules-idle-postgres", "core_percent", "schedules-idle-postgres", (Bar(1.0, at_most=True),)),
    Row("prune-beside", "rate_ratio", "pruning", (Bar(0.8),)),
    Row("prune-beside-sqlite", "rate_ratio", "pruning-sqlite", (Bar(0.8),)),
    Row("memory", "peak_mb", "memory", (Bar(200.0, at_most=True),)),
    Row("run-bare", "requests_per_second", "run", (Bar(0.6, "run-bare"),)),
    Row(
        "run-peers",
        "requests_per_second",
        "run",
        (Bar(4.0, "openai"), Bar(6.0, "curator"), Bar(10.0, "litellm")),
    ),
    Row("run-faults", "seconds", "run-faults", (Bar(1.5, "run-practice", at_most=True),)),
    Row("run-latency", "requests_per_second", "run-latency", (Bar(0.9, "run-bare-latency"),)),
    Row("run-memory", "peak_mb", "run-memory", (Bar(150.0, at_most=True),)),
    Row("run-memory-large", "peak_mb", "run-memory-large", (Bar(1.3, "run-memory", at_most=True),)),
    Row("map-rate", "requests_per_second", "map-table", (Bar(0.85, "run"),)),
    Row("map-memory", "peak_mb", "map-memory", (Bar(250.0, at_most=True),)),
    Row("map-again", "seconds", "map-again", (Bar(2.0, at_most=True),)),
    Row("take-in", "lines_per_second", "take-in", (Bar(20_000.0),)),
    Row("get-item", "requests_per_second", "get-item", (Bar(0.5, "get-item-bare"),)),
    Row("get-batch", "requests_per_second", "get-batch", (Bar(0.5, "get-batch-bare"),)),
    Row("view-scale", "view_time_ratio", "view-scale", (Bar(1.5, at_most=True),)),
    Row("page-scale", "page_time_ratio", "page-scale", (Bar(1.5, at_most=True),)),
    Row("watched-run", "items_per_second", "watched", (Bar(0.8, "unwatched"),)),
    Row("watched-memory", "peak_mb", "watched", (Bar(300.0, at_most=True),)),
)
