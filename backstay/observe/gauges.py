"""What the database says now, for Prometheus: every process that looks shows the same."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Gauge

from backstay.core.alarms import Alarm


class BacklogDepth(Protocol):
    """The unfinished items of one handler."""

    @property
    def handler(self) -> str: ...
    @property
    def items(self) -> int: ...


class Spending(Protocol):
    """What the calls to one provider cost lately."""

    @property
    def provider(self) -> str: ...
    @property
    def cost_micros(self) -> int: ...
    @property
    def repeats(self) -> int: ...


class Ticks(Protocol):
    """What became of bounded invocations lately."""

    @property
    def ticks(self) -> int: ...
    @property
    def chains(self) -> int: ...
    @property
    def chains_full(self) -> int: ...
    @property
    def failed(self) -> int: ...


def gauge(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    # All processes look at one database: the newest look is the truth, a sum would count it several times.
    mode = "livemostrecent"
    return Gauge(f"backstay_{name}", text, labels, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]


class Gauges:
    """Only for who looks at the database: a gauge that nobody sets would say nought, and that is news."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def make(name: str, text: str, *labels: str) -> Gauge:
            return gauge(registry, name, text, *labels)

        self.depth = make("queue_depth", "Unfinished items, by handler.", "handler")
        self.oldest = make(
            "queue_oldest_seconds", "How long the oldest waiting item has waited, by handler.", "handler"
        )
        self.stuck = make("stuck_items", "Items whose worker is dead, waiting for another worker (at most 1000).")
        self.alive = make("workers_alive", "Workers with a heartbeat within the lease time (at most 100).")
        self.letters = make("letters_day", "Dead letters of the last 24 hours (at most 100,001).")
        self.alarm = make("alarm", "1 while the alarm is raised, by alarm.", "alarm")
        self.budget = make(
            "budget_used_ratio", "The largest share of its budget that an unfinished job has used; 1 is all of it."
        )
        self.held = make("jobs_held_by_budget", "Unfinished jobs that are stopped at their budget.")
        self.cost = make("cost_hour_dollars", "Cost of calls in the last hour, by provider.", "provider")
        self.repeats = make("repeats_hour", "Calls in the last hour that may have been paid twice.", "provider")
        self.ticks = make("ticks_hour", "Ticks that began in the last hour.")
        self.ticks_failed = make("ticks_hour_failed", "Ticks that began in the last hour and failed or were killed.")
        self.chains = make("chains_hour", "Chains of ticks that began in the last hour.")
        self.chains_full = make(
            "chains_hour_full", "Chains that reached the depth limit in the last hour with work left."
        )
        self._handlers: set[str] = set()
        self._providers: set[str] = set()

    def show_queues(self, depths: Iterable[BacklogDepth], waiting_since: Mapping[str, int], now_ms: int) -> None:
        """A handler whose queue has emptied stands at nought."""
        items = {depth.handler: depth.items for depth in depths}
        self._handlers |= items.keys()
        for handler in self._handlers:
            self.depth.labels(handler).set(items.get(handler, 0))
            self.oldest.labels(handler).set(max(now_ms - waiting_since.get(handler, now_ms), 0) / 1000)

    def show_workers(self, alive: int, stuck: int) -> None:
        self.alive.set(alive)
        self.stuck.set(stuck)

    def show_alarms(self, letters: int, raised: Collection[Alarm]) -> None:
        self.letters.set(letters)
        for alarm in Alarm:
            self.alarm.labels(alarm.value).set(alarm in raised)

    def show_money(self, spending: Iterable[Spending], used: float, held: int) -> None:
        """A provider that was not called in the last hour stands at nought."""
        found = {one.provider: one for one in spending}
        self._providers |= found.keys()
        for provider in self._providers:
            one = found.get(provider)
            self.cost.labels(provider).set(one.cost_micros / 1_000_000 if one else 0)
            self.repeats.labels(provider).set(one.repeats if one else 0)
        self.budget.set(used)
        self.held.set(held)

    def show_ticks(self, lately: Ticks) -> None:
        self.ticks.set(lately.ticks)
        self.ticks_failed.set(lately.failed)
        self.chains.set(lately.chains)
        self.chains_full.set(lately.chains_full)
