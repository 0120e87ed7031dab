"""Every event has its words, and a level that is not wanted costs nothing."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from backstay.core.breaker import Breaker, BreakerState
from backstay.core.events import BreakerChanged, Event, ItemsSettled, JobEnded
from backstay.core.models import Act, Settlement
from backstay.core.states import ItemState, JobState
from backstay.observe.logs import LibraryLog, Logs, Sink
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
    SECRET,
    SUCCEEDED,
    settled,
    settlement,
)


def logged(*events: Event, level: str = "debug") -> list[dict[str, Any]]:
    stream = io.StringIO()
    logs = Logs(stream, level)
    for event in events:
        logs(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_what_a_library_logs_is_one_line_without_a_traceback() -> None:
    told: list[Event] = []
    logger = logging.Logger("asyncpg.pool")  # apart from those that the tests' own logging sees
    logger.addHandler(LibraryLog(told.append))
    try:
        raise ConnectionRefusedError("nobody listens\nthere")
    except ConnectionRefusedError:
        logger.warning("Failed to restore %s\nfuture: <Task>", "the floor", exc_info=True)
    logger.info("connected")
    (line,) = logged(*told)
    assert (line["event"], line["where"], line["level"]) == ("trouble", "asyncpg.pool", "warning")
    assert line["message"].startswith("Failed to restore the floor: ConnectionRefusedError: nobody listens")
    assert "(test_logs.py, line " in line["message"]
    assert "Task" not in line["message"]


def test_the_list_of_events_here_is_whole() -> None:
    assert {type(event) for event in EVERY_KIND} == set(get_args(Event))


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_every_event_is_one_line_with_words_level_and_time(event: Event) -> None:
    (line,) = logged(event)
    assert line["event"]
    assert line["level"] in ("debug", "info", "warning")
    assert line["timestamp"].endswith("Z")


def test_an_item_is_told_with_all_that_a_search_needs() -> None:
    (line,) = logged(settled(RETRIED, breakers={"acme": "open", "other": "closed"}))
    del line["timestamp"]
    assert line == {
        "event": "item to be retried",
        "level": "info",
        "job": 4,
        "item": "4-2",
        "status": "queued",
        "attempt": 2,
        "duration_ms": 250,
        "provider_status": 503,
        "error_code": "GW_5XX",
        "retry_in_ms": 2_000,
        "breaker": "acme:open",
    }


@pytest.mark.parametrize(
    ("item", "words", "level"),
    [
        (SUCCEEDED, "item succeeded", "debug"),
        (settlement(ItemState.SKIPPED, 0, "skipped"), "item skipped", "debug"),
        (settlement(ItemState.CANCELLED, 0, "cancelled"), "item cancelled", "debug"),
        (FAILED, "item failed", "warning"),
        (RETRIED, "item to be retried", "info"),
        (REPEATED, "item to be sent again", "info"),
        (ASKED, "item outcome to be looked up", "info"),
        (AT_PROVIDER, "item at the provider", "debug"),
        (settlement(ItemState.QUEUED, 0, act=Act.HANDED_BACK), "item returned to the queue", "info"),
        (settlement(ItemState.QUEUED, 0, act=Act.RESCUED), "item rescued", "info"),
    ],
)
def test_each_turn_of_an_item_has_its_words(item: Settlement, words: str, level: str) -> None:
    (line,) = logged(settled(item))
    assert (line["event"], line["level"], line["status"]) == (words, level, item.state.value)


def test_trouble_is_louder_than_calm() -> None:
    assert logged(BreakerChanged(CLOSED, OPEN))[0]["level"] == "warning"
    assert logged(BreakerChanged(OPEN, HALF_OPEN))[0]["level"] == "info"
    held = Breaker("acme", BreakerState.HELD, 0, None, "no credit")
    (line,) = logged(BreakerChanged(CLOSED, held))
    assert (line["breaker"], line["was"], line["why"]) == ("held", "closed", "no credit")
    assert logged(JobEnded(1, JobState.FAILED))[0]["level"] == "warning"


def test_payloads_results_and_messages_are_never_logged() -> None:
    lines = logged(*EVERY_KIND, settled(SUCCEEDED, FAILED, RETRIED, REPEATED, ASKED, AT_PROVIDER))
    assert SECRET not in json.dumps(lines, ensure_ascii=False)


def test_success_is_silent_unless_asked_for() -> None:
    group = settled(SUCCEEDED, FAILED, RETRIED, AT_PROVIDER)
    assert [line["event"] for line in logged(group, level="info")] == ["item failed", "item to be retried"]
    assert [line["event"] for line in logged(group, level="warning")] == ["item failed"]
    assert len(logged(group, level="debug")) == 4


class Untouchable(list[Settlement]):
    """A group that must not be looked at."""

    def __iter__(self) -> Iterator[Settlement]:
        raise AssertionError("looked at items that the level filters")


def test_a_level_that_filters_items_does_not_even_look_at_them() -> None:
    assert logged(ItemsSettled("w1", Untouchable(), {}), level="error") == []


def test_a_terminal_gets_columns_instead_of_json() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    Logs(stream)(BreakerChanged(CLOSED, OPEN))
    assert "breaker changed" in stream.getvalue()
    assert "{" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    wanted = Terminal()
    Logs(wanted, as_json=True)(BreakerChanged(CLOSED, OPEN))
    assert json.loads(wanted.getvalue())["provider"] == "acme"


def test_a_log_that_cannot_be_written_stops_no_work() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    logs = Logs(Broken())
    for event in EVERY_KIND:
        logs(event)
    sink = Sink(Broken())
    sink.msg("lost")
    assert sink.lost == 1
    closed = io.StringIO()
    logs = Logs(closed)
    closed.close()
    logs(EVERY_KIND[0])
