"""What a story plays on: a provider, workers as real processes, and the eyes to see what they do."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp

from backstay import Backstay, Job, Result
from backstay.store.workers import WorkerView
from tests.house.sources import ROOT
from tests.stories.app import backstay as app

APP = "tests.stories.app:backstay"
PATIENCE_SECONDS = 60.0


class Charge(NamedTuple):
    """A line of the provider's bill."""

    kind: str
    client_ref: str
    payload: Any
    worker: int
    number: int
    at: float
    task_id: str | None
    ended_at: float | None


class Kill(NamedTuple):
    pid: int
    at: float


async def until(
    fact: Callable[[], Awaitable[Any]],
    what: str,
    seconds: float = PATIENCE_SECONDS,
    progress: Callable[[], Awaitable[Any]] | None = None,
) -> Any:
    """Waits for a fact and returns it; a story that waits in vain says for what. With `progress`, the time counts from
    its last change: a slow machine may take long, as long as something happens."""
    seen, end = None, time.monotonic() + seconds
    while not (found := await fact()):
        if progress is not None and (now := await progress()) != seen:
            seen, end = now, time.monotonic() + seconds
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s in vain until {what}" + (f"; at {seen}" if progress else ""))
        await asyncio.sleep(0.02)
    return found


def worker_command(concurrency: int) -> tuple[str, ...]:
    return ("worker", "--app", APP, "--concurrency", str(concurrency))


class Stage:
    """`async with Stage(url, tmp_path) as stage:` ends every process that it started, whatever happens."""

    def __init__(self, url: str, folder: Path, seed: int = 1) -> None:
        self.url = url
        self.folder = folder
        self.kills: list[Kill] = []
        self._seed = seed
        self._processes: list[subprocess.Popen[str]] = []
        self._logs: dict[int, Path] = {}
        self._environment = {**os.environ, "BACKSTAY_DATABASE_URL": url}

    async def __aenter__(self) -> Self:
        self.provider = self._start("provider", "tests.stories.provider", "--seed", str(self._seed))
        assert self.provider.stdout is not None
        port = await asyncio.to_thread(self.provider.stdout.readline)
        self.provider_url = f"http://127.0.0.1:{int(port)}"
        self._environment["STORY_PROVIDER_URL"] = self.provider_url
        self._http = aiohttp.ClientSession(self.provider_url, raise_for_status=True)
        self.backstay = Backstay(self.url, limits=app.limits)
        for handler in app.handlers:
            self.backstay.handlers.add(handler)
        self.client = await self.backstay.open()
        self.store = self.client.store
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        await self._http.close()
        await self.backstay.close()
        if error is not None:
            error.add_note(self.logs())

    # processes

    def _start(self, name: str, module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        log = self.folder / f"{len(self._processes)}-{name}.log"
        with log.open("w") as words:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env={**self._environment, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if name in ("provider", "tick") else words,
                stderr=words,
                text=True,
            )
        self._processes.append(process)
        self._logs[process.pid] = log
        return process

    def worker(self, concurrency: int = 20, **environment: str) -> subprocess.Popen[str]:
        return self._start("worker", "backstay", *worker_command(concurrency), **environment)

    def standing_still(self, point: str, *command: str, **environment: str) -> subprocess.Popen[str]:
        """A command that stands still for good at a point of its work; its log says when it is there."""
        return self._start("still", "tests.stories.standing_still", point, *command, **environment)

    def relay(self, **environment: str) -> subprocess.Popen[str]:
        return self._start("relay", "backstay", "relay", **environment)

    def serve(self, port: int, **environment: str) -> subprocess.Popen[str]:
        """A server without a worker."""
        options = ("--no-worker", "--port", str(port), "--data", str(self.folder / "data"))
        return self._start("server", "backstay", "serve", *options, **environment)

    def tick(self, **environment: str) -> subprocess.Popen[str]:
        return self._start("tick", "backstay", "tick", "--app", APP, "--json", **environment)

    async def ticks_at_once(self, count: int) -> list[subprocess.Popen[str]]:
        """Invocations that begin together, when the last of them is ready to."""
        line = self.folder / "start-line"
        line.mkdir()
        ticks = [self.tick(STORY_START_LINE=str(line)) for _ in range(count)]

        async def ready() -> bool:
            return {path.name for path in line.iterdir()} == {str(tick.pid) for tick in ticks}

        await until(ready, "all are ready")
        (line / "go").touch()
        return ticks

    def patient_worker(self, **environment: str) -> subprocess.Popen[str]:
        """A worker that looks by itself so seldom that only a hint can explain why it looked."""
        return self._start("worker", "tests.stories.patient_worker", **environment)

    async def report(self, tick: subprocess.Popen[str]) -> dict[str, Any]:
        """What an invocation says of itself at its end."""
        said, _ = await asyncio.to_thread(tick.communicate)
        assert tick.returncode == 0, f"a tick ended with exit code {tick.returncode}"
        report: dict[str, Any] = json.loads(said)
        return report

    def kill9(self, process: subprocess.Popen[str]) -> None:
        self.kills.append(Kill(process.pid, time.time()))
        process.kill()
        process.wait()

    async def ended(self, process: subprocess.Popen[str]) -> int:
        return await asyncio.to_thread(process.wait, PATIENCE_SECONDS)

    async def said(self, process: subprocess.Popen[str], words: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until a process has logged these words."""

        async def logged() -> bool:
            return words in self._logs[process.pid].read_text()

        await until(logged, f"the log says {words!r}", seconds)

    def spoken(self, name: str) -> list[dict[str, Any]]:
        """The log of all processes of a name; a last word that a kill cut off is not there."""
        return [line for log in self.folder.glob(f"*-{name}.log") for line in _lines_of(log)]

    def log_of(self, process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
        return _lines_of(self._logs[process.pid])

    def plain_lines(self, name: str) -> list[str]:
        """What processes of a name wrote besides their log."""
        lines = [line for log in self.folder.glob(f"*-{name}.log") for line in log.read_text().splitlines()]
        return [line for line in lines if not line.startswith("{")]

    def logs(self) -> str:
        """The last words of every process, for whoever reads of a failure."""
        texts = ((log.name, log.read_text()[-1_500:]) for log in sorted(self.folder.glob("*.log")))
        return "\n".join(f"--- {name}\n{text}" for name, text in texts if text)

    async def working(self, process: subprocess.Popen[str]) -> WorkerView:
        """The worker of a process, once it has greeted the database."""

        async def greeted() -> WorkerView | None:
            return next((worker for worker in await self.store.workers.page() if worker.pid == process.pid), None)

        found: WorkerView = await until(greeted, "the worker has started")
        return found

    # the provider

    async def manners(self, kind: str, **manners: Any) -> None:
        async with self._http.post(f"/manners/{kind}", json=manners):
            return

    async def bill(self, kind: str | None = None) -> list[Charge]:
        async with self._http.get("/bill") as response:
            charges = [Charge(**charge) for charge in (await response.json())["charges"]]
        return [charge for charge in charges if kind in (None, charge.kind)]

    async def turned_away(self, kind: str) -> list[tuple[int, float]]:
        """The requests that were refused, as (worker, time)."""
        async with self._http.get("/bill") as response:
            return [(worker, at) for refused, worker, at in (await response.json())["turned_away"] if refused == kind]

    async def in_flight(self, kind: str, calls: int) -> None:
        """Waits until so many calls are under way at the provider at once."""

        async def under_way() -> bool:
            return sum(charge.ended_at is None for charge in await self.bill(kind)) >= calls

        await until(under_way, f"{calls} calls are in flight")

    # the database

    async def submit(self, handler: str, payloads: Iterable[Any], **options: Any) -> Job:
        return await self.backstay.submit(handler, payloads, **options)

    async def results(self, job: Job) -> dict[int, Result]:
        return {result.position: result async for result in job.results()}

    async def acts(self, item: int) -> list[str]:
        return [event.act for event in await self.store.events.oldest(f"item:{item}")]


def _lines_of(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def by_ref(charges: Iterable[Charge]) -> dict[str, list[Charge]]:
    groups: dict[str, list[Charge]] = defaultdict(list)
    for charge in charges:
        groups[charge.client_ref].append(charge)
    return groups


def paid_twice(charges: Iterable[Charge]) -> list[list[Charge]]:
    return [group for group in by_ref(charges).values() if len(group) > 1]


def terminate(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
