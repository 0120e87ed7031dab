"""`backstay run --try N`: the first answers and their cost are shown, and the rest is sent only if the user agrees."""

import csv
import io
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backstay.practice import Practice
from tests.cli.practice_thread import served
from tests.cli.shell import Ran, Shell, eventually

ROWS = 12


class Terminal(io.StringIO):
    """A person at a terminal, who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Practice]:
    with served() as (practice, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield practice


@pytest.fixture
def rows(sqlite_shell: Shell) -> Shell:
    sqlite_shell.file("id,text\n" + "".join(f"r{n},row {n}\n" for n in range(ROWS)), "rows.csv")
    return sqlite_shell


def run(shell: Shell, *args: str) -> Ran:
    return shell(
        "run", "rows.csv", "--prompt", "Say {text}", "--model", "m", "--price", "1/1", "--out", "out.jsonl", *args
    )


def ids(shell: Shell) -> list[str]:
    return sorted(json.loads(line)["custom_id"] for line in (shell.folder / "out.jsonl").read_text().splitlines())


def test_without_a_terminal_it_stops_and_the_same_command_goes_on(rows: Shell, provider: Practice):
    ran = run(rows, "--try", "3")
    assert ran.code == 0, ran.err
    assert (provider.counts.calls, ids(rows)) == (3, ["r0", "r1", "r2"])
    assert "> Say row 2" in ran.err
    assert "3 of 12 requests succeeded, 9 left" in ran.err
    assert "To send the other 9, run the same command without --try." in ran.err
    ran = run(rows)
    assert ran.code == 0, ran.err
    assert (provider.counts.calls, provider.bill.dump(summary=True)["paid_again"], len(ids(rows))) == (ROWS, 0, ROWS)


def test_the_same_try_again_sends_nothing(rows: Shell, provider: Practice):
    run(rows, "--try", "3")
    ran = run(rows, "--try", "3")
    assert (ran.code, provider.counts.calls) == (0, 3), ran.err
    assert "> Say row 2" in ran.err


@pytest.mark.parametrize(("typed", "calls"), [("y\n", ROWS), ("n\n", 2), ("\n", 2)])
def test_a_person_is_asked(rows: Shell, provider: Practice, monkeypatch: pytest.MonkeyPatch, typed: str, calls: int):
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    ran = run(rows, "--try", "2")
    assert (ran.code, provider.counts.calls) == (0, calls), ran.err
    assert "Send the other 10 for about $0.00" in ran.err
    assert len(ids(rows)) == calls


def test_yes_sends_the_rest_and_writes_the_whole_table(rows: Shell, provider: Practice):
    ran = run(rows, "--try", "2", "--yes", "--out", "out.csv")
    assert (ran.code, provider.counts.calls) == (0, ROWS), ran.err
    with (rows.folder / "out.csv").open(newline="") as file:
        assert all(row["answer"] for row in csv.DictReader(file))


def test_a_new_run_is_tried_once(rows: Shell, provider: Practice):
    assert run(rows).code == 0
    ran = run(rows, "--new", "--try", "2", "--yes", "--out", "again.jsonl")
    assert (ran.code, provider.counts.calls) == (0, 2 * ROWS), ran.err


def test_a_file_that_is_not_longer_is_simply_run(rows: Shell, provider: Practice):
    ran = run(rows, "--try", "50")
    assert (ran.code, provider.counts.calls, "without --try" in ran.err) == (0, ROWS, False), ran.err


def test_json_has_the_answers_and_asks_nobody(rows: Shell, provider: Practice, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    ran = run(rows, "--try", "2", "--json")
    (tried,) = [row for row in ran.rows if row["event"] == "tried"]
    assert [each["custom_id"] for each in tried["requests"]] == ["r0", "r1"]
    assert tried["rest_micros"] == sum(each["cost_micros"] for each in tried["requests"]) / 2 * 10
    assert (ran.code, provider.counts.calls, tried["left"]) == (0, 2, 10)


def test_known_answers_do_not_show_what_the_others_cost(rows: Shell, provider: Practice):
    rows.file("id,text\nr0,row 0\nr1,row 1\n", "few.csv")
    earlier = rows("run", "few.csv", "--prompt", "Say {text}", "--model", "m", "--price", "1/1")
    assert earlier.code == 0, earlier.err
    ran = run(rows, "--try", "2")
    assert (ran.code, provider.counts.calls) == (0, 2), ran.err
    assert "all together" not in ran.err
    assert "These cost nothing, so they do not show what the others cost" in ran.err
    ran = run(rows, "--new", "--reuse", "always", "--out", "three.jsonl", "--try", "3", "--json")
    (tried,) = [row for row in ran.rows if row["event"] == "tried"]
    assert tried["rest_micros"] == max(each["cost_micros"] for each in tried["requests"]) * 9


def test_what_a_terminal_would_obey_is_made_visible(rows: Shell, provider: Practice):
    rows.file("text\n\x1b[2Jgone\nb\n", "rows.csv")
    ran = run(rows, "--try", "1")
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.err
    assert "gone" in ran.err


@pytest.mark.slow
def test_other_workers_would_send_the_rest_so_it_is_refused(rows: Shell, provider: Practice):
    with rows.start("worker", "--app", "shop:backstay"):
        eventually(lambda: _workers(rows))
        ran = run(rows, "--try", "2")
    assert (ran.code, provider.counts.calls) == (2, 0), ran.err
    assert "1 other worker of this database would send it" in ran.err


def _workers(shell: Shell) -> int:
    try:
        with closing(sqlite3.connect(shell.url.removeprefix("sqlite:///"))) as database:
            return int(database.execute("SELECT count(*) FROM workers").fetchone()[0])
    except sqlite3.OperationalError:  # the worker has not made it yet
        return 0
