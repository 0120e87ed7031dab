"""The supervisor alone, over small commands of its own."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from backstay.clock import Clock, Tasks
from backstay.core.events import Trouble
from backstay.engine import worker
from backstay.engine.worker import Orders, Supervisor
from tests.cli.shell import eventually

DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "a").write("x")
time.sleep(600)
"""
GOOD = "import sys; open(sys.argv[1], 'a').write('x'); sys.stdin.read()"


def orders(code: str, *args: str, processes: int = 1, stop_seconds: float = 30) -> Orders:
    return Orders([sys.executable, "-c", code, *args], dict(os.environ), processes, stop_seconds)


async def test_a_child_that_dies_at_once_is_started_again_ever_later_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "RESTART_SECONDS_FIRST", 0.001)
    monkeypatch.setattr(worker, "RESTART_SECONDS_MAX", 0.003)
    monkeypatch.setattr(worker, "DEATHS_MAX", 5)
    said: list[Trouble] = []
    assert await Supervisor(orders("raise SystemExit(8)"), Clock(), said.append).run() == 8
    waits = [trouble.message.rpartition("in ")[2] for trouble in said]
    assert waits[:4] == ["0.001 s", "0.002 s", "0.003 s", "0.003 s"]
    assert waits[4:] == ["worker process 1 ended with exit code 8; all worker processes are stopped"]


async def test_a_child_that_was_steady_has_a_clean_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RESTART_SECONDS_FIRST", 0.001)
    monkeypatch.setattr(worker, "STEADY_SECONDS", 0.0)
    monkeypatch.setattr(worker, "DEATHS_MAX", 2)
    said: list[Trouble] = []
    made = Supervisor(orders("raise SystemExit(1)"), Clock(), said.append)

    def count(trouble: Trouble) -> None:
        said.append(trouble)
        if len(said) == 4:
            made.forward_signal(signal.SIGTERM)

    made._emit = count
    assert await made.run() == 0
    assert {trouble.message.rpartition("in ")[2] for trouble in said} == {"0.001 s"}


async def test_a_child_killed_by_a_signal_and_given_up_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "DEATHS_MAX", 1)
    said: list[Trouble] = []
    killing = "import os; os.kill(os.getpid(), 9)"
    assert await Supervisor(orders(killing), Clock(), said.append).run() == 1
    assert "signal 9" in said[0].message


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_child_that_does_not_hear_is_killed_in_the_end(tmp_path: Path, signals: int) -> None:
    started, said, ended = tmp_path / "started", list[Trouble](), list[int]()
    deaf = orders(DEAF, str(started), processes=2, stop_seconds=0.05)
    made, tasks = Supervisor(deaf, Clock(), said.append, ended.append), Tasks()
    running = tasks.spawn(made.run())
    while not (started.exists() and started.read_text() == "xx"):
        await Clock().sleep(0.01)
    for _ in range(signals):
        made.forward_signal(signal.SIGTERM)
    assert await running == 0
    assert [trouble.message.endswith("and is killed") for trouble in said] == [True, True]
    assert len(ended) == 2


async def test_a_child_that_is_just_being_started_hears_of_the_stop_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said, ended = list[Trouble](), list[int]()
    made = Supervisor(orders(GOOD, str(tmp_path / "started")), Clock(), said.append, ended.append)
    start = asyncio.create_subprocess_exec

    async def start_while_stopped(*args: Any, **options: Any) -> Any:
        child = await start(*args, **options)
        made.forward_signal(signal.SIGTERM)
        return child

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_while_stopped)
    async with asyncio.timeout(20):
        assert await made.run() == 0
    assert (said, len(ended)) == ([], 1)


def test_children_see_the_end_of_their_stdin_when_the_parent_is_killed(tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"
    code = f"{GOOD}; open(sys.argv[2], 'a').write('x')"
    pid = os.fork()
    if pid == 0:
        parent = (
            "import asyncio, os, sys\nfrom backstay.clock import Clock\n"
            "from backstay.engine.worker import Orders, Supervisor\n"
            "o = Orders([sys.executable, '-c', sys.argv[1], *sys.argv[2:]], dict(os.environ), 2, 30)\n"
            "async def main(): await Supervisor(o, Clock(), print).run()\n"
            "asyncio.run(main())\n"
        )
        os.execv(sys.executable, [sys.executable, "-c", parent, code, str(started), str(ended)])
    eventually(lambda: started.exists() and started.read_text() == "xx")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    eventually(lambda: ended.exists() and ended.read_text() == "xx")
