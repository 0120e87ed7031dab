"""Requests that a command has queued, and a worker with the settings of the environment whose clock the test moves."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from backstay.cli.main import run
from backstay.llm.lanes import Lanes
from backstay.settings import load
from backstay.store.job_views import JobView
from tests.databases import Leaping, Site
from tests.engine.rig import Rig
from tests.llm.lane_rig import CHAT, RESPONSES, chats, inputs
from tests.llm.request_files import batch_line

LANES = ["call", "background", "batch"]


@asynccontextmanager
async def moving_site(url: str) -> AsyncIterator[Site]:
    """A database of its own, that commands may use as well: their time is the test's until the test moves it."""
    made = Site(url, Leaping())
    if made.is_postgres:
        await made.rows("CREATE TABLE test_clock (ms bigint NOT NULL)")
        await made.rows("INSERT INTO test_clock VALUES (0)")
    yield made
    await made.close()


def write_requests(lane: str, count: int) -> None:
    bodies, url = (inputs(count), RESPONSES) if lane == "background" else (chats(count), CHAT)
    lines = [batch_line(str(n), json.dumps(body), url) for n, body in enumerate(bodies)]
    Path("requests.jsonl").write_text("".join(f"{line}\n" for line in lines))


async def submit(site: Site, lane: str, base_url: str, *more: str, count: int = 1) -> None:
    """`backstay submit`, as a person gives it, in the working folder."""
    write_requests(lane, count)
    said = ["submit", "requests.jsonl", "--lane", lane, "--base-url", base_url, "--db", site.url, *more]
    assert await asyncio.to_thread(run, said) == 0


@asynccontextmanager
async def worker(site: Site) -> AsyncIterator[Rig]:
    """One whose clock the test moves, with the limits of the settings and a lane for what is queued."""
    rig = Rig(site, await site.open_store(), **asdict(load().bounds()))
    lanes = Lanes(rig.app, 10)
    await lanes.open_all(rig.store)
    try:
        yield rig
    finally:
        await lanes.close()


async def the_job(rig: Rig) -> JobView:
    [(job_id, owner)] = await rig.site.rows("SELECT id, owner FROM jobs")
    return await rig.store.job_views.get(job_id, owner)
