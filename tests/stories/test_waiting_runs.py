"""Runs in which nothing moves: each says why, and when it is tried again."""

import contextlib
import json
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stories.runs import COMMAND, Provider, Rehearsal, paid_again, practice, wait_until

SLOW_BREAKER = {"BACKSTAY_CIRCUIT_COOLDOWN_MS": "30000"}


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def rehearse(folder: Path, provider: Provider, url: str, *options: str) -> Rehearsal:
    return Rehearsal(folder, provider, url, "--concurrency", "20", "--json", *options)


@contextlib.contextmanager
def running(run: Rehearsal, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = run.start(**environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def held(run: Rehearsal) -> dict[str, Any]:
    """The event that says why nothing moves, once it is there."""

    def found() -> list[dict[str, Any]]:
        lines = [line for line in run.log.splitlines() if line.startswith('{"event": "held"')]
        return [json.loads(line) for line in lines]

    wait_until(found, "the run is held")
    return found()[-1]


def items_in(folder: Path, state: str) -> int:
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchone():
            return 0  # the run has only just begun
        rows = database.execute("SELECT count(*) FROM items WHERE state = ?", (state,))
        return int(rows.fetchone()[0])


@pytest.mark.slow
def test_a_provider_that_cannot_be_reached_is_told_with_its_error_and_the_next_try(
    tmp_path: Path, file_url: str
) -> None:
    run = rehearse(tmp_path, Provider("http://127.0.0.1:9/v1"), file_url)
    run.requests(40)
    with running(run, **SLOW_BREAKER):
        told = held(run)
    assert told["reason"].startswith("the provider is failing: no connection to 127.0.0.1:9: ")
    assert 0 < told["seconds"] <= 30


@pytest.mark.slow
def test_a_pause_that_the_provider_asks_for_is_told_from_an_outage(tmp_path: Path, file_url: str) -> None:
    with practice("--throttle", "1", "--retry-after", "40") as provider:
        run = rehearse(tmp_path, provider, file_url)
        run.requests(40)
        with running(run):
            told = held(run)
    assert told["reason"] == "the provider asked for a pause"
    assert 20 < told["seconds"] <= 40


@pytest.mark.slow
def test_a_refused_key_says_which_variable_to_set_and_how_to_go_on(tmp_path: Path, file_url: str) -> None:
    with practice("--key", "sk-right") as provider:
        run = rehearse(tmp_path, provider, file_url, "--wait")
        run.requests(10)
        with running(run, OPENAI_API_KEY="sk-wrong-and-secret"):
            told = held(run)
        assert "(the API key is in OPENAI_API_KEY) and run the same command again" in told["reason"]
        assert 0 < told["seconds"] <= 30
        assert "sk-wrong" not in run.log
        with running(run, OPENAI_API_KEY="sk-right") as process:
            assert process.wait(60) == 0, run.log


@pytest.mark.slow
def test_a_paused_run_says_how_to_resume_it_on_its_database(tmp_path: Path, file_url: str) -> None:
    with practice("--latency", "0.5") as provider:
        run = rehearse(tmp_path, provider, file_url, "--concurrency", "1")
        run.requests(40)
        with running(run):
            wait_until(run.lines, "results come in")
            subprocess.run([*COMMAND, "job", "pause", "1", "--db", file_url], check=True, capture_output=True)
            told = held(run)
    assert told["reason"] == f"the job is paused; to resume: backstay job resume 1 --db {file_url}"


@pytest.mark.slow
def test_tasks_of_another_key_are_told_of(tmp_path: Path, file_url: str) -> None:
    with practice("--background-seconds", "600") as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", "background")
        run.requests(10, url="/v1/responses")
        with running(run, OPENAI_API_KEY="sk-one") as process:
            wait_until(lambda: items_in(tmp_path, "processing") == 10, "all are at the provider")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        with running(run, OPENAI_API_KEY="sk-two"):
            told = held(run)
    assert "10 requests at the provider need the earlier API key" in told["reason"]


@pytest.mark.slow
def test_a_look_up_after_a_kill_is_told_of(tmp_path: Path, file_url: str) -> None:
    with practice() as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", "batch", "--timeout", "60")
        run.requests(10)
        with running(run) as process:
            wait_until(lambda: items_in(tmp_path, "submitting") == 10, "all are taken up")
            process.kill()
        with running(run):
            told = held(run)
    assert told["reason"] == "10 requests interrupted earlier: being looked up at the provider"
    assert told["seconds"] > 10


@pytest.mark.slow  # the same is shown inside one process in tests/llm/test_pending_files.py
def test_a_run_that_is_killed_while_its_file_is_processed_makes_its_batch_of_that_file(
    tmp_path: Path, file_url: str
) -> None:
    with practice("--file-seconds", "4", "--batch-seconds", "1") as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", "batch", "--timeout", "10")
        run.requests(100)
        with running(run):
            wait_until(lambda: provider.read("/v1/files")["data"], "the file was uploaded")
        [file] = provider.read("/v1/files")["data"]
        assert (file["status"], provider.read("/v1/batches")["data"]) == ("pending", [])
        assert run.finish() == 0, run.log
        run.check_complete(100)
        assert [batch["input_file_id"] for batch in provider.read("/v1/batches")["data"]] == [file["id"]]
        assert paid_again(provider.bill()) == 0
