"""How PostgreSQL goes about each statement when a year of finished work is in the way: never by a whole table."""

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from backstay.core.ids import POSITION_BITS
from backstay.store.queries import POSTGRES, Query, queries_for
from tests.servers.postgres import RunningPostgres
from tests.store.crowded_tables import PAUSED_JOB, READY_JOB, crowd_at_the_head, fill
from tests.store.statements import BIG, CLAIMED, PARK, PAUSE, VALUES, batch_of, statements, values_for


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

    def take_for_empty(self) -> None:
        """As after an ANALYZE of tables whose rows had been deleted: only a sure plan is a good one."""
        self.change(Weather(False, "force_custom_plan"))
        self.run("DELETE FROM pg_statistic WHERE starelid = 'deliveries'::regclass")
        self.run("UPDATE pg_class SET reltuples = 0, relpages = 1 WHERE relname IN ('items', 'deliveries')")

    def explain(self, query: Query, values: dict[str, Any], options: str, *before: str) -> dict[str, Any]:
        """The plan of one statement, run or not, with nothing of it kept."""
        mode = f"SET plan_cache_mode = {self.mode}"
        said = self.run(mode, "BEGIN", *before, *_explain(query, values, options), "ROLLBACK")
        plan: dict[str, Any] = json.loads(said)[0]["Plan"]
        return plan

    def explain_all(self) -> dict[str, dict[str, Any]]:
        """The plans of all statements, by name: none is run."""
        names, queries = statements(POSTGRES), queries_for(POSTGRES)
        script = [f"SET plan_cache_mode = {self.mode}"]
        for name in names:
            script += [*_explain(queries[name], values_for(name), ""), "DEALLOCATE asked"]
        said, at, plans = self.server.execute_script(";\n".join(script) + ";\n", self.dbname), 0, {}
        for name in names:
            [plan], end = json.JSONDecoder().raw_decode(said, at)
            plans[name], at = plan["Plan"], end + 1
        return plans


def _explain(query: Query, values: dict[str, Any], options: str) -> tuple[str, str]:
    given = {**values, **{f"batch_{column}": rows for column, rows in batch_of(query).items()}}
    arguments = ", ".join(_literal(given[name]) for name in query.names)
    asked = "asked" + (f"({arguments})" if arguments else "")
    return f"PREPARE asked AS {query.sql}", f"EXPLAIN (FORMAT JSON{options}) EXECUTE {asked}"


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


def test_postgres_reads_no_big_table_from_end_to_end(planner: Crowded) -> None:
    found = {name: whole_table_scans(plan, planner.partial) for name, plan in planner.explain_all().items()}
    assert {name: scans for name, scans in found.items() if scans} == {}


def test_a_scan_of_a_whole_table_is_found(crowded: Crowded) -> None:
    crowded.change(Weather(True, "force_custom_plan"))
    for sql in ("SELECT count(repeats) FROM items", "SELECT id FROM items ORDER BY id"):
        assert whole_table_scans(crowded.explain(Query(sql, (), ()), {}, ""), crowded.partial) != []


FIRST_BLOCKS_MAX = 40  # to find a first row, and the first beside that


@pytest.mark.parametrize("name", ["next_due", "next_parked", "waiting_webhooks"])
def test_the_first_row_is_found_at_once_also_in_a_table_that_postgres_takes_for_empty(
    crowded: Crowded, name: str
) -> None:
    crowded.take_for_empty()
    values = values_for(name) | ({"past": ""} if name == "waiting_webhooks" else {})
    assert _blocks(crowded.explain(queries_for(POSTGRES)[name], values, ", ANALYZE, BUFFERS")) <= FIRST_BLOCKS_MAX


PAGES = 12
PLANNED_ANEW_MAX = 5  # after so many PostgreSQL judges whether planning is worth its time


@pytest.mark.slow
def test_a_page_of_a_large_table_is_not_planned_anew_each_time(crowded: Crowded) -> None:
    crowded.change(Weather(True, "auto"))
    query, first = queries_for(POSTGRES)["items_page"], READY_JOB << POSITION_BITS
    values = {
        "cursor": first + 50,
        "upto": first + 9_000,
        "state": "queued",
        "error_code": None,
        "n": 50,
        "owner": "ann",
    }
    arguments = ", ".join(_literal(values[name]) for name in query.names)
    said = crowded.run(
        f"PREPARE asked AS {query.sql}",
        *[f"EXECUTE asked({arguments})"] * PAGES,
        "SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE name = 'asked'",
    )
    assert said.splitlines()[-1] == f"{PLANNED_ANEW_MAX}|{PAGES - PLANNED_ANEW_MAX}"


def claim_blocks(planner: Crowded, *before: str) -> tuple[int, int]:
    """The blocks that a claim of 500 touches: to find its items, and in all."""
    plan = planner.explain(queries_for(POSTGRES)["claim"], VALUES, ", ANALYZE, BUFFERS", *before)
    picked = next(node for node in nodes(plan) if node.get("Subplan Name") == "CTE picked")
    assert picked["Actual Rows"] == CLAIMED
    return _blocks(picked), _blocks(plan)


def _blocks(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


FOUND_BLOCKS_MAX = CLAIMED * 4  # the item's row, read and locked, and its share of the index
WATCHERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL"
)
ALONE_SECONDS_MAX = 120
CLAIM_BLOCKS_MAX = CLAIMED * 30  # with what the update does to the table and its indexes


def alone(planner: Crowded) -> bool:
    """Whether nobody else looks at this database: an autovacuum of the catalogue may, and then want to see the dead."""
    return planner.run(WATCHERS) == "0"


def settled_claim(planner: Crowded) -> tuple[int, int]:
    """What a claim reads after one that could mark what earlier tests left dead in the index, and pass it by."""
    end = time.monotonic() + ALONE_SECONDS_MAX
    while True:
        before = alone(planner)
        claim_blocks(planner)
        if before and alone(planner):
            return claim_blocks(planner)
        assert time.monotonic() < end, "somebody is at this database all the time"


def test_a_claim_on_postgres_touches_little_more_than_what_it_takes(planner: Crowded) -> None:
    found, in_all = settled_claim(planner)
    assert found <= FOUND_BLOCKS_MAX
    assert in_all <= CLAIM_BLOCKS_MAX


def test_postgres_finds_the_items_of_one_job_between_the_keys_of_its_first_and_last(planner: Crowded) -> None:
    before = crowd_at_the_head(PAUSED_JOB)
    plan = planner.explain(queries_for(POSTGRES)["pick_of_job"], VALUES, ", ANALYZE, BUFFERS", *before)
    assert plan["Actual Rows"] == CLAIMED
    assert _blocks(plan) <= FOUND_BLOCKS_MAX


@pytest.mark.slow
def test_a_claim_on_postgres_passes_a_held_handler_and_a_parked_job_by(crowded: Crowded) -> None:
    crowded.change(Weather(True, "force_generic_plan"))
    for statement in crowd_at_the_head(PAUSED_JOB):
        crowded.run(statement)
    crowded.run(PAUSE)
    unparked = claim_blocks(crowded)
    crowded.run(PARK)
    parked = settled_claim(crowded)
    crowded.run("VACUUM items")
    vacuumed = claim_blocks(crowded)
    print(f"blocks to find 500, and in all: {unparked=} {parked=} {vacuumed=}")
    assert parked[0] <= FOUND_BLOCKS_MAX
    assert parked[1] <= CLAIM_BLOCKS_MAX
    assert vacuumed[0] <= FOUND_BLOCKS_MAX
