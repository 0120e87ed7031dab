"""`backstay worker` and `backstay tick` as real processes: signals, several processes, metrics."""

import json
import os
import signal
import socket
import urllib.request

import pytest

from tests.cli.shell import Running, Shell, eventually, gone

WORKER = ("worker", "--app", "shop:backstay")


def state(shell: Shell, job_id: int) -> str:
    word: str = shell("job", "show", job_id, "--json").json["state"]
    return word


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def children(running: Running) -> list[int]:
    pid = running.process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as found:
        return [int(word) for word in found.read().split()]


def open_gate(shell: Shell) -> None:
    shell.file("", "gate")


def test_a_worker_runs_what_is_submitted_and_sigterm_lets_it_finish(shell: Shell) -> None:
    quick, slow = shell.submit("echo", 1, 2, 3), shell.submit("slow", 1)
    with shell.start(*WORKER) as worker:
        eventually(lambda: state(shell, quick) == "completed")
        eventually(shell.started)
        worker.send(signal.SIGTERM)
        later = shell.submit("echo", 4)
        open_gate(shell)
        assert worker.wait() == 0
        events = [json.loads(line)["event"] for line in worker.said.splitlines()]
    assert state(shell, slow) == "completed"
    assert state(shell, later) == "queued"
    assert (events[0], events[-1]) == ("worker started", "worker stopped")


def test_a_second_signal_hands_back_what_runs(shell: Shell) -> None:
    job_id = shell.submit("slow", 1)
    with shell.start(*WORKER) as worker:
        eventually(shell.started)
        worker.send(signal.SIGTERM)
        eventually(lambda: "worker stopping" in worker.said)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 130
        stopped = json.loads(worker.said.splitlines()[-1])
    shown = shell("item", "show", f"{job_id}-0", "--json").json
    assert (shown["state"], shown["attempt_count"]) == ("queued", 0)
    assert stopped["handed_back"] == 1


def test_the_grace_is_bounded(sqlite_shell: Shell) -> None:
    job_id = sqlite_shell.submit("slow", 1)
    with sqlite_shell.start(*WORKER, BACKSTAY_SHUTDOWN_SECONDS="0.2") as worker:
        eventually(sqlite_shell.started)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert sqlite_shell("item", "show", f"{job_id}-0", "--json").json["state"] == "queued"


@pytest.mark.slow
def test_several_processes_share_the_work_and_stop_together(shell: Shell) -> None:
    port = free_port()
    job_id = shell.submit("slow", *range(8))
    with shell.start(*WORKER, "--processes", 2, "--concurrency", 4, "--metrics-port", port) as parent:
        eventually(lambda: len(shell.started()) == 8)
        assert set(shell.started()) == set(children(parent))
        assert len(children(parent)) == 2
        open_gate(shell)
        eventually(lambda: state(shell, job_id) == "completed")
        assert eventually(lambda: scrape(port).get('backstay_items_settled_total{state="succeeded"}') == 8)
        workers = children(parent)
        parent.send(signal.SIGTERM)
        assert parent.wait() == 0
    assert all(gone(pid) for pid in workers)


@pytest.mark.slow
def test_ctrl_c_on_the_terminal_reaches_each_child_once(sqlite_shell: Shell) -> None:
    job_id = sqlite_shell.submit("slow", 1, 2)
    with sqlite_shell.start(*WORKER, "--processes", 2) as parent:
        # One child may take both items before the other has begun to listen for signals.
        eventually(lambda: len(sqlite_shell.started()) == 2 and parent.said.count("worker started") == 2)
        parent.ctrl_c()
        eventually(lambda: parent.said.count("worker stopping") == 2)
        open_gate(sqlite_shell)
        assert parent.wait() == 0
    assert state(sqlite_shell, job_id) == "completed"


@pytest.mark.slow
def test_a_process_that_died_is_started_again(sqlite_shell: Shell) -> None:
    with sqlite_shell.start(*WORKER, "--processes", 2) as parent:
        first = eventually(lambda: parent.said.count("worker started") == 2 and children(parent))
        os.kill(first[0], signal.SIGKILL)
        eventually(lambda: parent.said.count("worker started") == 3)
        assert len(children(parent)) == 2
        assert first[1] in children(parent)
        assert "ended with signal 9; a new one starts in 1 s" in parent.said
        parent.send(signal.SIGINT)
        assert parent.wait() == 0


@pytest.mark.slow
def test_children_do_not_outlive_their_parent(sqlite_shell: Shell) -> None:
    with sqlite_shell.start(*WORKER, "--processes", 2) as parent:
        workers = eventually(lambda: parent.said.count("worker started") == 2 and children(parent))
        parent.send(signal.SIGKILL)
        parent.wait()
        eventually(lambda: all(gone(pid) for pid in workers))
        assert parent.said.count("worker stopped") == 2


@pytest.mark.slow
def test_a_child_that_can_never_start_ends_them_all(sqlite_shell: Shell) -> None:
    # The parent can import the application, a child cannot: what is wrong does not heal by itself.
    sqlite_shell.file(
        "import sys\nfrom shop import backstay\nassert '--attached' not in sys.argv, 'not as a child'\n", "broken.py"
    )
    ran = sqlite_shell.process("worker", "--app", "broken:backstay", "--processes", 2)
    assert ran.code == 2
    assert "AssertionError: not as a child" in ran.err
    assert "all worker processes are stopped" in ran.err


@pytest.mark.slow
def test_metrics_tell_what_is_done_and_what_waits(shell: Shell) -> None:
    port = free_port()
    done, failed, waiting = shell.submit("echo", *range(20)), shell.submit("picky", 3), shell.submit("slow", 1)
    with shell.start(*WORKER, "--metrics-port", port) as worker:
        eventually(lambda: state(shell, done) == "completed" and state(shell, failed) == "failed")
        eventually(shell.started)
        found = scrape(port)
        assert found['backstay_items_settled_total{state="succeeded"}'] == 20
        assert found['backstay_items_failed_total{code="UNKNOWN"}'] == 1
        assert found["backstay_attempt_seconds_count"] == 21
        depth = eventually(lambda: scrape(port).get('backstay_queue_depth{handler="slow"}'))
        assert depth == 1
        open_gate(shell)
        eventually(lambda: state(shell, waiting) == "completed")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


@pytest.mark.slow
def test_a_taken_metrics_port_is_one_line(sqlite_shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for processes in (1, 2):
            port = taken.getsockname()[1]
            ran = sqlite_shell.process(*WORKER, "--metrics-port", port, "--processes", processes)
            assert ran.code == 2
            assert f"backstay: error: cannot serve metrics on 127.0.0.1:{port}" in ran.said[-1]
            assert "Traceback" not in ran.err


def test_a_tick_reports_and_asks_for_a_follow_up(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_TICK_ITEMS_MAX", "2")
    shell.submit("echo", *range(7))
    report = shell.tick().json
    assert (report["depth"], report["claimed"], report["pending"], report["follow_up"]) == (0, 2, True, True)
    ran = shell("tick", "--app", "shop:backstay", "--chain-depth", 2, "--json")
    assert (ran.json["pending"], ran.json["follow_up"]) == (True, False)
    assert json.loads(ran.said[-1])["event"] == "tick ended"


def test_a_tick_follows_its_chain_up_to_the_limit(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_TICK_ITEMS_MAX", "2")
    shell.submit("echo", *range(7))
    rows = shell("tick", "--app", "shop:backstay", "--chain", "--json").rows
    assert [(row["depth"], row["claimed"], row["follow_up"]) for row in rows] == [
        (0, 2, True),
        (1, 2, True),
        (2, 2, False),
    ]
    text = shell("tick", "--app", "shop:backstay", "--chain").out
    assert text.startswith("depth 0: 1 item claimed, 0 polled in ")
    assert text.endswith("nothing more to do now, no follow-up is asked for\n")


@pytest.mark.slow
def test_a_signal_ends_a_tick_early_and_hands_back_what_runs(sqlite_shell: Shell) -> None:
    job_id = sqlite_shell.submit("slow", 1)
    with sqlite_shell.start("tick", "--app", "shop:backstay", BACKSTAY_SHUTDOWN_SECONDS="0.1") as tick:
        eventually(sqlite_shell.started)
        tick.send(signal.SIGTERM)
        assert tick.wait() == 130
        assert "interrupted" in tick.said
    assert sqlite_shell("item", "show", f"{job_id}-0", "--json").json["state"] == "queued"
