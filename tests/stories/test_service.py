"""Two servers and two workers on PostgreSQL and Redis: what dies, dies, and clients with retries lose nothing."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import openai
import pytest

from backstay import Backstay
from backstay.store.job_views import JobView
from backstay.store.keys import Role
from tests.databases import Leaping, Site
from tests.house.sources import ROOT
from tests.servers.redis import PrivateRedis
from tests.stories.balancer import balancing
from tests.stories.runs import COMMAND, SHORT_WAITS, Provider, practice
from tests.stories.stage import until

pytestmark = pytest.mark.slow

BATCHES = 6
LINES = 60
MANY_LINES = 40_000  # twenty writes to the database
CHAT: Final = "/v1/chat/completions"


class Fleet:
    """The processes of one service, on one database, one Redis and one folder."""

    def __init__(self, url: str, redis_url: str, folder: Path, provider: Provider) -> None:
        self._folder = folder
        self._db = ("--db", url)
        self._base = ("--base-url", provider.base_url, "--data", str(folder / "data"))
        self._environment = {
            **os.environ,
            **SHORT_WAITS,
            "BACKSTAY_WORKER_LEASE_TTL_SEC": "3",
            "BACKSTAY_REDIS_URL": redis_url,
            "BACKSTAY_SECRET_KEY": "s" * 32,
            "OPENAI_API_KEY": "practice",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def serve(self) -> tuple[int, "subprocess.Popen[bytes]"]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return port, self._start("serve", "--no-worker", "--require-key", "--port", str(port), *self._db, *self._base)

    def work(self) -> "subprocess.Popen[bytes]":
        return self._start("worker", "--concurrency", "8", *self._db)

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self._folder / f"{arguments[0]}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, env=self._environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')}" for log in self._folder.glob("*.log"))


@pytest.fixture
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def provider() -> Iterator[Provider]:
    with practice("--latency", "0.1") as found:
        yield found


@pytest.fixture
async def fleet(postgres_url: str, redis: PrivateRedis, tmp_path: Path, provider: Provider) -> AsyncIterator[Fleet]:
    made = Fleet(postgres_url, redis.url, tmp_path, provider)
    try:
        yield made
    except BaseException as error:
        error.add_note(made.logs())
        raise
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


async def lives(port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


def requests_of(number: int, count: int = LINES) -> bytes:
    def body(n: int) -> dict[str, Any]:
        words = f"question {n} of batch {number}"
        return {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": words}], "max_tokens": 20}

    lines = ({"custom_id": f"b{number}-{n}", "method": "POST", "url": CHAT, "body": body(n)} for n in range(count))
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


async def have_done(client: openai.AsyncOpenAI, number: int) -> tuple[str, list[str]]:
    """One user's whole way: upload, create, wait, download. Returns the batch and the names of its results."""
    file = await client.files.create(file=(f"{number}.jsonl", requests_of(number)), purpose="batch")
    made = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")

    async def ended() -> openai.types.Batch | None:
        batch = await client.batches.retrieve(made.id)
        return batch if batch.status in ("completed", "failed", "expired", "cancelled") else None

    batch = await until(ended, f"batch {number} ended", 120)
    assert (batch.status, batch.request_counts.completed) == ("completed", LINES), batch
    content = await client.files.content(batch.output_file_id)
    return made.id, [json.loads(line)["custom_id"] for line in content.text.splitlines()]


async def test_a_server_a_worker_and_redis_die_and_clients_with_retries_lose_nothing(
    fleet: Fleet, redis: PrivateRedis, postgres_url: str, provider: Provider
) -> None:
    async with Backstay(postgres_url) as app:
        key = (await (await app.open()).store.keys.create("ada", Role.WRITE)).text
    (one, doomed_server), (two, _) = fleet.serve(), fleet.serve()
    doomed_worker, _ = fleet.work(), fleet.work()
    for port in (one, two):
        await until(partial(lives, port), "a server lives")
    async with (
        balancing([one, two]) as address,
        openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=key, max_retries=8) as client,
    ):
        users = [asyncio.ensure_future(have_done(client, number)) for number in range(BATCHES // 2)]

        async def paid(n: int) -> bool:
            return bool((await asyncio.to_thread(provider.bill))["charged"] >= n)

        await until(lambda: paid(20), "some work was paid")
        users += [asyncio.ensure_future(have_done(client, number)) for number in range(BATCHES // 2, BATCHES)]
        await asyncio.sleep(0.02)  # they are in the middle of it
        doomed_server.send_signal(signal.SIGKILL)
        await until(lambda: paid(60), "more work was paid")
        doomed_worker.send_signal(signal.SIGKILL)
        redis.kill()
        done = await asyncio.gather(*users)
        listed = [batch.id async for batch in client.batches.list()]
    for number, (_, names) in enumerate(done):
        assert sorted(names) == sorted(f"b{number}-{n}" for n in range(LINES)), "every request has one result"
    assert sorted(listed) == sorted(batch for batch, _ in done), "no batch was lost, and none made twice"
    bill = await asyncio.to_thread(provider.bill)
    assert bill["charged"] - bill["paid_again"] == BATCHES * LINES
    assert bill["paid_again"] <= 8, "at most what the dead worker had under way"


async def test_a_batch_that_a_dead_server_had_half_moved_is_moved_by_another(fleet: Fleet, postgres_url: str) -> None:
    async with Backstay(postgres_url) as app:
        store = (await app.open()).store
        key = (await store.keys.create("ada", Role.WRITE)).text
        port, doomed = fleet.serve()
        await until(partial(lives, port), "a server lives")
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key) as client:
            file = await client.files.create(file=("many.jsonl", requests_of(0, MANY_LINES)), purpose="batch")
            await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")

        async def moved(sealed: bool) -> JobView | None:
            return next((job for job in await store.job_views.page("ada") if job.sealed == sealed), None)

        await until(partial(moved, sealed=False), "some of its requests are in")
        doomed.kill()
        doomed.wait()
        half = await moved(sealed=False)
        assert half is not None, "it died in the middle"
        assert 0 < half.total < MANY_LINES
        fleet.serve()
        await Site(postgres_url, Leaping()).rows("UPDATE batches SET leased_until = 0")  # as in 30 s it would be
        whole = await until(partial(moved, sealed=True), "all of its requests are in")
        assert (whole.id, whole.total) == (half.id, MANY_LINES)
        asked = [json.loads(body)["custom_id"] async for page in store.batches.requests(whole.id) for body in page]
        assert asked == [f"b0-{n}" for n in range(MANY_LINES)]
        assert len(await store.job_views.page("ada")) == 1
