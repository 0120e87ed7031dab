"""What the database says, as values."""

from prometheus_client import CollectorRegistry

from backstay.core.alarms import Alarm
from backstay.observe.metrics import Gauges
from backstay.store.job_views import Backlog
from backstay.store.measures import ProviderSpending
from backstay.store.workers import RecentTicks


class Shown:
    """Gauges, and what a scrape would find."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.gauges = Gauges(self.registry)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"backstay_{name}", labels)


def test_a_queue_shows_its_depth_and_how_long_its_oldest_item_waits() -> None:
    shown = Shown()
    shown.gauges.show_queues([Backlog("ocr", 1, 500, 20, 10_000)], {"ocr": 40_000}, now_ms=100_000)
    assert (shown("queue_depth", handler="ocr"), shown("queue_oldest_seconds", handler="ocr")) == (500, 60)


def test_items_that_run_or_wait_for_a_retry_do_not_wait_to_be_started() -> None:
    shown = Shown()
    shown.gauges.show_queues([Backlog("ocr", 1, 500, 500, 10_000)], {}, now_ms=100_000)
    assert (shown("queue_depth", handler="ocr"), shown("queue_oldest_seconds", handler="ocr")) == (500, 0)


def test_a_queue_that_has_emptied_stands_at_nought() -> None:
    shown = Shown()
    shown.gauges.show_queues([Backlog("ocr", 1, 500, 20, 10_000)], {"ocr": 40_000}, now_ms=100_000)
    shown.gauges.show_queues([], {}, now_ms=200_000)
    assert (shown("queue_depth", handler="ocr"), shown("queue_oldest_seconds", handler="ocr")) == (0, 0)


def test_money_is_in_dollars_by_provider_and_a_provider_that_rests_stands_at_nought() -> None:
    shown = Shown()
    shown.gauges.show_money([ProviderSpending("acme", 2_500_000, 3)], used=0.93, held=1)
    assert (shown("cost_hour_dollars", provider="acme"), shown("repeats_hour", provider="acme")) == (2.5, 3)
    assert (shown("budget_used_ratio"), shown("jobs_held_by_budget")) == (0.93, 1)
    shown.gauges.show_money([], used=0, held=0)
    assert (shown("cost_hour_dollars", provider="acme"), shown("repeats_hour", provider="acme")) == (0, 0)


def test_ticks_workers_and_dead_letters_are_shown_as_they_are() -> None:
    shown = Shown()
    shown.gauges.show_ticks(RecentTicks(ticks=36, chains=12, chains_full=7, failed=2))
    shown.gauges.show_workers(alive=4, stuck=9)
    shown.gauges.show_alarms(101, {Alarm.DEAD_LETTERS})
    names = ("ticks_hour", "ticks_hour_failed", "chains_hour", "chains_hour_full")
    assert [shown(name) for name in names] == [36, 2, 12, 7]
    assert (shown("workers_alive"), shown("stuck_items")) == (4, 9)
    assert shown("letters_day") == 101
    assert (shown("alarm", alarm="dead_letters"), shown("alarm", alarm="outbox_lag")) == (1, 0)
