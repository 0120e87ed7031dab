"""backstay_submit: plain SQL does what a small submit does."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from backstay.core.errors import IdempotencyConflict
from backstay.core.ids import POSITION_BITS, PRIORITY_MAX, TURN_BITS
from backstay.core.limits import Limits
from backstay.store.outbox import HINT_ITEMS_MAX
from tests.messaging.rig import until
from tests.servers.postgres import RunningPostgres
from tests.transactions.conftest import rows
from tests.transactions.drivers import application

JOB = (
    "SELECT owner, handler, state, priority, retry, delivery, total, sealed, timeout_ms, timeout_at - created_at, "
    "deadline_at - created_at, level_key, first_key, last_key, digest, idempotency_key FROM jobs WHERE id = {}"
)
ITEMS = (
    "SELECT items.id - (job_id << 28), items.handler, state, order_key, created_at = queued_at, "
    "deadline_at - created_at, body FROM items JOIN requests ON item_id = items.id WHERE job_id = {} ORDER BY items.id"
)
HINTS = "SELECT owner, aggregate_type, message_type, sink, created_at = due_at, payload FROM outbox ORDER BY id"


def hints(found: list[tuple[object, ...]], job: int) -> list[tuple[object, ...]]:
    """With the ids of one job taken out of them."""
    read = [(*row[:-1], json.loads(str(row[-1]))) for row in found]
    return [(*row[:-1], {**row[-1], "first": row[-1]["first"] - (job << POSITION_BITS)}) for row in read]


async def test_the_rows_are_those_of_a_submit(shop: str, postgres: RunningPostgres) -> None:
    async with application(shop, owner="ann") as app:
        client = await app.open()
        await client.store.outbox.open_sink()
        payloads = [1, "ü", [2, 3], None]
        ours = (await app.submit("echo", payloads, idempotency_key="k", priority=4, deadline_seconds=30)).id
        rows_of_ours = [
            await rows(shop, JOB.format(ours)),
            await rows(shop, ITEMS.format(ours)),
            await rows(shop, HINTS),
        ]
        await rows(shop, "TRUNCATE jobs, items, requests, outbox")
        sql = """SELECT backstay_submit('echo', '[1, "\\u00fc", [2, 3], null]', 'ann', 'k', 4, 30)"""
        theirs = int(postgres.execute(sql, shop.rpartition("/")[2]))
        rows_of_theirs = [await rows(shop, sql.format(theirs)) for sql in (JOB, ITEMS, HINTS)]
    digests = {row[0][14] for row in (rows_of_ours[0], rows_of_theirs[0])}
    assert len(digests) == 2  # Python writes "\\u00fc" where PostgreSQL writes "ü", so that one has a mark
    assert [row[:14] for row in rows_of_ours[0]] == [row[:14] for row in rows_of_theirs[0]]
    assert [json.loads(str(row[-1])) for row in rows_of_theirs[1]] == [1, "ü", [2, 3], None]
    assert [row[:-1] for row in rows_of_ours[1]] == [row[:-1] for row in rows_of_theirs[1]]
    assert hints(rows_of_ours[2], ours) == hints(rows_of_theirs[2], theirs)


async def test_its_items_are_done_and_its_key_is_the_same_job(shop: str) -> None:
    connection = await asyncpg.connect(shop)
    submit = "SELECT backstay_submit('echo', $1, idempotency_key => 'k')"
    many = json.dumps(list(range(120)))
    async with application(shop) as app:
        wakes: list[None] = []
        client = await app.open()
        await client.store.listen(lambda: wakes.append(None))
        await client.store.outbox.open_sink()
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetchval(submit, many)
        await transaction.rollback()
        assert await rows(shop, "SELECT count(*) FROM jobs") == [(0,)]
        job = await connection.fetchval(submit, many)
        await until(lambda: wakes)
        assert await connection.fetchval(submit, many) == job
        with pytest.raises(asyncpg.UniqueViolationError, match=f"belongs to job {job}, which has different items"):
            await connection.fetchval(submit, "[1]")
        assert (await app.submit("echo", list(range(120)), idempotency_key="k")).id == job
        with pytest.raises(IdempotencyConflict):
            await app.submit("echo", [1], idempotency_key="k")
        counts = [
            json.loads(str(row[0]))["count"] for row in await rows(shop, "SELECT payload FROM outbox ORDER BY id")
        ]
        assert counts == [HINT_ITEMS_MAX, HINT_ITEMS_MAX, 20]
        async with app.working():
            done = await app.job(job)
            await done.wait(timeout_seconds=30)
            assert [result.value async for result in done.results()] == list(range(120))
    await connection.close()


async def test_two_transactions_with_one_key_make_one_job(shop: str) -> None:
    first, second = await asyncpg.connect(shop), await asyncpg.connect(shop)
    submit = "SELECT backstay_submit('echo', '[1]', idempotency_key => 'k')"
    transaction = first.transaction()
    await transaction.start()
    job = await first.fetchval(submit)
    waiting = asyncio.create_task(second.fetchval(submit))
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]
    await transaction.commit()
    assert await waiting == job
    await first.close()
    await second.close()


VALUES = [{"z": 1, "name": "ü", "a": [1.50, 1e3, True, None]}, "two words", {"": {}}, 7]
OTHERS = [
    [*VALUES[:3], 8],
    VALUES[:3],
    [*VALUES, 9],
    [VALUES[0], "two  words", *VALUES[2:]],
    [{**VALUES[0], "a": [1.50, 1e3, 1, None]}, *VALUES[1:]],  # type: ignore[dict-item]
    [*VALUES[:3], "a\0b"],
]


@pytest.mark.parametrize("first", ["python", "sql"])
async def test_a_key_finds_its_job_from_sql_and_from_python(shop: str, first: str) -> None:
    """They write the same JSON differently; it is compared by its value, item by item, also of a stream."""
    connection = await asyncpg.connect(shop)
    submit = "SELECT backstay_submit($1, $2, 'ann', idempotency_key => 'k')"

    async def sql(payloads: list[Any], handler: str = "echo") -> int:
        return int(await connection.fetchval(submit, handler, json.dumps(payloads, sort_keys=True)))

    async with application(shop, owner="ann") as app:
        app.handler("other")(lambda item: item)

        async def python(payloads: Any, handler: str = "echo", **more: Any) -> int:
            return (await app.submit(handler, payloads, idempotency_key="k", **more)).id

        job = await (python(VALUES) if first == "python" else sql(VALUES))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("backstay.client.chunks.CHUNK_ITEMS", 3)  # a stream of two chunks
            assert [await sql(VALUES), await python(VALUES)] == [job, job]
            for others in OTHERS:
                with pytest.raises(IdempotencyConflict):
                    await python(iter(others))
        for others in OTHERS[:-1]:  # the last is no JSON for PostgreSQL
            with pytest.raises(asyncpg.UniqueViolationError, match=f"belongs to job {job}, which has different items"):
                await sql(others)
        with pytest.raises(asyncpg.UniqueViolationError):
            await sql(VALUES, "other")
        for given in ({"handler": "other"}, {"after": job}):
            with pytest.raises(IdempotencyConflict):
                await python(VALUES, **given)
    assert await rows(shop, "SELECT count(*) FROM jobs") == [(1,)]
    await connection.close()


async def test_a_job_that_sql_cannot_read_is_another_job_for_it(shop: str) -> None:
    async with application(shop) as app:
        await app.submit("echo", ["a\0b"], idempotency_key="k")
    with pytest.raises(asyncpg.UniqueViolationError, match="different items"):
        await rows(shop, "SELECT backstay_submit('echo', '[\"ab\"]', idempotency_key => 'k')")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("'', '[1]'", "handler and owner"),
        ("NULL, '[1]'", "handler and owner"),
        ("'echo', '[1]', ''", "handler and owner"),
        ("'echo', '{}'", "payloads must be a JSON array"),
        ("'echo', NULL", "payloads must be a JSON array"),
        ("'echo', '[]'", "1 to 10000 elements, not 0"),
        ("'echo', (SELECT jsonb_agg(n) FROM generate_series(1, 10001) AS n)", "not 10001"),
        ("'echo', '[1]', priority => 10", "priority must be from 0 to 9"),
        ("'echo', '[1]', priority => NULL", "priority must be from 0 to 9"),
        ("'echo', '[1]', idempotency_key => ''", "1 to 255 printable characters"),
        ("'echo', '[1]', idempotency_key => E'a\\nb'", "1 to 255 printable characters"),
        ("'echo', '[1]', deadline_seconds => 0", "deadline_seconds must be above 0"),
    ],
)
async def test_bad_values_are_refused(shop: str, given: str, why: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match=why):
        await rows(shop, f"SELECT backstay_submit({given})")
    assert await rows(shop, "SELECT count(*) FROM jobs") == [(0,)]


async def test_it_finds_its_own_tables_whatever_the_callers_path_is(shop: str) -> None:
    connection = await asyncpg.connect(shop, server_settings={"search_path": "pg_catalog"})
    job = await connection.fetchval("SELECT public.backstay_submit('echo', '[1]')")
    assert await connection.fetchval("SELECT handler FROM public.jobs WHERE id = $1", job) == "echo"
    await connection.close()


def test_its_figures_are_those_of_the_code() -> None:
    """They are written out in the function, which a migration made."""
    assert (POSITION_BITS, HINT_ITEMS_MAX, PRIORITY_MAX, TURN_BITS) == (28, 50, 9, 52)
    assert Limits().job_timeout_seconds == 172_800
