"""Why nothing moves: from what the worker heard, and from what the items wait for."""

from dataclasses import fields, replace
from typing import Any

import pytest

from backstay.core.errors import ErrorCode
from backstay.core.events import ItemsSettled, Trouble
from backstay.core.models import Attempt, Settlement
from backstay.core.pace import HOUR_MS, Pace
from backstay.core.states import JobState
from backstay.llm.endpoint import Endpoint, Lane
from backstay.run.run_state import Wait, Waits, wait_for_day
from backstay.run.submission import Order
from backstay.store.item_views import Waiting
from backstay.store.job_views import JobView, UnderWay

NOW = 1_000_000
ENDPOINT = Endpoint("http://localhost/v1", Lane.BATCH, key_env="MY_KEY")
IDLE = Waiting(NOW, None, None, 0, None, 0)


def job(**changes: Any) -> JobView:
    usual = dict.fromkeys((field.name for field in fields(JobView)), 0)
    return JobView(**{**usual, "state": JobState.RUNNING, "sealed": True, "total": 300, **changes})


def waits() -> Waits:
    return Waits(Order(ENDPOINT, "results.jsonl"), "backstay {} --db sqlite:///runs.db".format)


def settled(code: ErrorCode, message: str) -> ItemsSettled:
    attempt = Attempt(1, 1, 1, "retry", 0, 0, code, message, None, None, None, None, None)
    return ItemsSettled("w", [Settlement(1, 1, attempt=attempt)], {}, [""])


@pytest.mark.parametrize(
    ("waiting", "retrying", "processing", "says", "seconds"),
    [
        (IDLE, 0, 0, None, None),
        (IDLE._replace(resume_at=NOW + 55_000), 0, 0, "the provider asked for a pause", 55.0),
        (IDLE._replace(resume_at=NOW - 1), 0, 0, None, None),
        (
            IDLE._replace(lost=300, ask_at=NOW + 255_000),
            0,
            0,
            "300 requests interrupted earlier: being looked up at the provider",
            255.0,
        ),
        (IDLE._replace(lost=10, ask_at=NOW + 255_000), 0, 290, None, None),
        (IDLE._replace(strangers=1), 0, 300, None, None),
        (IDLE._replace(due_at=NOW + 60_000), 300, 0, "300 requests waiting for a retry: cut off", 60.0),
        (IDLE._replace(due_at=NOW + 60_000), 299, 0, None, None),
        (IDLE._replace(due_at=NOW + 1_000), 300, 0, None, None),
    ],
    ids=["idle", "pause", "over", "lost", "at work", "one task", "retries", "one is ready", "soon"],
)
def test_a_wait_says_for_what_and_for_how_long(
    waiting: Waiting, retrying: int, processing: int, says: str | None, seconds: float | None
) -> None:
    asked = waits()
    asked(settled(ErrorCode.GW_TIMEOUT, "cut off"))
    found = asked.of_items(job(processing=processing), UnderWay(0, retrying), waiting)
    assert found == (None if says is None else Wait(says, seconds))


def test_tasks_of_another_key_name_the_variable_that_must_hold_it() -> None:
    found = waits().of_items(job(processing=300), UnderWay(0, 0), IDLE._replace(strangers=300))
    assert found is not None
    assert "300 requests at the provider need the earlier API key; set MY_KEY" in found.why
    many = waits().of_items(job(processing=5_000, total=5_000), UnderWay(0, 0), IDLE._replace(strangers=1_000))
    assert many is not None, "of many tasks some are looked at"


def test_the_last_trouble_of_the_provider_is_remembered_and_cut_to_a_line() -> None:
    heard = waits()
    waiting, retrying = IDLE._replace(due_at=NOW + 60_000), UnderWay(0, 300)

    def said() -> str:
        found = heard.of_items(job(), retrying, waiting)
        assert found is not None
        return found.why.partition(": ")[2]

    assert said() == "failed"
    heard(settled(ErrorCode.GW_5XX, "Cannot connect to host"))
    heard(settled(ErrorCode.GW_4XX, "too many requests"))
    heard(Trouble("poll of another@host", "no concern of this run"))
    assert said() == "Cannot connect to host"
    heard(Trouble(f"poll of {ENDPOINT.name}", "x" * 1_000))
    assert said() == "x" * 159 + "…"


def test_calls_that_cannot_be_looked_up_are_taken_up_again() -> None:
    order = Order(replace(ENDPOINT, lane=Lane.CALL), "results.jsonl")
    lost = IDLE._replace(lost=2, ask_at=NOW + 5_000)
    told = Waits(order, "backstay {}".format).of_items(job(), UnderWay(0, 0), lost)
    assert told == Wait("2 requests interrupted earlier: running again", 5.0)


def test_a_look_up_that_came_to_nothing_is_named_with_its_reason() -> None:
    asked = waits()
    asked(Trouble(f"at {ENDPOINT.provider}", "the file of batch_1 was deleted at the provider", look_up=True))
    told = asked.of_items(job(), UnderWay(0, 0), IDLE._replace(lost=2, ask_at=NOW + 5_000))
    assert told is not None
    assert told.why.endswith("being looked up at the provider, again: the file of batch_1 was deleted at the provider")


def test_a_limit_of_a_day_says_so_and_until_when() -> None:
    now = 100 * HOUR_MS
    pace = Pace("p", None, None, 9, 9, requests_per_day=1_000, day_calls="99:400 100:599")
    assert wait_for_day(pace, now) is wait_for_day(None, now) is wait_for_day(replace(pace, requests_per_day=None), now)
    full = replace(pace, day_calls="99:400 100:600")
    assert wait_for_day(full, now) == Wait("the limit of 1,000 requests per day is reached", 24 * 3600)
