"""How SQLite goes about each statement when a year of finished work is in the way: never by a whole table."""

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from backstay.store.queries import SQLITE, Query, queries_for
from tests.store.crowded_tables import PAUSED_JOB, crowd_at_the_head, fill
from tests.store.statements import BIG, CLAIMED, PARK, PAUSE, VALUES, batch_of, statements, values_for


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


def test_sqlite_finds_the_items_of_one_job_between_the_keys_of_its_first_and_last(file_planner: CrowdedFile) -> None:
    plan = file_planner.explain(queries_for(SQLITE)["pick_of_job"], VALUES)
    assert plan[0] == "SEARCH items USING INDEX ix_items_ready (handler=? AND order_key>? AND order_key<?)"
    assert not any("TEMP B-TREE" in line for line in plan)


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
