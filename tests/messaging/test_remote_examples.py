"""The example workers, in Python and in Node, as they stand: they serve, die, are replaced, and do nothing twice."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aio_pika.abc import AbstractQueue

from tests.house.sources import ROOT
from tests.messaging.remote_rig import MessageRemote, message_work
from tests.servers.fault_proxy import FaultProxy
from tests.servers.node import build
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.stories.stage import until

EXCHANGE, KEY, QUEUE = "grading", "essays", "grading.essays"
LANGUAGES = ("python", "node")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    node = build(ROOT / "examples" / "remote_worker_node", tmp_path_factory.mktemp("node"))
    return {"python": [sys.executable, str(ROOT / "examples" / "remote_worker.py")], "node": node}


class Stand:
    """A service whose items an example worker does, and copies of all that goes between the two."""

    def __init__(self, remote: MessageRemote, command: list[str], folder: Path) -> None:
        self.remote = remote
        self._command = command
        self._folder = folder
        self._logs = 0

    async def submit(self, *essays: Any) -> str:
        items = [{"exchange": EXCHANGE, "routing_key": KEY, "payload": essay} for essay in essays]
        self.remote.job = await self.remote.rig.submit("remote", items)
        return self.remote.job

    @contextmanager
    def worker(self, url: str) -> Iterator["subprocess.Popen[bytes]"]:
        self._logs += 1
        environment = {**os.environ, "ANSWERS": str(self._folder / "answers")}
        with (self._folder / f"{self._logs}.log").open("wb") as log:
            process = subprocess.Popen([*self._command, url], env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def said(self, number: int | None = None) -> list[str]:
        logs = [self._folder / f"{number}.log"] if number else sorted(self._folder.glob("*.log"))
        return [line for log in logs for line in log.read_text().splitlines()]

    def done(self) -> list[str]:
        return [line for line in self.said() if line.startswith("doing ")]

    async def serves(self, number: int) -> None:
        async def there() -> bool:
            return "waiting for requests" in self.said(number)

        await until(there, "the example is there")

    async def finished(self) -> dict[str, Any]:
        async def over() -> dict[str, Any] | None:
            await self.remote.rig.work()
            job = await self.remote.shown_job()
            return job if job["state"] in ("completed", "failed") else None

        found: dict[str, Any] = await until(over, f"the job has ended; the example said {self.said()}")
        return found

    async def copies_of(self, exchange: str, key: str) -> AbstractQueue:
        queue = await self.remote.worker.channel.declare_queue(exclusive=True)
        await queue.bind(exchange, key)
        return queue


@asynccontextmanager
async def standing(url: str, folder: Path, node: PrivateRabbitMQ, command: list[str]) -> AsyncIterator[Stand]:
    (folder / "answers").mkdir()
    async with message_work(url, folder / "data", node) as remote:
        await remote.worker.channel.queue_delete(QUEUE)
        yield Stand(remote, command, folder)


@pytest.fixture(params=LANGUAGES)
async def stand(
    request: pytest.FixtureRequest, sqlite_file_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ, commands: Any
) -> AsyncIterator[Stand]:
    async with standing(sqlite_file_url, tmp_path, rabbitmq, commands[request.param]) as made:
        yield made


@pytest.mark.slow
async def test_requests_are_served_and_the_results_are_in_the_database(stand, rabbitmq):
    with stand.worker(rabbitmq.url):
        await stand.serves(1)
        await stand.submit(*({"text": "word " * number} for number in range(20)), {"text": 7})
        job = await stand.finished()
    assert (job["state"], job["succeeded"], job["failed"]) == ("completed", 20, 1)
    results = await stand.remote.results()
    assert [line["result"] for line in results if line["state"] == "succeeded"] == [{"words": n} for n in range(20)]
    [failed] = [line for line in results if line["state"] == "failed"]
    assert (failed["error_code"], failed["message"]) == ("GW_4XX", "an essay has a text")
    assert len(stand.done()) == len(set(stand.done())) == 21


@pytest.mark.slow
async def test_when_a_worker_is_killed_in_the_middle_another_takes_over(stand, rabbitmq):
    async def begun() -> bool:
        await stand.remote.rig.work()
        return bool(await stand.remote.kept())

    with stand.worker(rabbitmq.url) as first:
        await stand.serves(1)
        await stand.submit({"text": "a long essay", "seconds": 4})
        await until(begun, "it said how far it is")
        first.kill()
        first.wait()
    with stand.worker(rabbitmq.url):
        job = await stand.finished()
    assert (job["state"], job["succeeded"]) == ("completed", 1)
    assert len(stand.done()) == 2, "both began"
    assert len(set(stand.done())) == 1, "with the same request"
    assert [line["result"] for line in await stand.remote.results()] == [{"words": 3}]


async def test_a_repeat_is_answered_again_and_not_done_again(stand, rabbitmq):
    with stand.worker(rabbitmq.url):
        await stand.serves(1)
        requests = await stand.copies_of(EXCHANGE, KEY)
        callbacks = await stand.copies_of(f"{stand.remote.prefix}.callbacks", f"{stand.remote.prefix}.callbacks")
        await stand.submit({"text": "two words"})
        await stand.finished()
        request = await requests.get()
        before: list[dict[str, Any]] = [json.loads((await callbacks.get()).body) for _ in range(4)]
        await stand.remote.worker.publish(EXCHANGE, KEY, request.body, type="request", message_id=request.message_id)
        again = await until(lambda: callbacks.get(fail=False), "it answers")
    assert [told["status"] for told in before] == ["progress"] * 3 + ["succeeded"]
    assert json.loads(again.body) == before[-1]
    assert len(stand.done()) == 1
    assert [line["result"] for line in await stand.remote.results()] == [{"words": 2}]


async def test_a_request_whose_deadline_has_passed_is_not_done(stand, rabbitmq):
    with stand.worker(rabbitmq.url):
        await stand.serves(1)
        late = {"v": 1, "id": "late", "task": "1-0/1", "tag": "x", "attempt": 1, "deadline_at": 1, "payload": {}}
        late["callback"] = {"exchange": f"{stand.remote.prefix}.callbacks", "routing_key": "nobody"}
        await stand.remote.worker.publish(EXCHANGE, KEY, json.dumps(late).encode())
        await stand.submit({"text": "two words"})
        await stand.finished()
    assert len(stand.done()) == 1


def test_the_lock_file_names_no_place_to_load_from() -> None:
    lock = json.loads((ROOT / "examples" / "remote_worker_node" / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("integrity" in package and "resolved" not in package for package in packages)


def test_each_example_is_a_page() -> None:
    for name in ("remote_worker.py", "remote_worker_node/worker.js"):
        assert len((ROOT / "examples" / name).read_text().splitlines()) <= 100


async def test_an_example_ends_with_its_connection(stand, rabbitmq):
    """Whoever started it starts it again; one that waited for ever would do nothing and look well."""
    async with FaultProxy.of(rabbitmq.url) as proxy:
        with stand.worker(proxy.url(rabbitmq.url)) as process:
            await stand.serves(1)
            await proxy.cut()
            assert await asyncio.to_thread(process.wait, 30) != 0


async def test_an_example_without_a_broker_ends_and_says_so(commands: dict[str, list[str]], tmp_path: Path) -> None:
    for command in commands.values():
        ran = await asyncio.to_thread(
            subprocess.run,
            [*command, "amqp://127.0.0.1:1/"],
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode != 0
        assert ran.stderr
