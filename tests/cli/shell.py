"""Runs the commands as a user would: in this process for speed, or as a process of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from backstay.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 120

Arg = str | int | Path

# `gate` names a file: the slow handler ends when it is there.
APP = """
import asyncio, os, time
from backstay import Backstay, Permanent, Transient

backstay = Backstay()
empty = Backstay()
number = 7


@backstay.handler()
async def echo(item):
    return item


@backstay.handler(provider="acme", retry="none")
async def picky(item: int):
    if item % 3 == 0:
        raise Permanent("no threes")
    return item


@backstay.handler(provider="acme", retry="queue")
async def flaky(item):
    raise Transient("try later")


@backstay.handler()
async def slow(item):
    open("started", "a").write(f"{os.getpid()}\\n")
    while not os.path.exists("gate"):
        await asyncio.sleep(0.01)
    return "done"


@backstay.handler()
def deaf(item):
    open("started", "a").write(f"{os.getpid()}\\n")
    while not os.path.exists("gate"):
        time.sleep(0.01)
    return "done"
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def said(self) -> list[str]:
        """What came on stderr, a line each."""
        return self.err.splitlines()

    @property
    def json(self) -> Any:
        (line,) = self.lines
        return json.loads(line)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class Shell:
    """A folder with an application in it, and a database that the environment names."""

    def __init__(self, folder: Path, url: str, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.url = url
        self._capture = capture

    def __call__(self, *args: Arg) -> Ran:
        """Runs a command in this process."""
        self._capture.readouterr()
        code = run([str(arg) for arg in args])
        captured = self._capture.readouterr()
        return Ran(code, captured.out, captured.err)

    def file(self, text: str | bytes, name: str = "items.jsonl") -> Path:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def submit(self, handler: str, *items: Any, **options: str) -> int:
        path = self.file("".join(f"{json.dumps(item)}\n" for item in items))
        flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
        ran = self("submit", str(path), "--app", "shop:backstay", "--handler", handler, "--json", *flags)
        assert ran.code == 0, ran.err
        job_id: int = ran.json["job"]
        return job_id

    def tick(self) -> Ran:
        return self("tick", "--app", "shop:backstay", "--json", "--log-level", "error")

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), **more}

    def process(self, *args: Arg, stdin: str = "", **more: str) -> Ran:
        """Runs a command as a process of its own."""
        command = [sys.executable, "-m", "backstay", *map(str, args)]
        environment = self.environment(**more)
        ran = subprocess.run(
            command, cwd=self.folder, env=environment, input=stdin, capture_output=True, text=True, check=False
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def start(self, *args: Arg, **more: str) -> "Running":
        return Running([sys.executable, "-m", "backstay", *map(str, args)], self.folder, self.environment(**more))

    def started(self) -> list[int]:
        """The process ids in which slow items have been started."""
        path = self.folder / "started"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


class Running:
    """A command that runs for long; it is gone when the block ends."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._log = (folder / "stderr.txt").open("a+")
        # A session of its own, as under a terminal: Ctrl-C there goes to all of its foreground group.
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=_hear_ctrl_c,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._log.close()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        return self.process.wait(SECONDS_MAX)

    @property
    def said(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()


def eventually(fact: Callable[[], Any]) -> Any:
    """Waits until a fact holds; fails when it does not within a minute."""
    end = time.monotonic() + SECONDS_MAX
    while not (found := fact()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended; one that only waits to be reaped has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _hear_ctrl_c() -> None:
    """A shell that starts the tests in the background has them ignore it, and they would hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
