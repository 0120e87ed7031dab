"""Runs whose requests the provider refuses: some of them, or every one."""

import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.stories.runs import Rehearsal, practice, wait_until

REFUSED = 9


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def write(run: Rehearsal, models: list[str]) -> None:
    """A file whose requests name these models; the practice provider answers some with a status of that name."""
    run.requests(len(models))
    file = run.folder / "requests.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line, model in zip(lines, models, strict=True):
        line["body"]["model"] = model
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def calls_of_items(folder: Path) -> list[int]:
    """As the database counts them."""
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as database:
        return [int(row[0]) for row in database.execute("SELECT calls FROM items")]


@pytest.mark.slow
def test_bad_requests_among_good_ones_end_by_themselves_within_minutes(tmp_path: Path, file_url: str) -> None:
    """20 that always answer 500 and 5 that always answer 403 among 200, with default options."""
    models = ["practice-500" if n % 10 == 0 else "practice-403" if n % 40 == 7 else "practice" for n in range(200)]
    with practice("--latency", "0.2") as provider:
        run = Rehearsal(tmp_path, provider, file_url)
        write(run, models)
        assert run.finish(180) == 3
        run.check_complete(200)
        statuses = Counter(line["response"]["status_code"] for line in run.failures())
        assert (len(run.lines()), statuses) == (175, {500: 20, 403: 5})
        assert max(calls_of_items(tmp_path)) <= 8
        assert sum(calls_of_items(tmp_path)) == provider.counts()["requests"], "every call is counted"


@pytest.mark.slow
@pytest.mark.parametrize(("status", "advice"), [(404, "Check the base URL"), (401, "Check the API key")])
def test_a_run_that_is_refused_from_the_start_stops_and_fails_nothing(tmp_path, file_url, status, advice) -> None:
    with practice("--latency", "0.3") as provider:
        run = Rehearsal(tmp_path, provider, file_url)
        write(run, [f"practice-{status}"] * 300)
        assert run.finish(60) == REFUSED
        assert advice in run.log
        assert run.failures() == []
        assert provider.counts()["requests"] < 60
        assert run.finish(60) == REFUSED, "the same command tries again"


@pytest.mark.slow
def test_once_the_key_is_right_the_same_command_does_all(tmp_path: Path, file_url: str) -> None:
    with practice("--key", "sk-right") as provider:
        run = Rehearsal(tmp_path, provider, file_url)
        run.requests(40)
        assert run.start(OPENAI_API_KEY="sk-wrong").wait(60) == REFUSED
        assert run.start(OPENAI_API_KEY="sk-right").wait(60) == 0
        run.check_complete(40)


def test_with_wait_it_goes_on_and_what_is_refused_fails(tmp_path: Path, file_url: str) -> None:
    with practice() as provider:
        run = Rehearsal(tmp_path, provider, file_url, "--wait")
        write(run, ["practice-404"] * 30)
        assert run.finish(60) == 3
        assert len(run.failures()) == 30


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(404, REFUSED), (400, 3)])
def test_a_file_of_a_few_requests_stops_too_unless_the_words_are_about_them(tmp_path, file_url, status, code) -> None:
    with practice("--latency", "0.3") as provider:
        run = Rehearsal(tmp_path, provider, file_url)
        write(run, [f"practice-{status}"] * 3)
        assert run.finish(60) == code
        assert len(run.failures()) == (0 if code == REFUSED else 3)


@pytest.mark.slow
def test_at_a_slow_pace_a_request_that_is_refused_does_not_stop_the_others(tmp_path: Path, file_url: str) -> None:
    """Its turn comes again before theirs."""
    with practice() as provider:
        run = Rehearsal(tmp_path, provider, file_url, "--rpm", "20")
        write(run, ["practice-404", *["practice"] * 5])
        assert run.finish(120) == 3
        assert (len(run.lines()), len(run.failures())) == (5, 1)


@pytest.mark.slow
def test_requests_refused_at_the_head_of_a_file_do_not_stop_what_succeeds(tmp_path: Path, file_url: str) -> None:
    """Refusals are quicker than answers: what is under way is waited for."""
    with practice("--latency", "1") as provider:
        run = Rehearsal(tmp_path, provider, file_url)
        write(run, ["practice-404"] * 10 + ["practice"] * 50)
        assert run.finish(60) == 3
        assert (len(run.lines()), len(run.failures())) == (50, 10)


@pytest.mark.slow
def test_a_key_that_is_refused_does_not_stop_a_run_with_another(tmp_path: Path, file_url: str) -> None:
    with practice("--key", "sk-right") as provider:
        waiting = Rehearsal(tmp_path, provider, file_url, "--wait")
        waiting.requests(40)
        process = waiting.start(OPENAI_API_KEY="sk-wrong-of-one")
        try:
            wait_until(lambda: "the provider is held" in waiting.log, "the first is held")
            other = tmp_path / "other"
            other.mkdir()
            run = Rehearsal(other, provider, file_url, "--label", "other")
            run.requests(20, temperature=0)
            assert run.start(OPENAI_API_KEY="sk-right").wait(60) == 0
        finally:
            process.kill()
            process.wait()
