"""A value for every name that a statement has, as in a database crowded with finished work."""

from typing import Any

import backstay.store.store  # noqa: F401  (defines the records that statements name)
from backstay.core.ids import item_id, item_range
from backstay.store.jobs import parked_at
from backstay.store.queries import Query, queries_for
from tests.store.crowded_tables import FUTURE_MS, NOW_MS, PAUSED_JOB, READY_ITEMS, READY_JOB

BIG = {"items", "requests", "attempts", "events", "jobs"}
CLAIMED = 500
FIRST, AFTER = item_range(READY_JOB)
FIRST_PAUSED = item_range(PAUSED_JOB)[0]
IDS = [item_id(READY_JOB, position) for position in range(CLAIMED)]

# A value for every name that any statement has; a new name fails the tests until it has one here.
VALUES: dict[str, Any] = {
    "from_key": 0,
    "detail": "x",
    "back_ms": 10_000,
    "poll_ms": 5_000,
    "polled": 0,
    "late_poll_ms": 60_000,
    "late_ms": 86_400_000,
    "silent_ms": 3_600_000,
    "low": 0,
    "high": 1 << 60,
    "turns": 0,
    "items_min": 1,
    "quiet_ms": 400,
    "level_key": 9 << 52,
    **dict.fromkeys(("n", "items_max"), CLAIMED),
    **dict.fromkeys(("handler",), "echo"),
    **dict.fromkeys(("worker", "id", "host", "handlers", "name", "ref_seed", "digest", "reason", "label"), "w"),
    **dict.fromkeys(("lease_ms", "reconcile_ms", "probe_ms", "age_ms", "job_timeout_ms", "deadline_ms"), 5_000),
    **dict.fromkeys(("added", "retried", "pid", "askable", "priority", "timed_out", "round", "rescues", "repeats"), 1),
    "number": 1,
    **dict.fromkeys(
        ("since_at", "until_at", "delay_ms", "attempt_count", "progress", "total", "sealed", "position_bits"), 1
    ),
    **dict.fromkeys(("repeated", "weighed_too", "truncated", "refused", "filtered", "unfinished", "sum_max"), 1),
    **dict.fromkeys(("micros", "booked", "seen"), 1),
    "flaw": None,
    **dict.fromkeys(("account", "retry", "delivery", "error_code", "idempotency_key", "provider_task_id"), None),
    **{"owner": "local", "state": "queued", "was": "submitting", "calls": 1, "opened": 1, "subject": "item:1"},
    **{
        "job_id": READY_JOB,
        "item_id": IDS[0],
        "expected": READY_ITEMS,
        "first": FIRST,
        "cursor": FIRST,
        "after": AFTER,
    },
    **dict.fromkeys(("provider", "paced", "paced_then", "spec", "place", "claims", "handler_then"), "w"),
    **dict.fromkeys(
        (
            "concurrency",
            "ceiling",
            "requests_at",
            "tokens_at",
            "resume_at",
            "budget_micros",
            "move_ms",
            "input_at",
            "output_at",
        ),
        1,
    ),
    **dict.fromkeys(("requests_per_minute", "tokens_per_minute", "requests_per_day"), None),
    **{"input_tokens_per_minute": None, "output_tokens_per_minute": None, "day_calls": ""},
    **{"looked": CLAIMED, "upto": FIRST + CLAIMED, "downto": 0, "replayable": 1},
    **dict.fromkeys(("url", "events", "error", "kind", "body", "task", "accepted_by"), "w"),
    **dict.fromkeys(("enabled", "told", "failed", "is_late", "fence", "tries", "delivery"), 1),
    **{
        "handler_next": None,
        "same_request": 0,
        "time_shares": 2,
        "fallback": None,
        "turn": 1,
        "waits_for": None,
        "known": 0,
        "takes": "succeeded",
        "feeds": 1,
    },
    **{"after_id": READY_JOB, "unique_ms": None, "waits_at": 1},
    **{"grace_ms": 1, "lasting_ms": 1, "answered": 200, "key": "w", "token": "w", "headers": "w", "role": "read"},
    **{"lives_ms": 1, "past": "w", "figure": 1, "bound": 1, "left_at": 1},
    **{"sink": "work", "hint": "{", "wake": 0, "event": "user.orders"},
    **dict.fromkeys(("filename", "purpose", "blob", "part", "survey", "input_file_id", "endpoint", "span"), "w"),
    **dict.fromkeys(
        ("completion_window", "metadata", "status", "model", "errors", "output_file_id", "error_file_id"), "w"
    ),
    **dict.fromkeys(("bytes", "lives_ms", "window_ms", "output_seconds", "requests"), 1),
    "created_at": NOW_MS,
    **dict.fromkeys(("quiet_ms", "span_ms", "keep_ms", "tail_ms", "wait_ms", "archive_id", "replay_id"), 1),
    **{"finished_at": NOW_MS - 5_000, "items": 1, "first_at": 1, "last_at": 1, "rate": 1.5, "expected": 1},
    **dict.fromkeys(("old", "filter", "who", "word"), "w"),
    **{"depth": 0, "was_full": 0, "keep": 100, "until_at": NOW_MS, "until_id": AFTER},
    **{"period": "month", "limit_micros": 1, "requests_period_ms": 60_000},
    **{"cron": "* * * * *", "timezone": "UTC", "payload": "{}", "missed": "once", "declared": 1, "most": 1},
    **{"next_at": NOW_MS, "version": 1, "reused": 1, "key_high": 1, "key_low": 1},
    **{"pattern": "%w%", "minutes": 1, "since": 1, "step": 5},
    **{"before": AFTER, "parked_at": parked_at(PAUSED_JOB), "now": NOW_MS, "batch": "[]"},
}
# Of statements in which a name means something else.
OWN: dict[str, dict[str, Any]] = {
    "poll": {"account": ""},
    "next_parked": {"after": FUTURE_MS},
    "owner_after": {"after": "a"},
    "save_provider": {"calls": "[]"},
}


def values_for(name: str) -> dict[str, Any]:
    return {**VALUES, **OWN.get(name, {})}


def batch_of(query: Query) -> dict[str, list[Any]]:
    """A batch by its columns: five hundred items, or the handful of jobs that they belong to."""
    is_about_jobs = "UPDATE jobs" in query.sql or "budget_micros" in query.sql
    ids = [READY_JOB + number for number in range(5)] if is_about_jobs else IDS
    named = ("id", "item_id", "job_id")
    return {column: ids if column in named else [VALUES.get(column, 1)] * len(ids) for column in query.columns}


def statements(dialect: Any) -> list[str]:
    return sorted(queries_for(dialect))


PAUSE = f"UPDATE jobs SET state = 'paused', held = 1 WHERE id = {PAUSED_JOB}"
PARK = f"UPDATE items SET due_at = {parked_at(PAUSED_JOB)} WHERE id BETWEEN {FIRST_PAUSED} AND {FIRST_PAUSED} + 1000000"
