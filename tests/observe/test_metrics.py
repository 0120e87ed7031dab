"""Events in, values out."""

from typing import get_args

import pytest

from backstay.core.breaker import Breaker, BreakerState
from backstay.core.events import (
    BreakerChanged,
    Event,
    ItemsExpired,
    ItemsStopped,
    MessagesPublished,
    OutboxLag,
    TickEnded,
)
from backstay.core.states import ItemState
from backstay.observe.metrics import GroupHistogram, Metrics
from tests.observe.events import (
    ASKED,
    AT_PROVIDER,
    CLOSED,
    EVERY_KIND,
    FAILED,
    HALF_OPEN,
    OPEN,
    REPEATED,
    RETRIED,
    SUCCEEDED,
    settled,
    settlement,
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"backstay_{name}", labels)


def test_every_event_is_counted_once() -> None:
    metrics = Metrics()
    assert {type(event) for event in EVERY_KIND} == set(get_args(Event))
    for event in EVERY_KIND:
        metrics(event)
    found = {
        name: value(metrics, f"{name}_total")
        for name in ("items_submitted", "items_claimed", "items_named", "rescued", "leases_lost", "ticks", "troubles")
    }
    assert found == {
        "items_submitted": 10,
        "items_claimed": 13,
        "items_named": 3,
        "rescued": 3,
        "leases_lost": 2,
        "ticks": 1,
        "troubles": 3,
    }
    assert value(metrics, "jobs_ended_total", state="completed") == 1


def test_a_group_is_counted_by_what_became_of_its_items() -> None:
    metrics = Metrics()
    skipped = settlement(ItemState.SKIPPED, 9, "skipped")
    metrics(settled(SUCCEEDED, SUCCEEDED, FAILED, RETRIED, REPEATED, ASKED, AT_PROVIDER, skipped))
    assert value(metrics, "items_settled_total", state="succeeded") == 2
    assert value(metrics, "items_settled_total", state="failed") == 1
    assert value(metrics, "items_settled_total", state="skipped") == 1
    assert value(metrics, "items_settled_total", state="queued") is None
    assert value(metrics, "items_failed_total", code="GW_4XX") == 1
    assert value(metrics, "items_failed_total", code="GW_5XX") is None
    assert value(metrics, "retries_total") == 1
    assert value(metrics, "repeats_total") == 1


def test_what_leaves_the_outbox_is_counted_and_what_waits_is_shown() -> None:
    metrics = Metrics()
    for event in (MessagesPublished("work", 500, 2), MessagesPublished("work", 3, 0), OutboxLag("work", 7, 90_000)):
        metrics(event)
    assert value(metrics, "messages_published_total", sink="work") == 503
    assert value(metrics, "messages_unpublished_total", sink="work") == 2
    assert value(metrics, "outbox_messages", sink="work") == 7
    assert value(metrics, "outbox_oldest_seconds", sink="work") == 90


def test_how_long_tries_take_is_a_histogram() -> None:
    metrics = Metrics()
    metrics(settled(SUCCEEDED, FAILED, AT_PROVIDER))
    assert value(metrics, "attempt_seconds_count") == 2
    assert value(metrics, "attempt_seconds_sum") == pytest.approx(0.5)
    assert value(metrics, "attempt_seconds_bucket", le="0.1") == 0
    assert value(metrics, "attempt_seconds_bucket", le="0.25") == 2


def test_a_group_in_the_histogram_is_the_same_as_its_items_one_by_one() -> None:
    durations = [0, 1, 9, 10, 11, 250, 251, 9_999, 300_000, 300_001, 10, 10]
    together, apart = (GroupHistogram("t", "t", buckets=(0.01, 0.25, 10, 300), registry=None) for _ in range(2))
    together.observe_all(durations)
    for duration in durations:
        apart.observe(duration / 1000)
    for grouped, single in zip(together.collect(), apart.collect(), strict=True):
        pairs = zip(grouped.samples, single.samples, strict=True)
        assert all(
            one.name == other.name and one.labels == other.labels and one.value == pytest.approx(other.value)
            for one, other in pairs
            if not one.name.endswith("_created")
        )


def test_items_that_time_ended_are_failures_too() -> None:
    metrics = Metrics()
    metrics(ItemsExpired(5))
    assert value(metrics, "items_settled_total", state="failed") == 5
    assert value(metrics, "items_failed_total", code="GW_TIMEOUT") == 5
    assert value(metrics, "items_timed_out_total") == 5


def test_a_call_that_took_too_long_is_no_item_whose_time_was_over() -> None:
    metrics = Metrics()
    slow = FAILED._replace(error_code="GW_TIMEOUT")
    metrics(settled(slow, slow._replace(timed_out=1)))
    assert value(metrics, "items_failed_total", code="GW_TIMEOUT") == 2
    assert value(metrics, "items_timed_out_total") == 1


def test_items_that_ended_with_their_job_are_counted_too() -> None:
    metrics = Metrics()
    metrics(ItemsStopped(4, 6, ItemState.CANCELLED))
    assert value(metrics, "items_failed_total", code="GW_TIMEOUT") is None
    metrics(ItemsStopped(5, 3, ItemState.FAILED))
    assert value(metrics, "items_settled_total", state="cancelled") == 6
    assert value(metrics, "items_settled_total", state="failed") == 3
    assert value(metrics, "items_failed_total", code="GW_TIMEOUT") == 3


def test_the_time_a_breaker_was_open_is_added_when_it_ends() -> None:
    metrics = Metrics()
    metrics(BreakerChanged(CLOSED, OPEN))
    assert value(metrics, "breaker_state", provider="acme") == 2
    assert value(metrics, "breaker_open_seconds_total", provider="acme") is None
    metrics(BreakerChanged(OPEN, HALF_OPEN))
    assert value(metrics, "breaker_open_seconds_total", provider="acme") == 30
    metrics(BreakerChanged(HALF_OPEN, Breaker("acme", BreakerState.CLOSED, 45_000)))
    assert value(metrics, "breaker_open_seconds_total", provider="acme") == 30
    assert value(metrics, "breaker_state", provider="acme") == 0


def test_the_depth_of_a_chain_is_counted_by_depth() -> None:
    metrics = Metrics()
    for depth in (0, 1, 2, 0):
        metrics(TickEnded(depth, 10, 1.0, depth < 2, depth == 2))
    assert [value(metrics, "chain_depth_reached_total", depth=str(depth)) for depth in (0, 1, 2)] == [2, 1, 1]
    assert value(metrics, "ticks_total") == 4
    assert value(metrics, "chains_full_total") == 1


def test_breakers_that_others_changed_are_shown() -> None:
    metrics = Metrics()
    metrics.show_breakers({"acme": Breaker("acme", BreakerState.HELD), "fine": Breaker("fine")})
    assert value(metrics, "breaker_state", provider="acme") == 3
    assert value(metrics, "breaker_state", provider="fine") == 0


def test_two_applications_in_a_process_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first(ItemsExpired(5))
    assert value(second, "items_failed_total", code="GW_TIMEOUT") is None
