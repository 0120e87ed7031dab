"""Many workers at one PostgreSQL: 1 to 128 connections claim and settle through the store; a model tells of thousands.

python -m bench.claim_crowd              # measure, and print the tables
python -m bench.claim_crowd --write      # and put them into docs/scale.md
python -m bench.claim_crowd --foretell   # the tables again, out of what was measured before
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from backstay import Backstay
from backstay.clock import Clock
from backstay.core.models import Attempt, Claimed, Settlement
from backstay.core.states import ItemState
from backstay.store.databases.postgres import PostgresDatabase
from backstay.store.items import Want
from backstay.store.store import Store
from backstay.wiring import migrate
from bench.crowd_tables import put_into_page, tables
from tests.servers.postgres import PrivatePostgres

LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)
JOBS = (1, 16)
CROWDS = (1, 8, 32, 128)
BATCH = 50
ITEMS_PER_SECOND_MAX = 30_000  # more than there are would be claimed empty
RESULTS = Path(__file__).with_name("claim_crowd.json")
TICKS = os.sysconf("SC_CLK_TCK")
WAITS = "SELECT coalesce(wait_event_type || ':' || wait_event, 'at work') FROM pg_stat_activity WHERE pid = ANY($1)"


_at = {"url": ""}


class Tally:
    """What the workers of one level did."""

    def __init__(self) -> None:
        self.claims: list[float] = []
        self.settlements: list[float] = []
        self.items = 0
        self.short = 0  # claims that found fewer than they asked for, because others had locked what was there


def settlement(item: Claimed) -> Settlement:
    attempt = Attempt(
        item.id, item.fence, 1, "succeeded", item.started_at, item.claimed_at, None, None, None, "1", None, None, None
    )
    fate = {"was": item.state, "state": ItemState.SUCCEEDED, "attempt_count": 1}
    return Settlement(item.id, item.fence, **fate, attempt=attempt)  # type: ignore[arg-type]


async def work(store: Store, name: str, handler: str, end: float, tally: Tally) -> None:
    """As a worker's claim and settlement, with nothing to run in between."""
    met: set[int] = set()
    want = [Want(handler, BATCH, 90_000)]
    while time.perf_counter() < end:
        began = time.perf_counter()
        taken = await store.items.claim(want, name, 90_000, met, promoting=False)
        claimed = time.perf_counter()
        if not taken.items:
            break
        met.update(item.job_id for item in taken.items)
        settled = await store.items.settle([settlement(item) for item in taken.items])
        tally.claims.append(claimed - began)
        tally.settlements.append(time.perf_counter() - claimed)
        tally.items += len(settled.applied)
        tally.short += len(taken.items) < BATCH


def cpu_seconds(pids: list[int]) -> float:
    """What the server's processes of our connections have used."""
    texts = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(text[11]) + int(text[12]) for text in texts) / TICKS


async def watch(connection: Any, pids: list[int], seen: Counter[str]) -> None:
    while True:
        seen.update(row[0] for row in await connection.fetch(WAITS, pids))
        await asyncio.sleep(0.02)


async def submit(url: str, jobs: int, items: int) -> None:
    """Each job has a handler of its own: jobs of one handler take turns, so that every settlement would touch all."""
    app = Backstay(url)
    async with app:
        for number in range(jobs):
            app.handler(f"noop{number}")(noop)
            await app.submit(f"noop{number}", range(items // jobs))


async def noop(item: int) -> int:
    return item


async def level(url: str, workers: int, jobs: int, seconds: float) -> dict[str, Any]:
    await submit(url, jobs, int(ITEMS_PER_SECOND_MAX * seconds))
    looker = await asyncpg.connect(url)
    await looker.execute("VACUUM ANALYZE")
    await looker.execute("CHECKPOINT")
    stores = [Store(PostgresDatabase(f"{url}?pool_max=1", Clock())) for _ in range(workers)]
    for store in stores:
        await store.open()
    own = await looker.fetchval("SELECT pg_backend_pid()")
    pids = [row[0] for row in await looker.fetch("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")]
    pids.remove(own)
    tally, seen = Tally(), Counter[str]()
    watching = asyncio.create_task(watch(looker, pids, seen))
    before, python_before, began = cpu_seconds(pids), time.process_time(), time.perf_counter()
    until = began + seconds
    await asyncio.gather(*(work(store, f"w{n}", f"noop{n % jobs}", until, tally) for n, store in enumerate(stores)))
    took = time.perf_counter() - began
    server, python = cpu_seconds(pids) - before, time.process_time() - python_before
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await looker.execute("TRUNCATE items, requests, attempts, jobs, events CASCADE")
    await looker.close()
    for store in stores:
        await store.close()
    return figures(workers, jobs, took, tally, server, python, seen)


def figures(
    workers: int, jobs: int, took: float, tally: Tally, server: float, python: float, seen: Counter[str]
) -> dict[str, Any]:
    claims, waits = sorted(tally.claims), [(name, n) for name, n in seen.most_common() if not name.startswith("Client")]
    looks = sum(n for _, n in waits) or 1
    return {
        "workers": workers,
        "jobs": jobs,
        "items_per_second": tally.items / took,
        "claim_p50_ms": statistics.median(claims) * 1000,
        "claim_p95_ms": claims[int(len(claims) * 0.95)] * 1000,
        "settle_p50_ms": statistics.median(tally.settlements) * 1000,
        "short_share": tally.short / len(claims),
        "server_cpu_ms": server / len(claims) * 1000,
        "python_cpu_ms": python / len(claims) * 1000,
        "waits": {name: n / looks for name, n in waits[:3]},
    }


async def split(url: str, claims: int) -> dict[str, float]:
    """One worker alone: how the server's time divides between a claim and its settlement, and what a sync takes."""
    await submit(url, 1, claims * BATCH)
    store = Store(PostgresDatabase(f"{url}?pool_max=1", Clock()))
    await store.open()
    looker = await asyncpg.connect(url)
    pids = [row[0] for row in await looker.fetch("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")]
    pids.remove(await looker.fetchval("SELECT pg_backend_pid()"))
    used, taken = {"claim": cpu_seconds(pids)}, []
    for _ in range(claims):
        taken.append((await store.items.claim([Want("noop0", BATCH, 90_000)], "w", 90_000, {1}, promoting=False)).items)
    used["settle"] = cpu_seconds(pids)
    for items in taken:
        await store.items.settle([settlement(item) for item in items])
    used["end"] = cpu_seconds(pids)
    await store.close()
    await looker.execute("TRUNCATE items, requests, attempts, jobs, events CASCADE")
    await looker.execute("CREATE TABLE sync_probe (n int)")
    syncs = []
    for n in range(100):
        began = time.perf_counter()
        await looker.execute(f"INSERT INTO sync_probe VALUES ({n})")
        syncs.append(time.perf_counter() - began)
    await looker.close()
    return {
        "claim_cpu_ms": (used["settle"] - used["claim"]) / claims * 1000,
        "settle_cpu_ms": (used["end"] - used["settle"]) / claims * 1000,
        "sync_ms": statistics.median(syncs) * 1000,
    }


async def measure(url: str, seconds: float) -> dict[str, Any]:
    await migrate(url)
    alone = await split(url, claims=400)
    levels = []
    for jobs in JOBS:
        for workers in LEVELS:
            levels.append(await level(url, workers, jobs, seconds))
            print(json.dumps(levels[-1]), flush=True)
    return {"alone": alone, "levels": levels}


def prepare(url: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    uvloop.run(migrate(url))
    _at["url"] = url


def crowd(seconds: int) -> dict[str, float]:
    """The rate of the largest crowd on one job, over that of the best crowd."""
    rates = {}
    for workers in CROWDS:
        found = uvloop.run(level(_at["url"], workers, 1, seconds))
        rates[workers] = found["items_per_second"]
    each = {f"workers_{workers}": rate for workers, rate in rates.items()}
    return {"crowd_ratio": rates[CROWDS[-1]] / max(rates.values()), **each}


def machine() -> str:
    info = Path("/proc/cpuinfo").read_text()
    name = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    return f"{os.cpu_count()} cores of {name}, Linux {platform.release().partition('-')[0]}"


def busy_share(seconds: float) -> float:
    """Of all cores, by whatever else runs here."""

    def ticks() -> tuple[int, int]:
        told = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(told), told[3] + told[4]  # of which idle, or waiting for a disk

    whole, idle = ticks()
    time.sleep(seconds)
    later, idle_then = ticks()
    return 1 - (idle_then - idle) / (later - whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each number of workers")
    parser.add_argument("--foretell", action="store_true", help="go by what was measured before")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    asked = parser.parse_args()
    if not asked.foretell:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        busy = busy_share(seconds=2.0)
        with PrivatePostgres() as server:
            found = uvloop.run(measure(server.create_database(), asked.seconds))
        found |= {"date": datetime.now(UTC).date().isoformat(), "machine": machine(), "batch": BATCH, "busy": busy}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    made = tables(json.loads(RESULTS.read_text(encoding="utf-8")))
    print(made)
    if asked.write:
        put_into_page(made)


if __name__ == "__main__":
    main()
