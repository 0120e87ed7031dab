"""What `make lowest` runs in an environment with the oldest libraries that pyproject.toml allows: a bit of everything.

python -m tests.lowest
"""

import asyncio
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import aiohttp

import backstay
from backstay import wiring
from backstay.artifacts import artifacts_at
from backstay.core.errors import DatabaseUnreachable
from backstay.store.archives import Archive, Letter, LetterHead
from backstay.store.databases import silence
from backstay.upkeep import archivist
from tests.servers.fault_proxy import FaultProxy
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbitMQ, RabbitMQMissing
from tests.servers.redis import PrivateRedis, RedisMissing

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 60.0
REQUESTS = ROOT / "examples" / "requests.jsonl"
LINES = 20
ELSEWHERE = (
    "backstay.aws_lambda",
    "backstay.__main__",
)  # Amazon brings its library; importing the other runs a command
APP = """
from backstay import Backstay

backstay = Backstay()


@backstay.handler()
async def echo(item):
    return item
"""


class Place:
    """A folder in which commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(APP)
        lines = REQUESTS.read_text(encoding="utf-8").splitlines(keepends=True)[:LINES]
        (folder / "requests.jsonl").write_text("".join(lines), encoding="utf-8")
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"}

    def run(self, *args: str) -> str:
        command = [sys.executable, "-m", "backstay", *args]
        ran = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{' '.join(args)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    @contextmanager
    def running(self, *args: str, end: int = 0, **more: str) -> Iterator[Path]:
        """A command that is told to stop when the block ends; gives the file with all that it says."""
        said = self.folder / f"{args[0]}-{time.monotonic_ns()}.log"
        with said.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "backstay", *args],
                cwd=self.folder,
                env={**self._environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield said
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE_SECONDS)
            assert code == end, f"{' '.join(args)}: exit code {code}\n{said.read_text()}"
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def done(self, db: str, job: int) -> bool:
        return bool(json.loads(self.run("job", "show", str(job), "--db", db, "--json"))["state"] == "completed")


def until(fact: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := fact()):
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.1)
    return found


def address(said: Path, name: str) -> str:
    """Where a server listens, as it says itself in JSON."""

    def told() -> str | None:
        lines = [json.loads(line) for line in said.read_text().splitlines() if line.startswith("{")]
        return next((str(line[name]) for line in lines if name in line), None)

    url: str = until(told, f"{said.name} says where it listens")
    return url


def import_everything() -> None:
    for module in pkgutil.walk_packages(backstay.__path__, "backstay."):
        if module.name not in ELSEWHERE and ".migrations" not in module.name:
            import_module(module.name)


def run_a_file(place: Place, provider: str) -> None:
    place.run("run", "requests.jsonl", "--base-url", provider, "--db", "sqlite:///run.db", "--out", "out.jsonl")
    lines = [json.loads(line) for line in (place.folder / "out.jsonl").read_text().splitlines()]
    assert len({line["custom_id"] for line in lines if line["response"]["status_code"] == 200}) == LINES


def serve_a_batch(place: Place, provider: str) -> None:
    with ExitStack() as stack:
        redis = {}
        try:
            redis["BACKSTAY_REDIS_URL"] = stack.enter_context(PrivateRedis()).url
        except RedisMissing:
            print("  without Redis, which is not on this machine")
        command = ("serve", "--port", "0", "--base-url", provider, "--db", "sqlite:///serve.db", "--json")
        said = stack.enter_context(place.running(*command, end=-signal.SIGTERM, **redis))
        asyncio.run(_batch(address(said, "url"), (place.folder / "requests.jsonl").read_bytes()))


async def _batch(url: str, requests: bytes) -> None:
    async with aiohttp.ClientSession(url, raise_for_status=True) as session:
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", requests, filename="requests.jsonl")
        async with session.post("/v1/files", data=form) as answer:
            file = (await answer.json())["id"]
        order = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        async with session.post("/v1/batches", json=order) as answer:
            batch = await answer.json()
        end = time.monotonic() + PATIENCE_SECONDS
        while batch["status"] != "completed":
            assert time.monotonic() < end, batch
            await asyncio.sleep(0.1)
            async with session.get(f"/v1/batches/{batch['id']}") as answer:
                batch = await answer.json()
        async with session.get(f"/v1/files/{batch['output_file_id']}/content") as answer:
            assert len((await answer.text()).splitlines()) == LINES
        async with session.get("/") as answer:
            assert "Backstay" in await answer.text()


def work_on_postgres(place: Place, provider: str, db: str) -> None:
    place.run("migrate", "--db", db)
    sent = place.run("submit", "requests.jsonl", "--base-url", provider, "--db", db, "--json")
    with place.running("worker", "--db", db):
        until(lambda: place.done(db, json.loads(sent)["job"]), "the worker has done the job")


def dispatch_over_rabbitmq(place: Place, db: str) -> None:
    (place.folder / "items.jsonl").write_text("".join(f"{number}\n" for number in range(2_000)))
    try:
        node = PrivateRabbitMQ()
    except RabbitMQMissing:
        print("  not done: RabbitMQ is not on this machine")
        return
    with node:
        options = ("--app", "shop:backstay", "--db", db)
        with place.running("worker", *options, "--broker", node.url, "--log-level", "debug") as said:
            until(lambda: said.read_text().count("broker connected") >= 2, "the worker has its broker")
            sent = place.run("submit", "items.jsonl", *options, "--handler", "echo", "--json")
            until(lambda: place.done(db, json.loads(sent)["job"]), "the worker has done the job")
            until(lambda: '"named": true' in said.read_text(), "a claim went by messages")


async def notice_silence(db: str) -> None:
    """It goes deep into the driver."""
    silence.SLOW_SECONDS, silence.LOOK_SECONDS, silence.TICK_SECONDS = 0.5, 0.3, 0.1  # type: ignore[misc]
    async with FaultProxy.of(db) as proxy:
        store = await wiring.open_store(proxy.url(db))
        await asyncio.gather(*(store.outbox.is_open() for _ in range(3)))
        proxy.forget()
        (said,) = await asyncio.gather(store.outbox.is_open(), return_exceptions=True)
        assert isinstance(said, DatabaseUnreachable), said
        assert "was silent" in str(said), said
        await asyncio.gather(*(store.outbox.is_open() for _ in range(3)))
        await store.close()


async def archive(folder: Path) -> None:
    heads = [LetterHead(number, 1, "echo", "GW_4XX", 0, f'"body {number}"') for number in range(1, 300)]
    letters = [Letter(head, [], {}, {}) for head in heads]

    async def pages() -> AsyncIterator[list[Letter]]:
        yield letters

    artifacts = artifacts_at(str(folder / "data"))
    sealed = await archivist.write(artifacts, "archives/a.jsonl.zst", "ann", pages())
    kept = Archive(1, "ann", "archives/a.jsonl.zst", len(letters), sealed.bytes, sealed.digest, 0, 0, 0, None)
    assert [letter async for page in archivist.read(artifacts, kept) for letter in page] == letters


@contextmanager
def step(words: str) -> Iterator[None]:
    began = time.monotonic()
    print(words, flush=True)
    yield
    print(f"  {time.monotonic() - began:.1f} s", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        place = Place(Path(made))
        with step("import every module"):
            import_everything()
        with step("archive and read back"):
            asyncio.run(archive(place.folder))
        with place.running("practice", "--port", "0", "--json", end=0) as said:
            provider = address(said, "base_url")
            with step("run a file on SQLite"):
                run_a_file(place, provider)
            with step("serve a batch"):
                serve_a_batch(place, provider)
            with PrivatePostgres() as server:
                db = server.create_database()
                with step("work on PostgreSQL"):
                    work_on_postgres(place, provider, db)
                with step("notice a connection that goes silent"):
                    asyncio.run(notice_silence(db))
                with step("dispatch over RabbitMQ"):
                    dispatch_over_rabbitmq(place, db)
    print("lowest: all of it works")


if __name__ == "__main__":
    main()
