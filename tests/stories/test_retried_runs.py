"""Runs in which something fails for good and is retried: by the same command, by hand, at any time."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.stories.runs import Provider, Rehearsal, practice, wait_until
from tests.stories.test_queued_runs import command, told, workers

pytestmark = pytest.mark.slow

COUNT = 30
ONCE, EVER = "practice-400x1", "practice-400"
REFUSED = {10: ONCE, 11: ONCE, 12: EVER}  # not among the first, which only show whether all are refused


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def rehearse(folder: Path, provider: Provider, url: str, *options: str) -> Rehearsal:
    """Some requests are refused: the first time, or every time."""
    run = Rehearsal(folder, provider, url, "--json", "--concurrency", "5", *options)
    file = run.requests(COUNT)
    asked = [json.loads(line) for line in file.read_text().splitlines()]
    for at, model in REFUSED.items():
        asked[at]["body"]["model"] = model
    file.write_text("".join(json.dumps(request) + "\n" for request in asked))
    return run


def failed(run: Rehearsal) -> set[str]:
    return {line["custom_id"] for line in run.failures()}


def answer_to(run: Rehearsal, custom_id: str) -> str:
    """Which of the provider's answers the errors show."""
    (line,) = [line for line in run.failures() if line["custom_id"] == custom_id]
    return str(line["response"]["request_id"])


def check_retried(run: Rehearsal, first: str) -> None:
    """What succeeded at last is no failure, and what failed anew does not show its first answer."""
    run.check_complete(COUNT)
    assert failed(run) == {"r12"}
    assert answer_to(run, "r12") != first


@pytest.mark.parametrize("options", [(), ("--ordered",), ("--dedupe",)], ids=["plain", "ordered", "dedupe"])
def test_the_same_command_with_retry_failed_tries_the_failures_again(
    tmp_path: Path, url: str, options: tuple[str, ...]
) -> None:
    with practice() as provider:
        run = rehearse(tmp_path, provider, url, *options)
        assert run.finish() == 3, run.log
        assert failed(run) == {"r10", "r11", "r12"}
        first = answer_to(run, "r12")
        plain, run.options = run.options, (*run.options, "--retry-failed")
        assert run.finish() == 3, run.log
        check_retried(run, first)
        run.options = plain
        assert run.finish() == 3, run.log
        check_retried(run, first)
        assert provider.bill()["charged"] == COUNT - 1


@pytest.mark.parametrize("beforehand", [False, True], ids=["the_run_does_them", "a_worker_has_done_them"])
def test_failures_retried_by_hand_after_the_run_are_taken_up_by_the_same_command(
    tmp_path: Path, url: str, beforehand: bool
) -> None:
    with practice() as provider:
        run = rehearse(tmp_path, provider, url)
        assert run.finish() == 3, run.log
        first = answer_to(run, "r12")
        subprocess.run(**command("job", "retry", "1", "--db", url), check=True, capture_output=True)
        if beforehand:
            with workers(1, url):
                wait_until(lambda: told("job", "show", "1", "--db", url)["finished_at"] is not None, "it is done")
        assert run.finish() == 3, run.log
        check_retried(run, first)


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside_workers"])
def test_failures_retried_by_hand_while_the_run_goes_on_end_in_the_right_file(
    tmp_path: Path, url: str, others: int
) -> None:
    with practice("--quota", "15") as provider:
        run = rehearse(tmp_path, provider, url)
        process = run.start()
        wait_until(lambda: failed(run) == {"r10", "r11", "r12"}, "the failures are written")
        first = answer_to(run, "r12")
        wait_until(lambda: held(url), "the rest is held, so that the run goes on")
        with workers(others, url):
            subprocess.run(**command("job", "retry", "1", "--db", url), check=True, capture_output=True)
            provider.change(quota=None)
            for name in held(url):  # unless it was tried again by itself
                subprocess.run(**command("provider", "release", name, "--db", url), check=True, capture_output=True)
            assert process.wait(120) == 3, run.log
        check_retried(run, first)


@pytest.mark.parametrize("options", [(), ("--ordered",)], ids=["plain", "ordered"])
def test_failures_that_were_archived_keep_their_lines_and_the_same_command_goes_by_them(
    tmp_path: Path, url: str, options: tuple[str, ...]
) -> None:
    with practice() as provider:
        run = rehearse(tmp_path, provider, url, *options)
        assert run.finish() == 3, run.log
        subprocess.run(**command("deadletters", "archive", "--job", "1", "--db", url), check=True, capture_output=True)
        run.options = (*run.options, "--retry-failed")
        assert run.finish() == 3, run.log
        run.check_complete(COUNT)
        assert failed(run) == {"r10", "r11", "r12"}
        subprocess.run(**command("deadletters", "restore", "1", "--db", url), check=True, capture_output=True)
        assert run.finish() == 3, run.log
        run.check_complete(COUNT)
        assert failed(run) == {"r12"}


def held(url: str) -> list[str]:
    ran = subprocess.run(
        **command("provider", "list", "--db", url, "--json"), capture_output=True, text=True, check=True
    )
    breakers: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    return [breaker["provider"] for breaker in breakers if breaker["state"] == "held"]
