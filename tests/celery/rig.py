"""Celery workers in processes of their own, and the database that they share with the test."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from celery import Celery

from backstay import Backstay
from backstay.celery import CeleryBridge
from backstay.client import Job
from tests.house.sources import ROOT
from tests.servers.rabbitmq import PrivateRabbitMQ

PATIENCE_SECONDS = 60.0
NEVER_SECONDS = 600.0
APP = "tests.celery.shop"


class Shop:
    """`async with Shop(folder, database, broker, queue) as shop:` ends what it started."""

    def __init__(self, folder: Path, database_url: str, broker_url: str, queue: str) -> None:
        self.folder = folder
        self.queue = queue
        self.backstay = Backstay(database_url)
        self.celery = Celery("test", broker=broker_url, set_as_current=False)
        self.bridge = CeleryBridge(self.celery, self.backstay, queue)
        self._processes: list[subprocess.Popen[bytes]] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BACKSTAY_")}
        shop = {"SHOP_DATABASE_URL": database_url, "SHOP_BROKER_URL": broker_url, "SHOP_QUEUE": queue}
        self._environment = {**kept, **shop, "PYTHONPATH": str(ROOT)}

    async def __aenter__(self) -> Self:
        from tests.celery import shop

        for handler in shop.backstay.handlers:
            self.backstay.handlers.add(handler)
        await self.backstay.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        await self.backstay.close()
        self.celery.close()
        if error is not None:
            error.add_note(self.log[-6_000:])

    def start(self, *options: str, **environment: str) -> "subprocess.Popen[bytes]":
        words = ["-A", APP, "worker", "-Q", self.queue, "-l", "INFO", "-n", f"{self.queue}-{len(self._processes)}@%h"]
        with (self.folder / f"{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", *words, *(options or ("--concurrency", "2"))],
                cwd=self.folder,
                env={**self._environment, **environment},
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    async def started(self, *options: str, **environment: str) -> "subprocess.Popen[bytes]":
        """A worker that has greeted the database, and looked into it once."""
        before = len(await self._workers())
        process = self.start(*options, **environment)
        wanted = 1 if "solo" in options or "threads" in options else 2
        await self.until(lambda: "ready." in self.log_of(process), "Celery's worker is ready")
        end = time.monotonic() + PATIENCE_SECONDS
        while len(await self._workers()) < before + wanted and time.monotonic() < end:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
        return process

    async def _workers(self) -> list[Any]:
        client = await self.backstay.open()
        return list(await client.store.workers.page())

    async def until(self, fact: Callable[[], object], name: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not fact():
            assert time.monotonic() < end, f"in vain waited until {name}"
            await asyncio.sleep(0.02)

    async def ended(self, job: Job) -> list[Any]:
        """The values of a job's items in their order, when all have ended."""
        await job.wait(timeout_seconds=PATIENCE_SECONDS)
        return [result.value async for result in job.results()]

    def send(self, handler: str, items: list[str]) -> None:
        """A message of Celery's own making, as a copy of one that was sent before would be."""
        self.celery.send_task("backstay.work", (handler, items), queue=self.queue, ignore_result=True)

    def depth(self) -> int:
        """How many messages are in the queue."""
        with self.celery.connection_for_read() as connection, connection.channel() as channel:
            return int(channel.queue_declare(self.queue, passive=True).message_count)

    def stop(self, process: "subprocess.Popen[bytes]") -> int:
        """The warm shutdown."""
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_SECONDS)

    @property
    def told(self) -> Counter[str]:
        """What handlers told of: how often each line."""
        path = self.folder / "told"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def log_of(self, process: "subprocess.Popen[bytes]") -> str:
        return (self.folder / f"{self._processes.index(process)}.log").read_text(errors="replace")

    @property
    def log(self) -> str:
        return "\n".join(f"--- {number}\n{self.log_of(one)}" for number, one in enumerate(self._processes))

    @property
    def run_by_messages(self) -> int:
        """How many items were claimed because a message named them."""
        return sum(map(int, self._messages))

    @property
    def messages(self) -> int:
        """How many messages of items the workers are through with."""
        return len(self._messages)

    @property
    def _messages(self) -> list[str]:
        path = self.folder / "messages"
        return path.read_text().splitlines() if path.exists() else []


def shop_on(folder: Path, database_url: str, rabbitmq: PrivateRabbitMQ) -> Shop:
    return Shop(folder, database_url, rabbitmq.url, f"{rabbitmq.prefix()}.celery")
