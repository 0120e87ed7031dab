"""Files that are queued only: workers and ticks need no application to do them, and a run writes the results."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.house.sources import ROOT
from tests.stories.runs import COMMAND, SHORT_WAITS, Provider, Rehearsal, paid_again, practice, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def command(*words: str) -> dict[str, Any]:
    """How to start a command; its waits are short."""
    return {"args": [*COMMAND, *words], "cwd": ROOT, "env": {**os.environ, **SHORT_WAITS}}


def told(*words: str) -> Any:
    ran = subprocess.run(**command(*words, "--json"), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@contextlib.contextmanager
def workers(count: int, url: str) -> Iterator[None]:
    with contextlib.ExitStack() as running:
        for _ in range(count):
            words = command("worker", "--db", url, "--log-level", "error")
            running.callback(running.enter_context(subprocess.Popen(**words)).terminate)
        yield


def queued(folder: Path, provider: Provider, database_url: str, *options: str, **requests: Any) -> Rehearsal:
    run = Rehearsal(folder, provider, database_url, "--json", *options)
    file = run.requests(**requests)
    assert told("submit", str(file), *[word for word in run.options if word != "--json"])["job"] == 1
    return run


def said(*words: str) -> str:
    ran = subprocess.run(**command(*words), capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


def has_ended(url: str) -> bool:
    return told("job", "show", "1", "--db", url)["finished_at"] is not None


def test_ticks_do_what_was_queued_and_the_same_run_later_writes_the_results(tmp_path: Path, url: str) -> None:
    with practice("--seed", "1") as provider:
        run = queued(tmp_path, provider, url, count=60)
        wait_until(lambda: not told("tick", "--db", url)["pending"], "a tick finds nothing left")
        assert provider.bill()["charged"] == 60
        assert run.finish() == 0, run.log
        run.check_complete(60)
        assert provider.bill()["charged"] == 60, "the run itself had nothing to send"


def test_a_queued_task_may_take_longer_than_the_items_of_an_application(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTAY_ITEM_TIMEOUT_SECONDS", "1")
    with practice("--seed", "2", "--background-seconds", "4") as provider:
        run = queued(tmp_path, provider, url, "--lane", "background", count=10, url="/v1/responses")
        with workers(1, url):
            wait_until(lambda: has_ended(url), "the worker has done it")
        assert run.finish() == 0, run.log
        run.check_complete(10)


def test_workers_share_the_pace_of_their_provider(tmp_path: Path, url: str) -> None:
    with practice("--seed", "3") as provider:
        provider.change(rpm=60, window_seconds=5)
        run = queued(tmp_path, provider, url, "--rpm", "600", count=70)
        with workers(2, url):
            wait_until(lambda: has_ended(url), "the workers have done it")
        assert (provider.counts()["limited"], provider.counts()["requests"]) == (0, 70)
        assert run.finish() == 0, run.log
        run.check_complete(70)


def test_workers_beside_a_run_keep_to_its_budget_together(tmp_path: Path, url: str) -> None:
    budget_micros = 2_000
    with practice("--seed", "4", "--latency", "0.02", "--cut", "0.02") as provider:
        run = queued(tmp_path, provider, url, "--budget", f"{budget_micros / 1e6:f}", count=300)
        with workers(2, url):
            assert run.finish() == 7, run.log
        bill = provider.bill()
        assert 0 < bill["cost_micros"] <= budget_micros
        assert 0 < len(run.lines()) < 300
        assert paid_again(bill) <= told("job", "show", "1", "--db", url)["repeats"]


def test_a_worker_puts_more_requests_into_a_batch_than_it_would_call_at_once(tmp_path: Path, url: str) -> None:
    with practice("--seed", "5", "--batch-seconds", "1") as provider:
        run = queued(tmp_path, provider, url, "--lane", "batch", count=300)
        with workers(1, url):
            wait_until(lambda: has_ended(url), "the worker has done it")
        batches = provider.read("/v1/batches")["data"]
        assert [batch["request_counts"]["total"] for batch in batches] == [300]
        assert run.finish() == 0, run.log
        run.check_complete(300)


@pytest.mark.slow  # it waits out time-outs
def test_a_reached_budget_is_told_everywhere_and_a_higher_one_of_submit_counts(tmp_path: Path, url: str) -> None:
    with practice("--seed", "6") as provider:
        run = queued(tmp_path, provider, url, count=40)
        again = ("submit", str(tmp_path / "requests.jsonl"), *[word for word in run.options if word != "--json"])
        assert told(*again, "--budget", "0.0002")["new"] is False
        assert told("job", "show", "1", "--db", url)["budget_micros"] == 200
        wait_until(lambda: not told("tick", "--db", url)["pending"], "the money is used up")
        assert "nothing more to do now, no follow-up is asked for" in said("tick", "--db", url)
        assert 0 < provider.bill()["cost_micros"] <= 200
        shown = said("job", "show", "1", "--db", url)
        assert "running, stopped at its budget" in shown
        assert "of a budget of $0.0002" in shown
        assert "running, stopped at its budget" in said("jobs", "--db", url)
        watch = command("job", "watch", "1", "--db", url)
        watched = subprocess.run(**watch, capture_output=True, text=True, check=False)
        assert (watched.returncode, "its budget is reached; to resume: " in watched.stderr) == (7, True)
        assert "budgets: job 1 has reached its budget; to resume: " in said("doctor", "--db", url)
        assert "could exceed its budget" in said("item", "show", "1-39", "--db", url)
        assert "job 1: 40 items" in (words := said(*again, "--budget", "5"))
        assert "which existed already" in words
        assert "to write the results, run `backstay run`" in words
        wait_until(lambda: not told("tick", "--db", url)["pending"], "a tick finds nothing left")
        assert run.finish() == 0, run.log
        run.check_complete(40)
        assert provider.bill()["charged"] == 40
