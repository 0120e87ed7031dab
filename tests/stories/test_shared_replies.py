"""Runs with --dedupe: one reply for many names, each of which has its line, once, in its place."""

import json
import signal
from pathlib import Path

import pytest

from tests.stories.runs import Rehearsal, practice, wait_until
from tests.stories.test_runs import summary_of

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def ask(run: Rehearsal, *numbers: int) -> list[str]:
    """Writes a request for every number, the same for the same one; returns their names."""
    names = [f"n{place}" for place in range(len(numbers))]
    with (run.folder / "requests.jsonl").open("w") as file:
        for name, number in zip(names, numbers, strict=True):
            body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": f"question {number}"}]}
            request = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(request) + "\n")
    return names


def test_shared_replies_stand_in_the_order_of_requests_and_are_told(tmp_path: Path, url: str) -> None:
    with practice() as provider:
        run = Rehearsal(tmp_path, provider, url, "--json", "--dedupe", "--ordered", "--skip-bad-lines")
        names = ask(run, 1, 2, 1, 1, 2, 3, 1)
        with (tmp_path / "requests.jsonl").open("a") as file:
            file.write("this is no request\n")
        for _ in range(2):
            assert run.finish() == 0, run.log
            assert [line["custom_id"] for line in run.lines()] == names
            told = summary_of(run)
            assert (told["total"], told["copies"], told["skipped_lines"]) == (3, 4, 1)
        assert provider.bill()["charged"] == 3


def test_a_run_interrupted_before_it_knows_all_names_leaves_none_out(tmp_path: Path, url: str) -> None:
    # More than are stored at once, and then many copies: the first are done while the others still come in.
    count, copies = 2_500, 40_000
    with practice() as provider:
        run = Rehearsal(tmp_path, provider, url, "--json", "--dedupe")
        names = ask(run, *range(count), *(number % count for number in range(copies)))
        process = run.start()
        wait_until(lambda: provider.bill()["charged"] > 0, "the first reply was paid")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130), run.log
        assert run.finish() == 0, run.log
        assert sorted(line["custom_id"] for line in run.lines()) == sorted(names)
        assert provider.bill()["charged"] == count
