"""Who waits for whom on PostgreSQL: never in a circle, and nobody's lease waits for another's commit."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from backstay.core.errors import DatabaseUnreachable
from backstay.core.models import Claimed, Outcome
from backstay.core.money import Budget, Period
from backstay.store.databases.postgres import TRIES_MAX, PostgresDatabase
from backstay.store.items import ClaimedItems, Want
from backstay.store.queries import Ask
from backstay.store.store import Store
from tests.databases import START_MS, Site, Ticker
from tests.store.store_rig import LEASE_MS, OK, WRONG, chunk, decided, new_job

PATIENCE_SECONDS = 20


@pytest.fixture
async def site(reused_postgres_url: str) -> AsyncIterator[Site]:
    made = Site(reused_postgres_url, Ticker())
    await made.empty()
    yield made
    await made.close()


@asynccontextmanager
async def holding(site: Site, sql: str) -> AsyncIterator[None]:
    """Somebody else's transaction: it has done this, and commits at the end."""
    connection = await asyncpg.connect(site.url)
    try:
        async with connection.transaction():
            await connection.execute(sql)
            yield
    finally:
        await connection.close()


async def somebody_waits(site: Site) -> None:
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await site.one(asked):
                return
            await asyncio.sleep(0.01)


async def claimed(store: Store, jobs: int, items: int = 1, handler: str = "echo") -> list[Claimed]:
    for _ in range(jobs):
        await store.submissions.open(new_job(handler=handler), chunk(0, items, last=True))
    return (await store.items.claim([Want(handler, jobs * items, 1)], "w1", LEASE_MS)).items


async def test_a_beat_passes_by_what_is_being_settled_and_does_not_call_it_lost(site: Site, store: Store) -> None:
    items = await claimed(store, jobs=1, items=3)
    leases = [(item.id, item.fence) for item in items]
    await site.advance(10)
    async with holding(site, f"SELECT FROM items WHERE id = {items[1].id} FOR UPDATE"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await store.items.extend(leases, LEASE_MS, "w1") == set()
    old, new = START_MS + LEASE_MS, START_MS + LEASE_MS + 10_000
    asked = "SELECT lease_expires_at FROM items ORDER BY id"
    assert await site.rows(asked) == [(new,), (old,), (new,)]
    assert await store.items.extend(leases, LEASE_MS, "w1") == set()
    assert await site.rows(asked) == [(new,)] * 3


async def test_progress_of_what_is_in_other_hands_is_said_to_be_unwritten(site: Site, store: Store) -> None:
    first, second = await claimed(store, jobs=1, items=2)
    async with holding(site, f"SELECT FROM items WHERE id = {first.id} FOR UPDATE"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            said = [(first.id, first.fence, 40), (second.id, second.fence, 60)]
            assert await store.items.report_progress(said) == {second.id}
    assert await site.rows("SELECT progress FROM items ORDER BY id") == [(0,), (60,)]


@pytest.mark.parametrize("outcomes", [[OK], [OK, WRONG]], ids=["in one statement", "in a transaction"])
async def test_a_settlement_takes_its_jobs_in_order(site: Site, store: Store, outcomes: Sequence[Outcome]) -> None:
    items = await claimed(store, jobs=9)
    first, *others = [item.job_id for item in items]
    fates = [outcomes[n % len(outcomes)] for n in range(len(items))]
    settlements = [decided(item, fate, START_MS) for item, fate in zip(items, fates, strict=True)]
    async with holding(site, f"SELECT FROM jobs WHERE id = {first} FOR UPDATE"):
        settling = asyncio.create_task(store.items.settle(settlements[::-1]))
        await somebody_waits(site)
        free = await site.rows("SELECT id FROM jobs ORDER BY id FOR UPDATE SKIP LOCKED")
    assert [job_id for (job_id,) in free] == others, "who waits for the first holds none of the others"
    assert len((await settling).applied) == len(items)


async def test_a_claim_holds_one_providers_pace_at_a_time(site: Site, store: Store) -> None:
    wants = [Want(name, 5, 0, name) for name in ("one", "two")]
    for want in wants:
        await store.providers.set_pace(want.handler, (None, None), concurrency=10)
        await store.submissions.open(new_job(handler=want.handler), chunk(0, 3, last=True))
    async with holding(site, "SELECT FROM paces WHERE provider = 'two' FOR UPDATE"):
        claiming = asyncio.create_task(store.items.claim(wants, "w1:1", LEASE_MS, room=4))
        await somebody_waits(site)
        assert await site.rows("SELECT provider FROM paces FOR UPDATE SKIP LOCKED") == [("one",)]
    assert [item.handler for item in (await claiming).items] == ["one", "one", "two", "two"]


async def priced_job(store: Store, budget: int) -> list[Want]:
    """A job of five items that cost 10 each, and what a worker wants of it."""
    await store.providers.set_pace("echo", (None, None), concurrency=10)
    weighed = chunk(0, 5, last=True)._replace(weights=[(10, 1, 0)] * 5)
    await store.submissions.open(new_job(budget_micros=budget), weighed)
    return [Want("echo", 5, 0, "echo")]


async def test_money_that_is_spent_while_a_claim_waits_for_its_job_is_not_spent_again(site: Site, store: Store) -> None:
    wants = await priced_job(store, budget=50)
    async with holding(site, "UPDATE jobs SET spent_micros = 30"):
        claiming = asyncio.create_task(store.items.claim(wants, "w1:1", LEASE_MS))
        await somebody_waits(site)
    assert [item.reserved for item in (await claiming).items] == [10, 10]
    assert await site.rows("SELECT spent_micros, reserved_micros, short FROM jobs") == [(30, 20, 1)]
    assert await site.rows("SELECT state, count(*) FROM items GROUP BY 1 ORDER BY 1") == [
        ("queued", 3),
        ("submitting", 2),
    ]


@asynccontextmanager
async def a_budget_set_after(
    statement: str, site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """A person sets a budget at the moment when a transaction has run this statement and has not committed."""
    ask, setting = PostgresDatabase._ask, list[asyncio.Task[Budget]]()

    async def then_set(self: PostgresDatabase, connection: Any, asked: Ask) -> list[Any]:
        rows = await ask(self, connection, asked)
        if asked.name == statement and not setting:
            setting.append(asyncio.create_task(store.budgets.set("", "echo", Period.TOTAL, 60)))
            await asyncio.wait([setting[0], asyncio.create_task(somebody_waits(site))], return_when="FIRST_COMPLETED")
        return rows

    monkeypatch.setattr(PostgresDatabase, "_ask", then_set)
    yield
    await setting[0]


async def test_a_claim_that_waited_for_a_new_budget_stays_below_it(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants = await priced_job(store, budget=50)
    ask, claiming = PostgresDatabase._ask, list[asyncio.Task[ClaimedItems]]()

    async def claim_before(self: PostgresDatabase, connection: Any, asked: Ask) -> list[Any]:
        if asked.name == "set_budget":
            claiming.append(asyncio.create_task(store.items.claim(wants, "w1:1", LEASE_MS)))
            await somebody_waits(site)
        return await ask(self, connection, asked)

    monkeypatch.setattr(PostgresDatabase, "_ask", claim_before)
    await store.budgets.set("", "echo", Period.TOTAL, 20)
    assert len((await claiming[0]).items) == 2
    [budget] = await store.budgets.all()
    assert (budget.reserved_micros, budget.left_micros) == (20, 0)


@pytest.mark.parametrize(("statement", "others"), [("job_ceilings", 0), ("claim_fitting", 0), ("reserve", 1)])
async def test_a_budget_that_is_set_while_a_claim_commits_counts_its_money(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch, statement: str, others: int
) -> None:
    wants = await priced_job(store, budget=50)
    for _ in range(others):
        await store.budgets.set("", "", Period.DAY, 1_000)
    async with a_budget_set_after(statement, site, store, monkeypatch):
        assert len((await store.items.claim(wants, "w1:1", LEASE_MS)).items) == 5
    assert {budget.reserved_micros for budget in await store.budgets.all()} == {50}


async def test_a_budget_that_is_set_while_a_second_try_of_a_claim_commits_counts_its_money(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants = await priced_job(store, budget=50)
    async with a_budget_set_after("reserve", site, store, monkeypatch):
        async with holding(site, "UPDATE jobs SET spent_micros = 30"):
            claiming = asyncio.create_task(store.items.claim(wants, "w1:1", LEASE_MS))
            await somebody_waits(site)
        assert len((await claiming).items) == 2
    [budget] = await store.budgets.all()
    assert budget.reserved_micros == 20


async def test_a_budget_that_is_set_while_a_settlement_commits_does_not_keep_its_money(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = (await store.items.claim(await priced_job(store, budget=50), "w1:1", LEASE_MS)).items
    async with a_budget_set_after("lock_budgets", site, store, monkeypatch):
        await store.items.settle([decided(item, OK, START_MS) for item in items[:3]])
    [budget] = await store.budgets.all()
    assert budget.reserved_micros == 20, "that of the two calls that are still under way"


async def test_a_claim_writes_its_items_before_it_locks_their_job(site: Site, store: Store) -> None:
    wants = await priced_job(store, budget=50)
    async with holding(site, "SELECT FROM jobs FOR UPDATE"):
        claiming = asyncio.create_task(store.items.claim(wants, "w1:1", LEASE_MS))
        await somebody_waits(site)
        waits = "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        assert "claimed AS" in await site.one(waits), "a settlement need not wait until the items are written"
    assert len((await claiming).items) == 5


async def test_a_claim_takes_all_its_jobs_in_order_with_and_without_a_ceiling(site: Site, store: Store) -> None:
    await store.providers.set_pace("echo", (None, None), concurrency=10)
    for budget in (None, 1_000):
        weighed = chunk(0, 1, last=True)._replace(weights=[(10, 1, 0)])
        await store.submissions.open(new_job(budget_micros=budget), weighed)
    async with holding(site, "SELECT FROM jobs WHERE id = 1 FOR UPDATE"):
        claiming = asyncio.create_task(store.items.claim([Want("echo", 5, 0, "echo")], "w1:1", LEASE_MS))
        await somebody_waits(site)
        assert await site.rows("SELECT id FROM jobs FOR UPDATE SKIP LOCKED") == [(2,)]
    assert [item.reserved for item in (await claiming).items] == [10, 10]


@pytest.mark.slow
async def test_a_statement_that_stands_alone_is_tried_again_by_itself(postgres_url: str) -> None:
    """What fails is the second handler's claim: what the first won is neither lost nor claimed again."""
    site = Site(postgres_url, Ticker())
    await site.rows(f"CREATE TABLE test_clock AS SELECT {START_MS} AS ms")
    # Where transactions are kept this far apart, whoever waited for another's change is told to begin again.
    database = postgres_url.rpartition("/")[2]
    await site.rows(f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'")
    store = await site.open_store()
    for handler in ("one", "two"):
        await store.submissions.open(new_job(handler=handler), chunk(0, 2, last=True))
    async with holding(site, "UPDATE jobs SET label = 'touched' WHERE handler = 'two'"):
        claiming = asyncio.create_task(store.items.claim([Want("one", 1, 1), Want("two", 2, 1)], "w1", LEASE_MS))
        await somebody_waits(site)
    taken = (await claiming).items
    assert [item.handler for item in taken] == ["one", "two", "two"]
    assert await site.one("SELECT count(*) FROM items WHERE state = 'submitting'") == 3
    async with holding(site, "UPDATE jobs SET label = 'touched again' WHERE handler = 'two'"):
        settling = asyncio.create_task(store.items.settle([decided(item, OK, START_MS) for item in taken]))
        await somebody_waits(site)
    assert len((await settling).applied) == 3
    await site.close()


async def fail_statements(url: str, table: str, times: int) -> None:
    """The next statements that change a table are chosen as the victims of a deadlock, so many times."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        f"""CREATE SEQUENCE victims;
        CREATE FUNCTION be_a_victim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('victims') <= {times} THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER victim AFTER INSERT OR DELETE ON {table} EXECUTE FUNCTION be_a_victim()"""
    )
    await connection.close()


@pytest.mark.parametrize("table", ["events", "outbox"])
@pytest.mark.parametrize("times", [TRIES_MAX - 1, TRIES_MAX])
async def test_the_victim_of_a_deadlock_is_tried_again_some_times(postgres_url: str, table: str, times: int) -> None:
    """A pause is a transaction that writes an event, a prune is a statement by itself."""
    store = Store(PostgresDatabase(postgres_url, Ticker()))
    await store.open()
    job = (await store.submissions.open(new_job(), chunk(0, 2, True))).id
    await fail_statements(postgres_url, table, times)

    async def change() -> object:
        return await (store.jobs.pause(job, "ann") if table == "events" else store.outbox.prune())

    if times == TRIES_MAX:
        with pytest.raises(DatabaseUnreachable, match="DeadlockDetectedError"):
            await change()
    await change()
    await store.close()


async def test_a_run_that_ends_sees_the_worker_of_one_that_begins_meanwhile(site: Site, store: Store) -> None:
    job_id = (await store.submissions.open(new_job(), chunk(0, 1, last=True))).id
    async with holding(site, f"SELECT FROM jobs WHERE id = {job_id} FOR UPDATE"):
        pausing = asyncio.create_task(store.workers.pause_unattended(job_id, "ann", LEASE_MS))
        await somebody_waits(site)
        await store.workers.register("w2", "host", 1, "place", "{}")
    await pausing
    assert await site.one("SELECT state FROM jobs") == "queued"


async def test_a_run_that_begins_sees_the_pause_that_is_just_written(site: Site, store: Store) -> None:
    job_id = (await store.submissions.open(new_job(), chunk(0, 1, last=True))).id
    paused = f"UPDATE jobs SET state = 'paused', held = 1, paused_at = {START_MS} WHERE id = {job_id}"
    async with holding(site, paused):
        taking = asyncio.create_task(store.workers.take_up(job_id, "ann"))
        await somebody_waits(site)
    assert await taking
    assert await site.one("SELECT state FROM jobs") == "queued"
