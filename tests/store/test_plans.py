"""How the databases go about each statement when a year of finished work is in the way: never by a whole table."""

import json
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backstay.core.ids import item_id, item_range
from backstay.store.park import parked_at
from backstay.store.queries import POSTGRES, SQLITE, Query, queries_for
from tests.servers.postgres import RunningPostgres
from tests.store.crowd import (
    FUTURE_MS,
    NOW_MS,
    PAUSED_JOB,
    READY_ITEMS,
    READY_JOB,
    crowd_at_the_head,
    fill,
)

pytestmark = pytest.mark.xdist_group("plans")

BIG = {"items", "requests", "attempts", "events", "jobs"}
CLAIMED = 500
FIRST, AFTER = item_range(READY_JOB)
FIRST_PAUSED = item_range(PAUSED_JOB)[0]
IDS = [item_id(READY_JOB, position) for position in range(CLAIMED)]

# A value for every name that any statement has; a new name fails the tests until it has one here.
VALUES: dict[str, Any] = {
    **dict.fromkeys(("n", "items_max"), CLAIMED),
    **dict.fromkeys(("handler",), "echo"),
    **dict.fromkeys(("worker", "id", "host", "handlers", "name", "ref_seed", "digest", "reason", "label"), "w"),
    **dict.fromkeys(("lease_ms", "reconcile_ms", "probe_ms", "age_ms", "job_timeout_ms", "deadline_ms"), 5_000),
    **dict.fromkeys(("added", "retried", "pid", "askable", "priority", "timed_out", "round", "rescues", "repeats"), 1),
    "number": 1,
    **dict.fromkeys(
        ("since_at", "until_at", "delay_ms", "attempt_count", "progress", "total", "sealed", "position_bits"), 1
    ),
    **dict.fromkeys(("repeated", "anew"), 1),
    **dict.fromkeys(("account", "retry", "delivery", "error_code", "idempotency_key", "provider_task_id"), None),
    **{"owner": "local", "state": "queued", "was": "submitting", "calls": "[]", "subject": "item:1"},
    **{
        "job_id": READY_JOB,
        "item_id": IDS[0],
        "expected": READY_ITEMS,
        "first": FIRST,
        "cursor": FIRST,
        "after": AFTER,
    },
    **dict.fromkeys(("provider", "paced", "paced_then", "spec", "place", "claims", "handler_then"), "w"),
    **dict.fromkeys(("concurrency", "ceiling", "requests_at", "tokens_at", "resume_at", "budget_micros", "move_ms"), 1),
    **{"requests_per_minute": None, "tokens_per_minute": None},
    **{"looked": CLAIMED, "upto": FIRST + CLAIMED, "downto": 0, "replayable": 1},
    **dict.fromkeys(("url", "events", "error", "kind", "body", "task", "accepted_by"), "w"),
    **dict.fromkeys(("enabled", "told", "failed", "is_late", "fence", "tries", "delivery"), 1),
    **{"grace_ms": 1, "lasting_ms": 1, "answered": 200, "key": "w", "token": "w", "headers": "w", "role": "read"},
    "lives_ms": 1,
    **dict.fromkeys(("filename", "purpose", "blob", "part", "survey", "input_file_id", "endpoint", "span"), "w"),
    **dict.fromkeys(
        ("completion_window", "metadata", "status", "model", "errors", "output_file_id", "error_file_id"), "w"
    ),
    **dict.fromkeys(("bytes", "lives_ms", "window_ms", "output_seconds", "requests"), 1),
    "created_at": NOW_MS,
    **{"before": AFTER, "parked_at": parked_at(PAUSED_JOB), "now": NOW_MS, "batch": "[]"},
}
NEXT_PARKED = {"after": FUTURE_MS}


def values_for(name: str) -> dict[str, Any]:
    own = {"account": ""} if name == "poll" else NEXT_PARKED if name == "next_parked" else {}
    return {**VALUES, **own}


def batch_of(query: Query) -> dict[str, list[Any]]:
    """A batch by its columns: five hundred items, or the handful of jobs that they belong to."""
    is_about_jobs = "UPDATE jobs" in query.sql or "budget_micros" in query.sql
    ids = [READY_JOB + number for number in range(5)] if is_about_jobs else IDS
    named = ("id", "item_id", "job_id")
    return {column: ids if column in named else [VALUES.get(column, 1)] * len(ids) for column in query.columns}


def statements(dialect: Any) -> list[str]:
    return sorted(queries_for(dialect))


# PostgreSQL


class Weather(NamedTuple):
    """What the planner knows, and whether it plans for the values at hand or once for all."""

    analysed: bool
    plan_cache_mode: str


WEATHERS = [Weather(analysed, f"force_{mode}_plan") for analysed in (False, True) for mode in ("custom", "generic")]


class Crowded:
    """A crowded PostgreSQL database and its planner."""

    def __init__(self, server: RunningPostgres, url: str) -> None:
        self.server = server
        self.dbname = url.rpartition("/")[2]
        self.mode = WEATHERS[0].plan_cache_mode
        partial = self.run("SELECT indexrelid::regclass FROM pg_index WHERE indpred IS NOT NULL")
        self.partial = set(partial.split())

    def run(self, *statements: str) -> str:
        return self.server.execute("; ".join(statements), self.dbname)

    def change(self, weather: Weather) -> None:
        self.mode = weather.plan_cache_mode
        if weather.analysed:
            self.run("ANALYZE")
        else:
            tables = ", ".join(f"'{table}'::regclass" for table in sorted(BIG))
            self.run(f"DELETE FROM pg_statistic WHERE starelid IN ({tables})")
            self.run(f"UPDATE pg_class SET reltuples = -1 WHERE oid IN ({tables})")

    def explain(self, query: Query, values: dict[str, Any], options: str, *before: str) -> dict[str, Any]:
        """The plan of one statement, run or not, with nothing of it kept."""
        given = {**values, **{f"batch_{column}": rows for column, rows in batch_of(query).items()}}
        arguments = ", ".join(_literal(given[name]) for name in query.names)
        said = self.run(
            f"SET plan_cache_mode = {self.mode}",
            "BEGIN",
            *before,
            f"PREPARE asked AS {query.sql}",
            f"EXPLAIN (FORMAT JSON{options}) EXECUTE asked" + (f"({arguments})" if arguments else ""),
            "ROLLBACK",
        )
        plan: dict[str, Any] = json.loads(said)[0]["Plan"]
        return plan


def _literal(value: Any) -> str:
    """A value as an untyped literal; the prepared statement's parameter gives it its type."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        value = "{" + ",".join("NULL" if one is None else str(one) for one in value) + "}"
    return "'" + str(value).replace("'", "''") + "'"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def whole_table_scans(plan: dict[str, Any], partial: set[str]) -> list[str]:
    """Steps that read a big table from end to end, be it along an index."""
    found = []
    for node in nodes(plan):
        kind, index = node["Node Type"], node.get("Index Name")
        if kind == "Seq Scan" and node["Relation Name"] in BIG:
            found.append(f"Seq Scan on {node['Relation Name']}")
        if index is not None and "Index Cond" not in node and index not in partial and _is_big(index):
            found.append(f"{kind} of all of {index}")
    return found


def _is_big(index: str) -> bool:
    return any(table in index for table in BIG)


@pytest.fixture(scope="module")
def crowded(postgres: RunningPostgres, postgres_template: str) -> Iterator[Crowded]:
    url = postgres.create_database(postgres_template)
    made = Crowded(postgres, url)
    for table in sorted(BIG):
        made.run(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        made.run(f"ALTER TABLE {table} SET UNLOGGED")  # for a quick fill; it makes no difference to the planner
    for statement in fill("postgres"):
        made.run(statement)
    yield made
    postgres.drop_database(url)


@pytest.fixture(
    scope="module", params=WEATHERS, ids=lambda w: f"{'analysed' if w.analysed else 'no_statistics'}-{w[1]}"
)
def planner(request: pytest.FixtureRequest, crowded: Crowded) -> Crowded:
    crowded.change(request.param)
    return crowded


@pytest.mark.parametrize("name", statements(POSTGRES))
def test_postgres_reads_no_big_table_from_end_to_end(planner: Crowded, name: str) -> None:
    plan = planner.explain(queries_for(POSTGRES)[name], values_for(name), "")
    assert whole_table_scans(plan, planner.partial) == []


def test_a_scan_of_a_whole_table_is_found(crowded: Crowded) -> None:
    crowded.change(Weather(True, "force_custom_plan"))
    for sql in ("SELECT count(repeats) FROM items", "SELECT id FROM items ORDER BY id"):
        assert whole_table_scans(crowded.explain(Query(sql, (), ()), {}, ""), crowded.partial) != []


def claim_blocks(planner: Crowded, *before: str) -> tuple[int, int]:
    """The blocks that a claim of 500 touches: to find its items, and in all."""
    plan = planner.explain(queries_for(POSTGRES)["claim"], VALUES, ", ANALYZE, BUFFERS", *before)
    picked = next(node for node in nodes(plan) if node.get("Subplan Name") == "CTE picked")
    assert picked["Actual Rows"] == CLAIMED
    return _blocks(picked), _blocks(plan)


def _blocks(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


PAUSE = f"UPDATE jobs SET state = 'paused', held = 1 WHERE id = {PAUSED_JOB}"
PARK = f"UPDATE items SET due_at = {parked_at(PAUSED_JOB)} WHERE id BETWEEN {FIRST_PAUSED} AND {FIRST_PAUSED} + 1000000"
FOUND_BLOCKS_MAX = CLAIMED * 4  # the item's row, read and locked, and its share of the index
CLAIMS_MAX = 60
CLAIM_BLOCKS_MAX = CLAIMED * 30  # with what the update does to the table and its indexes


def test_a_claim_on_postgres_touches_little_more_than_what_it_takes(planner: Crowded) -> None:
    found, in_all = claim_blocks(planner)
    assert found <= FOUND_BLOCKS_MAX
    assert in_all <= CLAIM_BLOCKS_MAX


def test_a_claim_on_postgres_passes_a_held_handler_and_a_parked_job_by(crowded: Crowded) -> None:
    crowded.change(Weather(True, "force_generic_plan"))
    for statement in crowd_at_the_head(PAUSED_JOB):
        crowded.run(statement)
    crowded.run(PAUSE)
    unparked = claim_blocks(crowded)
    crowded.run(PARK)
    # The first claim after it still meets the entries that parking left dead in the index, and marks them so, unless
    # an autovacuum that began before it may still want to see them.
    parked = [claim_blocks(crowded), claim_blocks(crowded)]
    while parked[-1][0] > FOUND_BLOCKS_MAX and len(parked) < CLAIMS_MAX:
        time.sleep(1)
        parked.append(claim_blocks(crowded))
    crowded.run("VACUUM items")
    vacuumed = claim_blocks(crowded)
    print(f"blocks to find 500, and in all: {unparked=} {parked=} {vacuumed=}")
    assert parked[-1][0] <= FOUND_BLOCKS_MAX
    assert parked[-1][1] <= CLAIM_BLOCKS_MAX
    assert vacuumed[0] <= FOUND_BLOCKS_MAX


# SQLite


class CrowdedFile:
    """A crowded SQLite database and its planner."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        for statement in fill("sqlite"):
            self.connection.execute(statement)
        partial = self.connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'"
        )
        self.partial = {name for (name,) in partial}

    def explain(self, query: Query, values: dict[str, Any]) -> list[str]:
        rows = self.connection.execute(f"EXPLAIN QUERY PLAN {query.sql}", {**values, "batch": batch_json(query)})
        return [str(row[3]) for row in rows]

    def whole_table_scans(self, plan: Sequence[str]) -> list[str]:
        """Lines that read a big table from end to end; along a partial index it is only what the index holds."""
        found = [line for line in plan if (scan := _SCAN.match(line)) and scan["table"] in BIG]
        return [line for line in found if not (self.partial & set(line.split()))]

    def claim_steps(self) -> int:
        """The steps of SQLite's machine that a claim of 500 takes."""
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += STEP
            return 0

        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.set_progress_handler(count, STEP)
        claimed = self.connection.execute(queries_for(SQLITE)["claim"].sql, VALUES).fetchall()
        self.connection.set_progress_handler(None, 0)
        self.connection.execute("ROLLBACK")
        assert len(claimed) == CLAIMED
        return steps


_SCAN = re.compile(r"SCAN (?P<table>\w+)")
STEP = 100
CLAIM_STEPS_MAX = CLAIMED * 400


def batch_json(query: Query) -> str:
    return json.dumps(list(zip(*batch_of(query).values(), strict=True)))


@pytest.fixture(scope="module")
def crowded_file(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrowdedFile]:
    made = CrowdedFile(Path(shutil.copy(sqlite_template, tmp_path_factory.mktemp("crowded") / "backstay.db")))
    yield made
    made.connection.close()


@pytest.fixture(scope="module", params=["no_statistics", "analysed"])
def file_planner(request: pytest.FixtureRequest, crowded_file: CrowdedFile) -> CrowdedFile:
    if request.param == "analysed":
        crowded_file.connection.execute("ANALYZE")
    return crowded_file


@pytest.mark.parametrize("name", statements(SQLITE))
def test_sqlite_reads_no_big_table_from_end_to_end(file_planner: CrowdedFile, name: str) -> None:
    plan = file_planner.explain(queries_for(SQLITE)[name], values_for(name))
    assert file_planner.whole_table_scans(plan) == []


def test_sqlite_counts_what_is_under_way_by_the_few_that_are(file_planner: CrowdedFile) -> None:
    plan = file_planner.explain(queries_for(SQLITE)["under_way"], VALUES)
    assert [line for line in plan if "items" in line and "ix_items_" not in line] == []


def test_a_scan_of_a_whole_file_is_found(crowded_file: CrowdedFile) -> None:
    for sql in ("SELECT count(repeats) FROM items", "SELECT id FROM items ORDER BY repeats"):
        assert crowded_file.whole_table_scans(crowded_file.explain(Query(sql, (), ()), {})) != []


def test_a_claim_on_sqlite_passes_a_held_handler_and_a_parked_job_by(file_planner: CrowdedFile) -> None:
    run = file_planner.connection.execute
    plain = file_planner.claim_steps()
    assert plain <= CLAIM_STEPS_MAX
    run("BEGIN")
    for statement in crowd_at_the_head(PAUSED_JOB):
        run(statement)
    run(PAUSE)
    run("COMMIT")
    unparked = file_planner.claim_steps()
    run(PARK)
    parked = file_planner.claim_steps()
    print(f"steps: {plain=} {unparked=} {parked=}")
    run("DELETE FROM items WHERE job_id = ?", (PAUSED_JOB,))
    run("DELETE FROM jobs WHERE id = ?", (PAUSED_JOB,))
    assert parked <= plain * 1.2
