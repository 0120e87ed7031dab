"""A job that is submitted inside a user's transaction exists if and only if that transaction commits."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from backstay.core.errors import IdempotencyConflict, NotFound
from tests.messaging.rig import until
from tests.transactions.conftest import rows
from tests.transactions.drivers import SQLITE, Guest, application, visiting

COUNTS = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM jobs), (SELECT count(*) FROM items)"
MANY = 5_000


async def test_a_job_is_there_exactly_when_the_users_row_is(guest: Guest) -> None:
    await guest.begin()
    await guest.execute("INSERT INTO orders VALUES (1)")
    job = await guest.submit([{"a": "ü"}, {"b": None}], priority=3, label="mine", deadline_seconds=60)
    assert await rows(guest.url, COUNTS) == [(0, 0, 0)]
    await guest.commit()
    assert await rows(guest.url, COUNTS) == [(1, 1, 2)]
    await guest.begin()
    await guest.execute("INSERT INTO orders VALUES (2)")
    await guest.submit([1, 2])
    await guest.rollback()
    assert await rows(guest.url, COUNTS) == [(1, 1, 2)]
    shown = "SELECT id, priority, label, total, sealed, state, deadline_at - created_at FROM jobs"
    assert await rows(guest.url, shown) == [(job, 3, "mine", 2, 1, "queued", 60_000)]
    async with application(guest.url) as app, app.working():
        done = await app.job(job)
        await done.wait(timeout_seconds=30)
        assert [result.value async for result in done.results()] == [{"a": "ü"}, {"b": None}]


async def test_the_same_key_is_the_same_job_and_other_items_are_refused(guest: Guest) -> None:
    await guest.begin()
    job = await guest.submit(["a", "b"], idempotency_key="k")
    assert await guest.submit(["a", "b"], idempotency_key="k") == job
    await guest.commit()
    await guest.begin()
    assert await guest.submit(["a", "b"], idempotency_key="k") == job
    with pytest.raises(IdempotencyConflict):
        await guest.submit(["a", "c"], idempotency_key="k")
    await guest.rollback()
    async with application(guest.url) as app:
        assert (await app.submit("echo", ["a", "b"], idempotency_key="k")).id == job
    assert await rows(guest.url, COUNTS) == [(0, 1, 2)]


async def test_a_job_may_wait_for_others_of_the_same_transaction(guest: Guest) -> None:
    await guest.begin()
    first = await guest.submit(["a", "b"])
    fed, own = await guest.submit(None, after=first), await guest.submit(["c"], after=first)
    once = [await guest.submit(["d"], unique="k", unique_seconds=60) for _ in range(2)]
    keyed = [await guest.submit([{"id": n}, {"id": n + 1}], item_key="id") for n in range(2)]
    assert len({first, fed, own, *once, *keyed}) == 6
    await guest.commit()
    async with application(guest.url) as app, app.working():
        for job, values in ((fed, ["a", "b"]), (own, ["c"]), (keyed[1], [{"id": 2}])):
            done = await app.job(job)
            await done.wait(timeout_seconds=30)
            assert [result.value async for result in done.results()] == values


async def test_after_the_job_of_another_owner_nothing_is_written_even_if_the_user_commits(guest: Guest) -> None:
    async with application(guest.url, owner="bob") as bob:
        theirs = (await bob.submit("echo", ["theirs"])).id
    await guest.begin()
    await guest.execute("INSERT INTO orders VALUES (1)")
    for items in (["a"], None):
        for after in (theirs, theirs + 1):  # the next id would be the new job's own
            with pytest.raises(NotFound, match=f"no job {after}"):
                await guest.submit(items, after=after)
    await guest.commit()
    assert await rows(guest.url, COUNTS) == [(1, 1, 1)]
    assert await rows(guest.url, "SELECT count(*) FROM job_links") == [(0,)]


async def test_a_stream_of_thousands_is_one_job_of_the_transaction(guest: Guest) -> None:
    seen: list[int] = []

    def stream() -> Iterator[int]:
        for number in range(MANY):
            seen.append(number)
            yield number

    await guest.begin()
    job = await guest.submit(stream(), idempotency_key="many")
    assert await rows(guest.url, COUNTS) == [(0, 0, 0)]
    await guest.commit()
    bodies = "SELECT count(DISTINCT body), min(CAST(body AS integer)), max(CAST(body AS integer)) FROM requests"
    assert await rows(guest.url, bodies) == [(MANY, 0, MANY - 1)]
    assert await rows(guest.url, f"SELECT total, sealed FROM jobs WHERE id = {job}") == [(MANY, 1)]
    await guest.begin()
    assert await guest.submit(iter(range(MANY)), idempotency_key="many") == job
    with pytest.raises(IdempotencyConflict):
        await guest.submit(iter(range(1, MANY + 1)), idempotency_key="many")
    await guest.rollback()


async def test_a_stream_that_breaks_leaves_no_work_even_if_the_user_commits(guest: Guest) -> None:
    def broken() -> Iterator[Any]:
        yield from range(2_500)
        raise ValueError("no more")

    await guest.begin()
    await guest.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(ValueError, match="no more"):
        await guest.submit(broken())
    await guest.commit()
    assert await rows(guest.url, "SELECT DISTINCT state FROM items") == [("cancelled",)]
    assert await rows(guest.url, "SELECT state FROM jobs") == [("cancelled",)]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg-async", "django"], indirect=True)
async def test_two_transactions_with_one_key_make_one_job(driver: str, user_url: str, guest: Guest) -> None:
    async with visiting(driver, user_url) as other:
        await guest.begin()
        await other.begin()
        job = await guest.submit(["a"], idempotency_key="k")
        second = asyncio.create_task(other.submit(["a"], idempotency_key="k"))
        assert not (await asyncio.wait([second], timeout=0.2))[0]  # it waits for the first to end
        await guest.commit()
        assert await second == job
        await other.commit()
        await guest.begin()
        await guest.submit(["b"], idempotency_key="other")
        await other.begin()
        third = asyncio.create_task(other.submit(["b"], idempotency_key="other"))
        await guest.rollback()
        found = await third
        await other.commit()
    assert await rows(user_url, "SELECT id FROM jobs ORDER BY id") == [(job,), (found,)]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"], indirect=True)
async def test_an_idle_worker_is_woken_by_the_commit(guest: Guest) -> None:
    async with application(guest.url) as app:
        wakes: list[None] = []
        client = await app.open()
        await client.store.listen(lambda: wakes.append(None))
        await guest.begin()
        job = await guest.submit([1])
        await guest.submit(range(30))
        await rows(guest.url, "SELECT pg_notify('backstay_wake', '')")  # comes after whatever was told before it
        await until(lambda: wakes)
        assert len(wakes) == 1
        await guest.commit()
        await until(lambda: len(wakes) == 2)
        assert (await (await app.job(job)).show()).total == 1


@pytest.mark.parametrize("driver", SQLITE, indirect=True)
async def test_on_sqlite_other_writers_are_waited_for(guest: Guest) -> None:
    """A transaction that had read before it writes would fail at once, although the other writer is soon done."""
    stop = Event()

    def write_always() -> None:
        other = sqlite3.connect(guest.url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        other.execute("CREATE TABLE others (id integer)")
        while not stop.is_set():
            other.execute("INSERT INTO others VALUES (7)")
            time.sleep(0.0005)  # a pause, so that the other one gets its turn
        other.close()

    writer = asyncio.create_task(asyncio.to_thread(write_always))
    try:
        for number in range(40):
            await guest.begin()
            await guest.submit([1], idempotency_key=f"key {number}")
            await guest.publish("orders.created", number)
            await guest.commit()
    finally:
        stop.set()
        await writer
    assert await rows(guest.url, "SELECT count(*) FROM jobs") == [(40,)]
