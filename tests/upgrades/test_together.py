"""Code that does not know the schema of its database: it says so, and takes no work."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backstay import Backstay
from backstay.core.errors import SchemaNewer
from backstay.store.databases import schema
from tests.databases import Site, Ticker
from tests.house.sources import ROOT
from tests.messaging.rig import until

NEXT = f"{int(schema.HEAD) + 1:04d}"
SAID = f"the database has schema {NEXT}, this Backstay knows up to {schema.HEAD}"
# As the next version of Backstay might do it.
MIGRATION = ("ALTER TABLE items ADD COLUMN later text", f"UPDATE alembic_version SET version_num = '{NEXT}'")
APP = """
import asyncio, os
from pathlib import Path
from backstay import Backstay

app = Backstay()

@app.handler(concurrency=1)
async def call(item):
    Path(os.environ["CALLS"], str(item)).touch()
    while not Path(os.environ["CALLS"], "answer").exists():
        await asyncio.sleep(0.02)
    return item
"""


def start_worker(url: str, folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "BACKSTAY_DATABASE_URL": url, "CALLS": str(folder)}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{folder}"
    command = [sys.executable, "-m", "backstay", "worker", "--app", "shop:app"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


async def rows(site: Site) -> list[tuple[Any, ...]]:
    return await site.rows("SELECT id, state, fence, leased_by FROM items ORDER BY id")


@pytest.mark.slow
async def test_a_worker_whose_database_is_migrated_finishes_its_calls_and_takes_no_more(
    database_url: str, tmp_path: Path
) -> None:
    site = Site(database_url, Ticker())
    (tmp_path / "shop.py").write_text(APP)
    async with Backstay(database_url) as client:
        client.handler("call")(lambda item: item)
        await client.submit("call", [1, 2, 3])
    worker = start_worker(database_url, tmp_path)
    try:
        await until(lambda: (tmp_path / "1").exists())
        await site.answers(*MIGRATION)
        assert worker.stderr is not None
        while SAID not in await asyncio.to_thread(worker.stderr.readline):
            assert worker.poll() is None, "it ended without a word"
        (tmp_path / "answer").touch()
        _, words = await asyncio.to_thread(worker.communicate, timeout=30)
    finally:
        worker.kill()
        worker.communicate()
    assert worker.returncode == 2
    assert "upgrade backstay" in words
    assert [(state, fence, leased_by) for _, state, fence, leased_by in await rows(site)] == [
        ("succeeded", 1, None),
        ("queued", 0, None),
        ("queued", 0, None),
    ]
    again = start_worker(database_url, tmp_path)
    _, words = await asyncio.to_thread(again.communicate, timeout=30)
    assert again.returncode == 2
    assert SAID in words
    assert "upgrade backstay" in words


async def test_a_program_whose_database_is_migrated_takes_no_more_work(database_url: str) -> None:
    site, asked = Site(database_url, Ticker()), []
    async with Backstay(database_url) as app:

        @app.handler()
        async def call(item: int) -> int:
            asked.append(item)
            return item

        async with app.working() as worker:
            await (await app.submit("call", [1])).wait()
            await site.answers(*MIGRATION)
            await until(lambda: worker.outdated)
            later = await app.submit("call", [2])
            worker.wake()
            assert isinstance(worker.outdated, SchemaNewer)
        view = await later.show()
        assert (view.state, view.done) == ("queued", 0)
    assert asked == [1]


async def test_nothing_is_written_to_a_database_of_a_newer_version(sqlite_file_url: str) -> None:
    site = Site(sqlite_file_url, Ticker())
    await site.answers(*MIGRATION)
    before = dump(site.path)
    with pytest.raises(SchemaNewer, match=SAID) as refused:
        await Backstay(sqlite_file_url).open()
    assert refused.value.hint == "upgrade backstay"
    assert dump(site.path) == before


def dump(path: str) -> list[str]:
    connection = sqlite3.connect(path)
    found = list(connection.iterdump())
    connection.close()
    return found
