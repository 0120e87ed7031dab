"""A database as an operator finds it at nine in the morning: for pictures, and for pages seen as they are used."""

import json
import math
import sqlite3
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from backstay.core.ids import item_range
from backstay.store.measures import LATENCY_MS, MINUTE_MS, Measure, Measures, MeasureSlot, MeasureSource
from tests.server.pages.scene import Scene
from tests.server.rig import Rig

SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
SPREAD = (0.02, 0.08, 0.2, 0.3, 0.22, 0.12, 0.04, 0.015, 0.004, 0.001)  # of calls over the steps of latency
ERRORS = (
    ("GW_5XX", 503, "upstream connect error or disconnect/reset before headers", 2),
    ("GW_TIMEOUT", None, "no answer within 120 s", 4),
    ("GW_4XX", 400, "This model's maximum context length is 128000 tokens; the request has 131204", 1),
    ("GW_5XX", 529, "Overloaded", 4),
    ("UNKNOWN", None, "its worker was lost while the call was under way", 1),
)


class Job(NamedTuple):
    label: str
    handler: str
    state: str
    total: int
    done: int
    failed: int
    began: int  # milliseconds ago
    took: int | None = None  # of one that has ended
    spent: int = 0
    budget: int | None = None
    deadline: int | None = None  # milliseconds from now
    priority: int = 0


JOBS = (
    Job("Invoices 2026-10, second pass", "extract_invoice", "completed", 3_200, 3_200, 0, 3 * DAY, 2 * HOUR, 9_120_000),
    Job("Support tickets, week 45", "triage_ticket", "completed", 2_480, 2_451, 29, 2 * DAY, HOUR, 4_760_000),
    Job("Product texts, French", "translate", "failed", 1_240, 1_031, 209, DAY, 3 * HOUR, 12_400_000),
    Job("Embeddings, knowledge base", "embed", "completed", 6_000, 6_000, 0, 20 * HOUR, HOUR // 2, 610_000),
    Job("Contracts, clause review", "review_contract", "paused", 860, 214, 3, 5 * HOUR, None, 21_300_000, 90_000_000),
    Job(
        "Call summaries, Nov 15",
        "summarize_call",
        "running",
        5_400,
        3_872,
        41,
        2 * HOUR,
        None,
        38_640_000,
        42_000_000,
        3 * HOUR,
    ),
    Job(
        "Support tickets, week 46",
        "triage_ticket",
        "running",
        3_100,
        1_294,
        6,
        HOUR // 2,
        None,
        2_480_000,
        None,
        None,
        5,
    ),
    Job("Product texts, Polish", "translate", "queued", 1_240, 0, 0, 12 * 60 * SECOND),
)
PROVIDERS = {
    "extract_invoice": "openai",
    "triage_ticket": "openai",
    "summarize_call": "openai",
    "embed": "openai",
    "review_contract": "anthropic",
    "translate": "deepl",
}


async def morning(rig: Rig, file: Path) -> Scene:
    """Of ada's, in the SQLite file of a service that does no work itself."""
    store = rig.service.store
    now, chance = rig.service.main.clock.now_ms(), Random(9)
    with sqlite3.connect(file) as connection:
        for number, job in enumerate(JOBS, 1):
            _job(connection, number, job, now, chance)
        _around(connection, now)
    connection.close()
    await _measured(store.measures, now, chance)
    await store.providers.hold("deepl", "429: quota of the month exceeded", 47 * 60)
    busy, waiting = 6, 8
    failed, succeeded = f"{busy}-7", f"{busy}-{JOBS[busy - 1].failed * 7 + 1}"
    return Scene(str(busy), str(waiting), failed, succeeded)


def _job(connection: sqlite3.Connection, number: int, job: Job, now: int, chance: Random) -> None:
    ended = job.took is not None
    began, left = now - job.began, job.total - job.done - job.failed
    row: dict[str, Any] = {
        **{
            "id": number,
            "owner": "ada",
            "handler": job.handler,
            "state": job.state,
            "held": int(job.state == "paused"),
        },
        **{"sealed": 1, "priority": job.priority, "label": job.label, "ref_seed": "", "total": job.total},
        **{"succeeded": job.done - job.failed if ended else job.done, "failed": job.failed, "created_at": began},
        **{"started_at": began + 4 * SECOND if job.done else None, "timeout_ms": DAY, "timeout_at": began + 7 * DAY},
        **{"finished_at": began + job.took if job.took is not None else None, "budget_micros": job.budget},
        **{"spent_micros": job.spent, "reserved_micros": job.spent // 400 if not ended else 0, "unknown_micros": 0},
        **{"input_tokens": job.spent // 3, "output_tokens": job.spent // 11, "repeats": 2 if job.failed > 40 else 0},
        "deadline_at": None if job.deadline is None else now + job.deadline,
    }
    _insert(connection, "jobs", [row])
    if job.state == "paused":
        _insert(connection, "events", [{"subject": f"job:{number}", "at": now - HOUR, "act": "paused", "detail": None}])
    rows = [_item(number, job, position, now, chance, left) for position in range(job.total)]
    _insert(connection, "items", [one for one, _ in rows])
    _insert(connection, "attempts", [attempt for _, attempts in rows for attempt in attempts])
    first = item_range(number)[0]
    body = {
        "call": "2026-11-15/0412",
        "language": "en",
        "model": "gpt-5-mini",
        "instructions": "Summarise in five points.",
    }
    _insert(connection, "requests", [{"item_id": first + n, "body": json.dumps({**body, "n": n})} for n in range(400)])


def _item(
    number: int, job: Job, position: int, now: int, chance: Random, left: int
) -> tuple[dict[str, Any], list[Any]]:
    """The failed are every seventh from the start; the last are those that wait."""
    item, began = item_range(number)[0] + position, now - job.began
    took = job.took or job.began
    at = began + 10 * SECOND + (took - 20 * SECOND) * position // job.total
    is_failed = position % 7 == 0 and position // 7 < job.failed
    is_open = job.took is None and position >= job.total - left
    is_sent = is_open and job.state == "running" and position < job.total - left + 24
    state = "submitting" if is_sent else "queued" if is_open else "failed" if is_failed else "succeeded"
    row: dict[str, Any] = {
        **{"id": item, "job_id": number, "handler": job.handler, "state": state, "order_key": item, "fence": 0},
        **{"attempt_count": 0, "created_at": began, "queued_at": began, "last_attempt_at": None, "finished_at": None},
        **{"error_code": None, "leased_by": None, "lease_expires_at": None, "reconcile_after": None},
    }
    if is_sent:
        lease = {"leased_by": "w-7f3a:1", "lease_expires_at": now + HOUR, "reconcile_after": now + HOUR}
        return {**row, **lease, "fence": 1, "last_attempt_at": now - 2 * SECOND}, []
    if is_open:
        return row, []
    error = ERRORS[chance.randrange(len(ERRORS))] if is_failed else (None, 200, None, 1)
    attempts = [_attempt(item, at, n, error, chance) for n in range(1, error[3] + 1)]
    last = attempts[-1]
    ended = {"last_attempt_at": last["started_at"], "finished_at": last["ended_at"], "error_code": error[0]}
    return {**row, **ended, "fence": len(attempts), "attempt_count": len(attempts)}, attempts


def _attempt(item: int, at: int, n: int, error: tuple[Any, ...], chance: Random) -> dict[str, Any]:
    """The nth try of an item that came to this error, or to none."""
    code, status, message, tries = error
    spent, wait = int(4_000 + 5_000 * chance.random()), (n - 1) * 35 * SECOND
    length = int(700 + 2_400 * chance.random())
    said = json.dumps({"summary": ["Asks for a refund", "Was sent a wrong size"], "mood": "calm"})
    ended = "succeeded" if code is None else "failed"
    return {
        **{"item_id": item, "fence": n, "number": n, "started_at": at + wait, "ended_at": at + wait + length},
        **{"outcome": ended if n == tries else "retry", "error_code": code, "message": message},
        **{"provider_status": status, "result": said if code is None else None},
        **{"input_tokens": spent // 3, "output_tokens": spent // 11},
        "cost_micros": spent if status in (200, 400) else None,
    }


def _around(connection: sqlite3.Connection, now: int) -> None:
    """Workers, paces, what was replayed and archived, and a result that came late."""
    told = json.dumps(PROVIDERS)
    columns = "id host pid handlers started_at seen_at stopped_at"
    alive = ("7f3a", 2214, 3), ("c01d", 871, 3), ("9be2", 4410, 1)
    for number, (name, pid, days) in enumerate(alive, 1):
        row = (f"w-{name}", f"batch-{number}.internal", pid, told, now - days * DAY, now - 2 * SECOND, None)
        _add(connection, "workers", columns, row)
    gone = now - 9 * HOUR
    _add(connection, "workers", columns, ("w-51aa", "batch-4.internal", 993, told, now - 2 * DAY, gone, gone))
    columns = "provider requests_per_minute tokens_per_minute concurrency ceiling"
    _add(connection, "paces", columns, ("openai", 10_000, 4_000_000, 128, 96), ("anthropic", 2_000, None, 32, 32))
    for seconds, change in (
        (0, ("breaker_open", "11 of 20 calls failed, the last with 503")),
        (90, ("breaker_half_open", None)),
    ):
        at = now - 7 * HOUR + seconds * SECOND
        _add(connection, "events", "subject at act detail", ("provider:openai", at, *change))
    columns = "owner by at filter items rate until_at expected"
    _add(connection, "replays", columns, ("ada", "ops-laptop", now - DAY, '{"code": "GW_5XX"}', 312, None, None, 312))
    slow = (
        "ada",
        "marie",
        now - 8 * MINUTE_MS,
        '{"job": "3", "code": "GW_TIMEOUT"}',
        600,
        0.5,
        now + 12 * MINUTE_MS,
        600,
    )
    _add(connection, "replays", columns, slow)
    columns = "owner blob items bytes first_at last_at created_at"
    _add(connection, "archives", columns, ("ada", "x", 1_904, 2_310_442, now - 12 * DAY, now - 8 * DAY, now - 7 * DAY))
    late = json.dumps({"status": "succeeded", "result": {"summary": ["Wants a call back on Tuesday"]}})
    columns = "owner item_id fence kind received_at body is_late digest"
    came = ("ada", item_range(6)[0] + 7, 1, "succeeded", now - 40 * MINUTE_MS, late, 1, "late")
    _add(connection, "inbox", columns, came)


async def _measured(measures: Measures, now: int, chance: Random) -> None:
    """A week that ebbs at night, and a last hour with a dip in it."""
    sums: dict[MeasureSlot, Measure] = {}
    for ago in [*range(90), *range(90, 7 * 24 * 60, 10)]:
        minute = now // MINUTE_MS - ago
        tide = 0.55 + 0.45 * math.sin(ago / 229) + 0.12 * chance.random()
        calls = int((30 if 21 < ago < 27 else 260) * tide * (10 if ago >= 90 else 1))
        failed, spread = (calls // 9 if 20 < ago < 28 else calls // 160), [int(calls * part) for part in SPREAD]
        spread[3] += calls - sum(spread)
        latency = sum(n * edge for n, edge in zip(spread, (*LATENCY_MS, 90_000), strict=True)) * 6 // 10
        latency = latency * 3 if 20 < ago < 28 else latency
        counts = (
            calls - failed,
            failed,
            failed * 2,
            int(ago == 24),
            calls,
            latency,
            calls * 6_900,
            calls * 1_800,
            calls * 240,
        )
        sums[MeasureSlot(minute, MeasureSource("ada", "summarize_call", "openai"))] = Measure(*counts, *spread)
    await measures.add("w-7f3a", sums)


def _insert(connection: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        _add(connection, table, " ".join(rows[0]), *(tuple(row.values()) for row in rows))


def _add(connection: sqlite3.Connection, table: str, columns: str, *rows: tuple[Any, ...]) -> None:
    names = ", ".join(f'"{name}"' for name in columns.split())
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)
