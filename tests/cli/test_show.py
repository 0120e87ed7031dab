"""`backstay show`: prompts and answers of a run, from its result lines, its failures or its table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.practice_thread import served
from tests.cli.shell import Shell


@pytest.fixture
def done(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A run of which one request failed, with files of lines and a table."""
    sqlite_shell.file(
        "id,model,text\na,m,first words\nb,practice-400,second words\nc,m,third\x1b[2J words\n", "rows.csv"
    )
    sqlite_shell.file('{"model": "{model}", "messages": [{"role": "user", "content": "Say {text}"}]}', "body.json")
    with served() as (_, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        for out in ("results.jsonl", "table.csv", "table.parquet"):
            assert sqlite_shell("run", "rows.csv", "--prompt", "@body.json", "--ordered", "--out", out).code == 3
        yield sqlite_shell


def line(custom_id: str, answer: str, job: int = 7) -> str:
    body = {"choices": [{"message": {"content": answer}}]}
    told = {
        "id": f"batch_req_{job}-0",
        "custom_id": custom_id,
        "response": {"status_code": 200, "body": body},
        "error": None,
    }
    return json.dumps(told, separators=(",", ":")) + "\n"


def test_result_lines_show_their_prompts_from_the_database(done: Shell):
    ran = done("show", "results.jsonl")
    assert ran.code == 0, ran.err
    assert ran.lines[:2] == ["a", "> Say first words"]
    assert "> Say third⟨U+001B⟩[2J words" in ran.out
    assert "\x1b" not in ran.out
    found = done("show", "results.jsonl", "--json").rows
    assert (found[0]["name"], found[0]["prompt"]) == ("a", "Say first words")
    assert all(row["answer"] for row in found)


def test_failures_are_found_beside_the_results_and_in_tables(done: Shell):
    for file in ("results.jsonl", "results.errors.jsonl", "table.csv", "table.parquet"):
        (row,) = done("show", file, "--failed", "--json").rows
        assert "400" in row["error"] or "GW_4XX" in row["error"], file
        assert row["answer"] is None


def test_tables_show_their_columns(done: Shell):
    for file in ("table.csv", "table.parquet"):
        rows = done("show", file, "--json").rows
        assert [row["text"] for row in rows][:2] == ["first words", "second words"]
        assert "> text: first words" in done("show", file).lines


def test_entries_are_found_listed_and_counted(done: Shell):
    assert [row["name"] for row in done("show", "results.jsonl", "--find", "FIRST words", "--json").rows] == ["a"]
    assert len(done("show", "results.jsonl", "-n", "1", "--list").lines) == 1
    listed = done("show", "table.csv", "--list").lines
    assert len(listed) == 3
    assert "\x1b" not in "".join(listed)
    ran = done("show", "results.jsonl", "--find", "nothing like it")
    assert (ran.code, ran.out, "No entries match." in ran.err) == (0, "", True)


def test_without_the_database_only_answers_are_shown(sqlite_shell: Shell):
    sqlite_shell.file(line("x", "an answer\nof two lines"), "results.jsonl")
    ran = sqlite_shell("show", "results.jsonl", "--db", f"sqlite:///{sqlite_shell.folder}/none.db")
    assert (ran.code, ran.lines) == (0, ["x", "  an answer", "  of two lines", ""]), ran.err
    assert not (sqlite_shell.folder / "none.db").exists()


def test_the_job_of_another_database_lends_no_prompt(done: Shell):
    done.file(line("x", "foreign", job=1) + line("y", "far", job=99_999_999_999), "foreign.jsonl")
    found = done("show", "foreign.jsonl", "--json").rows
    assert [(row["answer"], "prompt" in row) for row in found] == [("foreign", False), ("far", False)]


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.txt"])
def test_bare_answers_are_shown(sqlite_shell: Shell, name: str):
    sqlite_shell.file('"one"\n"two"\n', name)
    assert "one" in sqlite_shell("show", name).out


def test_a_broken_line_is_named(sqlite_shell: Shell):
    sqlite_shell.file(line("x", "fine") + '{"custom_id": \n', "results.jsonl")
    ran = sqlite_shell("show", "results.jsonl")
    assert (ran.code, "line 2 is not JSON" in ran.err) == (2, True)


def test_a_file_that_is_not_there_is_named(sqlite_shell: Shell, folder: Path):
    ran = sqlite_shell("show", "none.jsonl")
    assert (ran.code, "none.jsonl" in ran.err) == (2, True)
