"""Metrics for Prometheus: `Metrics` counts events, `Gauges` shows the state of the database."""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from backstay.core.alarms import Alarm
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.events import (
    AlarmChanged,
    BreakerChanged,
    BrokerConnected,
    BrokerLost,
    BrokerWiped,
    DeadMessagesDropped,
    Event,
    ItemLogged,
    ItemsClaimed,
    ItemsExpired,
    ItemsRescued,
    ItemsSettled,
    ItemsStopped,
    ItemsSubmitted,
    JobEnded,
    JobsPruned,
    JobsTimedOut,
    LeasesLost,
    LettersArchived,
    MessageSetAside,
    MessagesPublished,
    OutboxLag,
    TickEnded,
    Trouble,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from backstay.core.models import Act, AttemptOutcome
from backstay.core.states import JOB_ENDED, TERMINAL, ItemState


class BacklogDepth(Protocol):
    """The unfinished items of one handler."""

    @property
    def handler(self) -> str: ...
    @property
    def items(self) -> int: ...


class Spending(Protocol):
    """The recent cost of calls to one provider."""

    @property
    def provider(self) -> str: ...
    @property
    def cost_micros(self) -> int: ...
    @property
    def repeats(self) -> int: ...


class Ticks(Protocol):
    """The results of recent ticks."""

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
    """Only for processes that read the database: a gauge that is never set would show 0, which would be wrong."""

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
        """A handler with an empty queue shows 0."""
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
        """A provider that was not called in the last hour shows 0."""
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


# From a quick call to the longest run a handler gets by default.
ATTEMPT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
STATE_NUMBERS = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2, BreakerState.HELD: 3}


class GroupHistogram(Histogram):
    """A histogram that takes a whole group at once: a call for each item would cost more than its settlement."""

    def observe_all(self, durations_ms: Iterable[int]) -> None:
        for duration_ms, times in Tally(durations_ms).items():
            seconds = duration_ms / 1000
            self._sum.inc(seconds * times)
            self._buckets[bisect_left(self._upper_bounds, seconds)].inc(times)


class Metrics:
    """A listener with a registry of its own, so that an application's metrics are not touched."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.submitted = self._counter("items_submitted", "Items submitted by this process.")
        self.claimed = self._counter("items_claimed", "Items claimed.")
        self.named = self._counter("items_named", "Items claimed because of a broker message.")
        self.settled = self._counter("items_settled", "Items that ended, by state.", "state")
        self.failed = self._counter(
            "items_failed", "Dead letters (items that failed permanently), by error code.", "code"
        )
        self.timed_out = self._counter("items_timed_out", "Items that timed out.")
        self.retries = self._counter("retries", "Attempts that failed and are retried.")
        self.repeats = self._counter("repeats", "Calls sent again although the first one may have been paid.")
        self.rescued = self._counter("rescued", "Items that another worker took over after their worker died.")
        self.leases_lost = self._counter("leases_lost", "Items whose worker lost their lease.")
        self.jobs_ended = self._counter("jobs_ended", "Jobs that ended, by state.", "state")
        self.ticks = self._counter("ticks", "Ticks (bounded invocations).")
        self.chain_depth = self._counter("chain_depth_reached", "Ticks, by their depth in a chain.", "depth")
        self.chains_full = self._counter("chains_full", "Chains that reached the depth limit with work left.")
        self.troubles = self._counter("troubles", "Errors that are retried automatically.")
        self.set_aside = self._counter(
            "messages_set_aside", "Messages that no worker could process, now in the dead queue."
        )
        dropped = "Messages dropped from the broker's dead queue, by bound: count or age."
        self.dead_dropped = self._counter("dead_messages_dropped", dropped, "bound")
        self.published = self._counter("messages_published", "Messages published from the outbox, by sink.", "sink")
        self.unpublished = self._counter(
            "messages_unpublished", "Failed attempts to publish a message, by sink.", "sink"
        )
        self.archived = self._counter("letters_archived", "Dead letters moved from the database into archives.")
        self.pruned = self._counter("jobs_pruned", "Old jobs that were deleted.")
        self.open_seconds = self._counter(
            "breaker_open_seconds", "Time for which a provider was not called.", "provider"
        )
        self.attempt_seconds = GroupHistogram(
            "backstay_attempt_seconds", "Duration of attempts.", buckets=ATTEMPT_BUCKETS, registry=self.registry
        )
        self.waiting = self._gauge("outbox_messages", "Unpublished messages (at most 10,000), by sink.", "sink")
        self.lag = self._gauge("outbox_oldest_seconds", "Age of the oldest unpublished message, by sink.", "sink")
        self.breaker = self._gauge("breaker_state", "0 closed, 1 half-open, 2 open, 3 held.", "provider")
        self._show_zeros()

    def _show_zeros(self) -> None:
        """A counter that appears with its first count has no increase for Prometheus to see."""
        for ended in JOB_ENDED:
            self.jobs_ended.labels(ended.value)
        for state in TERMINAL:
            self.settled.labels(state.value)
        for bound in ("count", "age"):
            self.dead_dropped.labels(bound)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"backstay_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return gauge(self.registry, name, text, *labels)

    def value(self, name: str, **labels: str) -> float:
        """The value of a metric; 0 if it was never counted."""
        return self.registry.get_sample_value(f"backstay_{name}", labels) or 0.0

    def __call__(self, event: Event) -> None:
        match event:
            case ItemsSettled():
                self._count_settled(event)
            case ItemsClaimed():
                self._count_claimed(event)
            case ItemsSubmitted():
                self.submitted.inc(event.items)
            case LeasesLost():
                self.leases_lost.inc(len(event.items))
            case ItemsRescued():
                self.rescued.inc(event.items)
            case ItemsExpired():
                self._count_swept(ItemState.FAILED, event.items)
            case ItemsStopped():
                self._count_swept(event.state, event.items)
            case JobEnded():
                self.jobs_ended.labels(event.state.value).inc()
            case BreakerChanged():
                self._count_breaker_change(event)
            case Trouble() | BrokerLost() | BrokerWiped():
                self.troubles.inc()
            case MessageSetAside():
                self.set_aside.inc()
            case DeadMessagesDropped():
                self.dead_dropped.labels(event.bound).inc(event.messages)
            case MessagesPublished() | OutboxLag():
                self._count_outbox(event)
            case LettersArchived():
                self.archived.inc(event.items)
            case JobsPruned():
                self.pruned.inc(event.jobs)
            case TickEnded():
                self._count_tick(event)
            case WorkerStarted() | WorkerStopping() | WorkerStopped() | BrokerConnected():
                return
            case ItemLogged() | JobsTimedOut() | AlarmChanged():
                return
            case _:
                assert_never(event)

    def _count_claimed(self, event: ItemsClaimed) -> None:
        self.claimed.inc(event.items)
        self.named.inc(event.items if event.named else 0)

    def _count_tick(self, event: TickEnded) -> None:
        self.ticks.inc()
        self.chain_depth.labels(str(event.depth)).inc()
        self.chains_full.inc(event.full)

    def _count_settled(self, event: ItemsSettled) -> None:
        settlements = event.settlements
        states = [settlement.state for settlement in settlements]
        for state in TERMINAL:
            items = states.count(state)
            if items:
                self.settled.labels(state.value).inc(items)
        if ItemState.FAILED in states:
            codes = Tally(s.error_code or "UNKNOWN" for s in settlements if s.state is ItemState.FAILED)
            for code, items in codes.items():
                self.failed.labels(str(code)).inc(items)
            self.timed_out.inc(sum(settlement.timed_out for settlement in settlements))
        attempts = [settlement.attempt for settlement in settlements if settlement.attempt is not None]
        self.attempt_seconds.observe_all(attempt.ended_at - attempt.started_at for attempt in attempts)
        self.retries.inc(sum(attempt.outcome in (AttemptOutcome.RETRY, AttemptOutcome.INVALID) for attempt in attempts))
        self.repeats.inc([settlement.act for settlement in settlements].count(Act.REPEAT))

    def _count_outbox(self, event: MessagesPublished | OutboxLag) -> None:
        if isinstance(event, OutboxLag):
            self.waiting.labels(event.sink).set(event.messages)
            self.lag.labels(event.sink).set(event.age_ms / 1000)
        else:
            self.published.labels(event.sink).inc(event.messages)
            self.unpublished.labels(event.sink).inc(event.failed)

    def _count_swept(self, state: ItemState, items: int) -> None:
        """Items that the sweep fails have timed out."""
        self.settled.labels(state.value).inc(items)
        if state is ItemState.FAILED:
            self.failed.labels("GW_TIMEOUT").inc(items)
            self.timed_out.inc(items)

    def _count_breaker_change(self, event: BreakerChanged) -> None:
        """Only the worker that changes a breaker emits the event, so the time is counted once."""
        before, after = event.before, event.after
        if before.state in (BreakerState.OPEN, BreakerState.HELD):
            self.open_seconds.labels(after.provider).inc(max(after.since_at - before.since_at, 0) / 1000)
        self.breaker.labels(after.provider).set(STATE_NUMBERS[after.state])

    def show_breakers(self, breakers: Mapping[str, Breaker]) -> None:
        for name, breaker in breakers.items():
            self.breaker.labels(name).set(STATE_NUMBERS[breaker.state])
