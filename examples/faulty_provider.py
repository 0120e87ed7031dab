"""A job at a provider that fails, with a worker that is killed half-way: watch it end well, and the bill stay right.

Runs on an SQLite file, `backstay-demo.db` unless another is named. The provider is made up and lives in a second file
beside it, where it writes down every call that it was paid for.
"""

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from backstay import Backstay, Context, ErrorCode, JobView, Limits, Permanent, Result, RetryPolicy, Throttled, Transient

DATABASE = Path(os.environ.get("BACKSTAY_DEMO_DB", "backstay-demo.db"))
BILL = DATABASE.with_name(f"{DATABASE.stem}-bill.db")
ITEMS = 400
WORKERS = 2
KILL_AT = 100
SETTLE_SECONDS = 120

# Short, so that other workers take over a dead worker's items within seconds instead of minutes.
LIMITS = Limits(
    lease_seconds=2,
    heartbeat_seconds=0.5,
    send_guard_seconds=0.5,
    handler_timeout_seconds=2,
    visibility_lag_seconds=0.1,
    reconcile_margin_seconds=0.1,
)
RETRY = RetryPolicy("demo", attempts_max=6, base_ms=200, factor=2, cap_ms=1_000, spread=0.2)
backstay = Backstay(f"sqlite:///{DATABASE}", limits=LIMITS)


class Provider:
    """Keeps a bill. Every tenth call fails for now, some ask for patience, and one document in fifty is unreadable."""

    @cached_property
    def _bill(self) -> sqlite3.Connection:
        bill = sqlite3.connect(BILL, timeout=30, isolation_level=None)
        bill.execute("PRAGMA journal_mode = WAL")
        bill.execute("CREATE TABLE IF NOT EXISTS calls (client_ref TEXT, answer TEXT)")
        return bill

    async def convert(self, document: int, client_ref: str) -> str:
        await asyncio.sleep(random.uniform(0.05, 0.25))
        if document % 50 == 49:
            raise Permanent(f"document {document} is no PDF", code=ErrorCode.NOT_PDF)
        if random.random() < 0.1:
            raise Transient("the provider is overloaded")
        if random.random() < 0.03:
            raise Throttled("too many calls", retry_after_seconds=1)
        answer = f"converted-{document}"
        self._bill.execute("INSERT INTO calls VALUES (?, ?)", (client_ref, answer))
        return answer

    def answer_to(self, client_ref: str) -> str | None:
        row = self._bill.execute("SELECT answer FROM calls WHERE client_ref = ?", (client_ref,)).fetchone()
        return None if row is None else str(row[0])

    def paid(self) -> tuple[int, int]:
        """Calls paid for, and how many of them were paid before."""
        calls, references = self._bill.execute("SELECT count(*), count(DISTINCT client_ref) FROM calls").fetchone()
        return int(calls), int(calls - references)


provider = Provider()


async def find(client_ref: str) -> str | None:
    """What lets a lost call be looked up instead of paid again."""
    return provider.answer_to(client_ref)


@backstay.handler(find=find, retry=RETRY)
async def convert(document: int, context: Context) -> str:
    context.guard()
    return await provider.convert(document, context.idempotency_key)


def start_worker() -> subprocess.Popen[bytes]:
    """A worker as you would start it yourself, in a process of its own."""
    here = Path(__file__).resolve()
    command = [sys.executable, "-m", "backstay", "worker", "--app", f"{here.stem}:backstay", "--concurrency", "20"]
    paths = os.pathsep.join(filter(None, (str(here.parent), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen([*command, "--log-level", "error"], env={**os.environ, "PYTHONPATH": paths})


class Screen:
    """Live progress on a terminal, a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = Console()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console) if self._console.is_terminal else None
        self._task = self._bar.add_task("converting", total=ITEMS) if self._bar else None
        self._next = 0

    def __enter__(self) -> "Screen":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, done: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)
        elif done >= self._next:
            self.say(f"{done} of {ITEMS} done")
            self._next = done + ITEMS // 8


async def crash(due: asyncio.Event, workers: list[subprocess.Popen[bytes]], screen: Screen) -> None:
    """Kills a worker with -9 when its time has come, and starts another."""
    await due.wait()
    workers[0].kill()
    workers[0].wait()
    screen.say(f"killed worker {workers[0].pid} with -9, in the middle of its calls; starting another")
    workers[0] = start_worker()


def summary(results: list[Result], calls: int, twice: int, seconds: float) -> list[str]:
    codes = Counter(result.error_code for result in results if not result.ok)
    return [
        f"done      {sum(result.ok for result in results)} of {len(results)}",
        f"retried   {sum(result.attempts > 1 for result in results)}",
        f"failed    {', '.join(f'{count} {code}' for code, count in codes.items()) or 'none'}",
        f"paid      {calls} calls, {twice} of them twice",
        f"repeats   {sum(result.repeats for result in results)}",
        f"time      {seconds:.1f} s",
    ]


async def main() -> int:
    started = time.monotonic()
    async with backstay:
        job = await backstay.submit(convert, range(ITEMS), label="demo")
        workers = [start_worker() for _ in range(WORKERS)]
        try:
            with Screen() as screen:
                screen.say(f"job {job.id}: {ITEMS} items, {WORKERS} worker processes, a provider that fails")
                due = asyncio.Event()
                crashing = asyncio.create_task(crash(due, workers, screen))

                def progress(view: JobView) -> None:
                    screen.show(view.done)
                    if view.done >= KILL_AT:
                        due.set()

                await job.wait(progress, timeout_seconds=SETTLE_SECONDS)
                await crashing
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
        calls, twice = provider.paid()
        results = [result async for result in job.results()]
        for line in summary(results, calls, twice, time.monotonic() - started):
            screen.say(line)
        for command in ("jobs", f"job show {job.id}", f"item show {job.id}-49"):
            screen.say(f"look: .venv/bin/backstay {command} --db sqlite:///{DATABASE}")
    return 0 if twice == 0 else 1


if __name__ == "__main__":
    # Each run begins with an empty folder; its files are kept afterwards, so that you can look into them.
    for file in (*DATABASE.parent.glob(f"{DATABASE.name}*"), *BILL.parent.glob(f"{BILL.name}*")):
        file.unlink()
    try:
        sys.exit(asyncio.run(main()))
    except KeyboardInterrupt:
        sys.exit(130)
