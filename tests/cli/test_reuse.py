"""`--reuse` of run, submit and plan, and `backstay cache`: earlier answers are used, counted, shown and cleared."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from backstay.practice import Practice
from tests.cli.practice_thread import file_of, results, served
from tests.cli.shell import Ran, Shell

MODEL = "gpt-4o-mini"


class Place(NamedTuple):
    """A shell, and a provider for it."""

    shell: Shell
    practice: Practice
    base_url: str

    def send(self, requests: int, *options: str) -> tuple[Ran, int]:
        """Runs so many requests with a fresh result file; and how many calls were paid."""
        file = file_of(self.shell, *[MODEL] * requests)
        (self.shell.folder / "requests.results.jsonl").unlink(missing_ok=True)
        paid = self.practice.bill.charged
        ran = self.shell("run", file, "--base-url", self.base_url, *options)
        return ran, self.practice.bill.charged - paid


@pytest.fixture
def place(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with served() as (practice, base_url):
        yield Place(shell, practice, base_url)


def test_a_run_says_what_is_known_and_the_item_where_its_answer_came_from(place: Place) -> None:
    assert place.send(3)[1] == 3
    ran, paid = place.send(4)
    assert (ran.code, paid, len(results(place.shell))) == (0, 1, 4)
    assert "3 of 4 are known; 1 will be sent" in ran.err
    assert "3 answers of earlier runs, not sent and not paid" in ran.err
    shown = place.shell("item", "show", "2-0")
    assert "reused from  item 1-0, at no cost" in shown.out
    assert "reused an earlier answer: succeeded: the answer of item 1-0, at no cost" in shown.out
    assert place.shell("item", "show", "2-0", "--json").json["reused_from"] == "1-0"
    assert place.shell("job", "show", "2", "--json").json["reused"] == 3


def test_never_and_new_send_everything_unless_they_are_told_otherwise(place: Place) -> None:
    place.send(2)
    assert place.send(3, "--reuse", "never")[1] == 3
    assert place.send(3, "--new")[1] == 3
    assert place.send(3, "--new", "--reuse", "1h")[1] == 0
    ran, _ = place.send(3, "--reuse", "sometimes")
    assert (ran.code, "not a duration" in ran.err) == (2, True)


def test_a_submit_says_it_too(place: Place) -> None:
    place.send(2)
    file = file_of(place.shell, *[MODEL] * 3)
    ran = place.shell("submit", file, "--base-url", place.base_url)
    assert "2 of 3 are known; 1 will be sent" in ran.err
    said = place.shell("submit", file, "--base-url", place.base_url, "--json").json
    assert (said["new"], said["reused"]) == (False, 2)


def test_a_plan_counts_what_is_known_and_estimates_the_rest(place: Place) -> None:
    place.send(3)
    file = file_of(place.shell, *[MODEL] * 4)
    plan = ("plan", file, "--base-url", place.base_url)
    assert "3 of 4 are known; 1 will be sent" in place.shell(*plan).out
    said = place.shell(*plan, "--json").json
    assert (said["known"], said["requests"], said["copies"]) == (3, 1, 0)
    assert place.shell(*plan, "--json", "--reuse", "never").json["requests"] == 4


def test_a_plan_makes_no_database_and_does_without_one_that_is_down(sqlite_shell: Shell) -> None:
    file = file_of(sqlite_shell, MODEL)
    assert sqlite_shell("plan", file, "--db", "sqlite:///none.db").code == 0
    assert not (sqlite_shell.folder / "none.db").exists()
    ran = sqlite_shell("plan", file, "--db", "postgresql://nobody@127.0.0.1:9/none")
    assert (ran.code, "earlier answers are not counted" in ran.err) == (0, True)


def test_the_cache_is_shown_and_cleared_and_results_stay(place: Place) -> None:
    shell = place.shell
    shell("migrate")
    assert "no answers are kept" in shell("cache", "show").err
    place.send(2)
    [model] = shell("cache", "show", "--json").json["models"]
    assert (model["model"], model["answers"]) == (MODEL, 2)
    assert model["cost_micros"] > 0
    assert shell("cache", "show").out.splitlines()[1].split()[:2] == [MODEL, "2"]
    assert shell("cache", "clear").code == 2
    assert shell("cache", "clear", "--all", "--model", "x").code == 2
    assert shell("cache", "clear", "--older-than", "1h", "--json").json == {"cleared": 0}
    assert shell("cache", "clear", "--model", MODEL, "--json").json == {"cleared": 2}
    assert len(shell("job", "results", "1").out.splitlines()) == 2
    assert place.send(3)[1] == 3
    assert shell("cache", "clear", "--all", "--json").json == {"cleared": 3}
