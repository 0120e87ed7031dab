"""A batch is found by its keys on PostgreSQL even when the statistics are of a time when nothing was leased."""

from collections.abc import AsyncIterator

import pytest

from backstay.store.databases.postgres import PLANS
from backstay.store.queries import POSTGRES, queries_for
from backstay.wiring import open_store
from tests.servers.postgres import RunningPostgres
from tests.store.statements import VALUES
from tests.store.store_rig import chunk, new_job
from tests.store.test_plans import Crowded, nodes

ITEMS = 20_000
OF_ITEMS = (
    "settle_items",
    "settle_ended",
    "settle_few",
    "claim_picked",
    "claim_named",
    "extend",
    "extend_polls",
    "held_still",
    "report_progress",
    "hinted_items",
)


@pytest.fixture
async def planner(postgres: RunningPostgres, postgres_template: str) -> AsyncIterator[Crowded]:
    url = postgres.create_database(postgres_template)
    store = await open_store(url)
    await store.submissions.open(new_job(), chunk(0, ITEMS, last=True))
    await store.close()
    made = Crowded(postgres, url)
    made.run("ANALYZE items")
    yield made
    postgres.drop_database(url)


@pytest.mark.parametrize("name", OF_ITEMS)
def test_no_statement_joins_all_items_with_its_batch(planner: Crowded, name: str) -> None:
    settings = [f"SET LOCAL {setting} = {value}" for setting, value in PLANS.items()]
    plan = planner.explain(queries_for(POSTGRES)[name], VALUES, "", *settings)
    of_items = [node for node in nodes(plan) if node.get("Relation Name") == "items"]
    reads = [node for node in of_items if node["Node Type"] != "ModifyTable"]
    assert reads
    assert [node["Node Type"] for node in reads if "Index Cond" not in node] == []
