"""An item's story has its waits, and each says why."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from backstay.core.states import ItemState, JobState
from backstay.server.pages.item import Around, story
from backstay.store.item_views import AttemptView, EventView, ItemDetail

T = 1_800_000_000_000
S = 1_000

NOTHING: dict[str, Any] = dict.fromkeys(field.name for field in fields(ItemDetail))
TIMES = dict.fromkeys(("created_at", "queued_at", "last_attempt_at", "finished_at", "now"), T)
COUNTS = dict.fromkeys(("id", "job_id", "fence", "attempt_count"), 1) | dict.fromkeys(("rescues", "repeats"), 0)
STATES = {"handler": "echo", "state": ItemState.FAILED, "job_state": JobState.RUNNING, "error_code": "GW_5XX"}
ITEM = ItemDetail(**NOTHING | TIMES | COUNTS | STATES)


def attempt(number: int, start: int, end: int, outcome: str = "retry", code: str | None = "GW_5XX") -> AttemptView:
    return AttemptView(number, outcome, T + start, T + end, code, "no luck", 503, None, None, None, None)


ALONE = Around("up")


def words(attempts: list[AttemptView], acts: Sequence[EventView] = (), around: Around = ALONE) -> list[str]:
    return [f"{one.what}; {', '.join(one.details)}" for one in story(ITEM, attempts, acts, around)]


def test_attempts_and_waits_come_in_the_order_of_time() -> None:
    told = words([attempt(1, 5 * S, 6 * S), attempt(2, 16 * S, 17 * S, "failed")])
    assert told == [
        "Submitted; ",
        "Waited 5 s; in the queue of its handler",
        "Call 1: retry; took 1 s, the provider answered 503, GW_5XX",
        "Waited 10 s; for a retry after GW_5XX",
        "Call 2: failed; took 1 s, the provider answered 503, GW_5XX",
    ]


def test_a_wait_that_nobody_notices_is_not_told() -> None:
    assert len(words([attempt(1, 500, 600, "succeeded", None)])) == 2


def test_a_wait_behind_a_held_provider_says_so_and_why() -> None:
    held = [
        EventView(T + 2 * S, "breaker_open", "6 of the last 10 calls failed"),
        EventView(T + 9 * S, "breaker_half_open", None),
        EventView(T + 60 * S, "breaker_held", "quota"),
    ]
    [_, waited, _] = words([attempt(1, 10 * S, 11 * S)], around=Around("up", held))
    assert waited == "Waited 10 s; provider up was open: 6 of the last 10 calls failed"


def test_a_wait_in_a_paused_job_says_so() -> None:
    paused = [EventView(T + S, "paused", None), EventView(T + 8 * S, "resumed", None)]
    [_, waited, _] = words([attempt(1, 10 * S, 11 * S)], around=Around("up", (), paused))
    assert waited == "Waited 10 s; its job was paused"
    [_, before, *_] = words([attempt(1, 10 * S, 11 * S)], around=Around("up", (), [EventView(T + S, "paused", None)]))
    assert before == "Waited 10 s; its job was paused"


def test_after_a_retry_by_hand_the_wait_is_counted_from_there() -> None:
    retried = [EventView(T + 100 * S, "retried", "by hand")]
    told = words([attempt(1, 0, S, "failed"), attempt(2, 103 * S, 104 * S, "succeeded", None)], retried)
    assert told[2:4] == ["Retried; by hand", "Waited 3 s; in the queue of its handler"]


def test_an_item_that_time_ended_before_its_first_try_has_a_story() -> None:
    ended = replace(ITEM, finished_at=T + 50 * S)
    lost = AttemptView(0, "failed", 0, 0, "GW_TIMEOUT", "too late", None, None, None, None, None)
    told = [one.what for one in story(ended, [lost], [], Around("up"))]
    assert told == ["Submitted", "Waited 50 s", "Ended without another attempt: failed"]


def test_an_item_whose_time_was_over_while_it_waited_for_another_try_has_that_wait() -> None:
    told = words([attempt(1, 0, S), attempt(1, 0, 31 * S, "failed", "GW_TIMEOUT")])
    assert told[2:] == ["Waited 30 s; for a retry after GW_5XX", "Ended without another attempt: failed; GW_TIMEOUT"]


def test_an_item_whose_time_was_over_at_the_provider_waited_there() -> None:
    told = words([attempt(0, 2 * S, 9 * S, "failed", "GW_TIMEOUT")])
    assert told[1:] == [
        "Waited 2 s; in the queue of its handler",
        "Waited 7 s; for the provider's answer",
        "Ended without another attempt: failed; GW_TIMEOUT",
    ]
