"""A relay finds what is pending, and what is to be pruned, by an index, however many messages have left before."""

import sqlite3
from collections.abc import Iterator

import pytest

from backstay.store.databases.postgres import PLANS
from backstay.store.queries import POSTGRES, SQLITE, queries_for
from tests.servers.postgres import RunningPostgres
from tests.store.statements import VALUES
from tests.store.test_plans import Crowded, nodes

LEFT = 20_000
INDEXES = {
    "claim_messages": "ix_outbox_pending",
    "outbox_lag": "ix_outbox_pending",
    "drop_pending": "ix_outbox_pending",
    "pending_messages": "ix_outbox_pending",
    "drop_published": "ix_outbox_done",
    "forget_messages": "ix_outbox_done",
}
FILL = (
    "INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, status, created_at, processed_at,"
    " sink)"
    " SELECT 'ann', 'items', n, 'work.ready', '{{}}', 'published', n, n,"
    " CASE WHEN n % 2 = 0 THEN 'work' ELSE 'webhooks' END"
    " FROM {numbers}"
)


@pytest.fixture
def planner(postgres: RunningPostgres, postgres_template: str) -> Iterator[Crowded]:
    url = postgres.create_database(postgres_template)
    made = Crowded(postgres, url)
    made.run(FILL.format(numbers=f"generate_series(1, {LEFT}) AS n"))
    made.run("ANALYZE outbox")
    yield made
    postgres.drop_database(url)


def test_postgres_goes_by_an_index(planner: Crowded) -> None:
    settings = [f"SET LOCAL {setting} = {value}" for setting, value in PLANS.items()]
    for name, index in INDEXES.items():
        plan = planner.explain(queries_for(POSTGRES)[name], VALUES, "", *settings)
        scans = {node.get("Index Name") for node in nodes(plan) if node.get("Relation Name") == "outbox"}
        assert index in scans, name
        assert scans <= {index, "outbox_pkey", None}, name
        assert not [node for node in nodes(plan) if node["Node Type"] == "Seq Scan"], name


def test_sqlite_goes_by_an_index(sqlite_file_url: str) -> None:
    connection = sqlite3.connect(sqlite_file_url.removeprefix("sqlite:///"))
    numbers = f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {LEFT}) SELECT n FROM c)"
    connection.execute(FILL.format(numbers=numbers))
    for _ in range(2):  # without statistics, and with them
        for name, index in INDEXES.items():
            plan = connection.execute(f"EXPLAIN QUERY PLAN {queries_for(SQLITE)[name].sql}", VALUES).fetchall()
            reads = [str(row[3]) for row in plan if " outbox" in str(row[3])]
            assert any(index in line for line in reads), name
            assert all(line.startswith("SEARCH outbox") for line in reads), name
        connection.execute("ANALYZE")
    connection.close()
