"""A database of every revision, in the middle of a run, is migrated and the run is finished."""

import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from backstay import wiring
from backstay.practice import Faults, Practice
from backstay.server.service import ServiceOptions
from backstay.store.databases import schema
from tests.databases import Site, Ticker
from tests.messaging.rig import until
from tests.server.receiver import Receiver, receiving
from tests.server.rig import Rig, rigged
from tests.store.audit import Auditor
from tests.upgrades.kept import PRACTICE_PORT, load
from tests.upgrades.shop import Bill, shop

pytestmark = pytest.mark.slow
# A migration changes none of their rows; the columns that one of them rewrites are left out.
KEPT_WHOLE = ("jobs", "items", "requests", "attempts", "endpoints", "webhooks", "batches", "files", "outbox", "budgets")

REWRITTEN = ("order_key",)
ORDER = {"attempts": "item_id, fence", "requests": "item_id", "endpoints": "name"}


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/old.db"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@pytest.mark.parametrize("revision", schema.KNOWN)
async def test_a_run_of_an_older_version_is_migrated_and_finished(
    revision: str, empty_url: str, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    bill, site = Bill(tmp_path / "bill"), Site(empty_url, Ticker())
    async with Practice(Faults(latency=0.01)).serving() as base_url:
        lead_to(base_url, monkeypatch)
        await load(empty_url, revision, bill, receiver.place)
        paid, before = bill.keys, await rows_of(site)
        await wiring.migrate(empty_url)
        assert await rows_of(site, before) == before, "the migration lost or changed rows"
        await Auditor(site).check()
        app = shop(empty_url, bill)
        as_before = {"owner": "local", "inside_hosts": receiver.place}
        async with rigged(empty_url, tmp_path / "data", app, ServiceOptions(works=True), **as_before) as rig:
            await finish(site, rig)
    await Auditor(site).check()
    ended = set(before["attempts"].rows)
    assert ended <= set((await rows_of(site, before))["attempts"].rows), "an attempt of before is not as it was"
    assert await site.rows("SELECT id FROM items WHERE state NOT IN ('succeeded', 'failed', 'cancelled')") == []
    assert await failures(site) == {"call": 1, "once": 2}, "a bug, and two calls whose outcome nobody knows"
    await check_bill(site, paid, bill)
    await check_service(site, receiver, revision)


def lead_to(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider of the kept databases is at this URL now."""
    look_up, port = socket.getaddrinfo, urlsplit(base_url).port

    def look_up_here(host: Any, asked: Any, *rest: Any, **options: Any) -> Any:
        known = (host, asked) == ("localhost", PRACTICE_PORT)
        return look_up("127.0.0.1" if known else host, port if known else asked, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)


async def finish(site: Site, rig: Rig) -> None:
    """Resumes the job that was paused, and waits until nothing is left to do."""
    [(paused,)] = await site.rows("SELECT id FROM jobs WHERE state = 'paused'")
    await (await rig.made.job(paused)).resume()
    for left in (
        "jobs WHERE state IN ('queued', 'running')",
        "batches WHERE status NOT IN ('completed', 'failed')",
        "outbox WHERE status = 'pending'",
        "deliveries WHERE due_at IS NOT NULL",
    ):
        await until(lambda: is_empty(site, left))  # noqa: B023 - it is awaited here


async def is_empty(site: Site, rows: str) -> bool:
    return bool(await site.one(f"SELECT count(*) FROM {rows}") == 0)


async def rows_of(site: Site, like: "Rows | None" = None) -> "Rows":
    """The rows of the lasting tables, or the same columns as in `like`."""
    found: Rows = {}
    for table in KEPT_WHOLE:
        columns = like.get(table, Table()).columns if like is not None else await columns_of(site, table)
        if columns:
            order = ORDER.get(table, "id")
            rows = await site.rows(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}")
            found[table] = Table(tuple(columns), tuple(rows))
    return found


class Table(NamedTuple):
    columns: Sequence[str] = ()
    rows: Sequence[tuple[Any, ...]] = ()


Rows = dict[str, Table]


async def columns_of(site: Site, table: str) -> list[str]:
    if site.is_postgres:
        asked = f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'"
    else:
        asked = f"SELECT name FROM pragma_table_info('{table}')"
    return [f'"{name}"' for (name,) in await site.rows(asked) if name not in REWRITTEN]


async def failures(site: Site) -> dict[str, int]:
    return dict(await site.rows("SELECT handler, count(*) FROM items WHERE state = 'failed' GROUP BY handler"))


async def check_bill(site: Site, paid: Sequence[str], bill: Bill) -> None:
    """What had been paid before is not paid again, but for the one call that nobody can be asked about: it is sent
    again, as its delivery says, and that is counted."""
    times = Counter(bill.keys)
    again = [key for key in paid if times[key] > 1]
    repeats = "SELECT sum(repeats) FROM items WHERE handler = 'call'"
    assert len(paid) >= 12
    assert (len(again), times[again[0]], await site.one(repeats)) == (1, 2, 1)
    answered = await site.rows("SELECT result FROM attempts WHERE outcome = 'succeeded' AND result LIKE '{\"key%'")
    assert all(times[json.loads(result)["key"]] for (result,) in answered)


async def check_service(site: Site, receiver: Receiver, revision: str) -> None:
    """The batch has its results, and the webhook was told about each job and the batch once."""
    if revision < "0003":
        return
    batches = await site.rows("SELECT status, requests, output_file_id IS NOT NULL FROM batches")
    assert [tuple(map(str, batch[:2])) for batch in batches] == [("completed", "5")]
    told = [json.loads(visit.body)["type"] for visit in receiver.visits]
    completed = await site.one("SELECT count(*) FROM jobs WHERE state = 'completed'")
    assert Counter(told)["batch.completed"] == 1
    assert Counter(told)["job.completed"] == completed
