"""`backstay run --out x.csv`: the rows of the input with their answers, whole or not at all, and in their order."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstay.practice import Practice
from backstay.rows.sources import open_rows
from tests.cli.practice_thread import served
from tests.cli.shell import Ran, Shell

TABLE = 'id,text,n\na,"good, day",1\nb,"two\nlines",2\nc,good night,3\n'
PROMPT = "Say {text}"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Practice]:
    with served() as (practice, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield practice


def run(shell: Shell, *args: str, file: str = "rows.csv", code: int = 0) -> Ran:
    ran = shell("run", file, "--prompt", PROMPT, "--model", "m", "--price", "1/1", "--max-output-tokens", "20", *args)
    assert ran.code == code, ran.err
    return ran


def read_csv(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def calls(practice: Practice) -> int:
    return practice.counts.calls


def test_the_table_has_the_rows_of_the_input_with_their_answers(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file(TABLE, "rows.csv")
    ran = run(sqlite_shell, "--out", "out.csv")
    found = read_csv(sqlite_shell.folder / "out.csv")
    assert list(found[0]) == ["id", "text", "n", "answer", "error", "cost"]
    assert [(row["id"], row["text"], row["n"]) for row in found] == [
        ("a", "good, day", "1"),
        ("b", "two\nlines", "2"),
        ("c", "good night", "3"),
    ]
    assert all(row["answer"] and not row["error"] and float(row["cost"]) > 0 for row in found)
    assert "good night" in found[2]["answer"]
    assert "out.csv" in ran.err
    assert "/dev/null" not in ran.err
    assert sorted(os.listdir(sqlite_shell.folder)) == ["out.csv", "rows.csv", "shop.py"]  # no files of lines


@pytest.mark.parametrize("out", ["out.parquet", "out.tsv"])
def test_other_tables_and_a_second_run_that_sends_nothing(sqlite_shell: Shell, provider: Practice, out: str):
    sqlite_shell.file(TABLE, "rows.csv")
    run(sqlite_shell, "--out", out)
    first, sent = list(open_rows(sqlite_shell.folder / out).rows()), calls(provider)
    assert [row["id"] for row in first] == ["a", "b", "c"]
    run(sqlite_shell, "--out", out)
    assert list(open_rows(sqlite_shell.folder / out).rows()) == first
    assert calls(provider) == sent == 3


def test_columns_are_chosen_ordered_and_renamed(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file(TABLE, "rows.csv")
    run(sqlite_shell, "--out", "out.jsonl", "--columns", "answer, key=id,model")
    lines = [json.loads(line) for line in (sqlite_shell.folder / "out.jsonl").read_text().splitlines()]
    assert [list(line) for line in lines] == [["answer", "key", "model"]] * 3
    assert [line["key"] for line in lines] == ["a", "b", "c"]


def test_the_text_alone_is_one_line_per_row(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file(TABLE, "rows.csv")
    run(sqlite_shell, "--out", "out.txt", "--text-only")
    run(sqlite_shell, "--out", "out.txt", "--text-only")  # its own file is replaced
    lines = (sqlite_shell.folder / "out.txt").read_text().splitlines()
    assert len(lines) == 3
    assert "good night" in lines[2]
    run(sqlite_shell, "--out", "out.jsonl", "--text-only")
    values = [json.loads(line) for line in (sqlite_shell.folder / "out.jsonl").read_text().splitlines()]
    assert "two\nlines" in values[1]
    run(sqlite_shell, "--out", "answers.csv", "--text-only")
    assert list(read_csv(sqlite_shell.folder / "answers.csv")[0]) == ["answer"]


def test_lines_stay_the_default_for_json_lines(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file(TABLE, "rows.csv")
    run(sqlite_shell, "--out", "out.jsonl")
    lines = [json.loads(line) for line in (sqlite_shell.folder / "out.jsonl").read_text().splitlines()]
    assert {line["custom_id"] for line in lines} == {"a", "b", "c"}
    assert all(line["response"]["status_code"] == 200 for line in lines)


def test_a_failed_row_has_its_error_and_a_bad_row_why_it_was_not_sent(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file("model,text\nm,one\npractice-400,two\nm,too,many\nm,three\nm,three\n", "rows.csv")
    body = sqlite_shell.file(
        '{"model": "{model}", "max_tokens": 9, "messages": [{"role": "user", "content": "{text}"}]}', "b.json"
    )
    ran = sqlite_shell(
        "run", "rows.csv", "--prompt", f"@{body}", "--out", "out.csv", "--skip-bad-lines", "--dedupe", "--price", "1/1"
    )
    assert ran.code == 3, ran.err
    assert "in the column `error`" in ran.err
    found = read_csv(sqlite_shell.folder / "out.csv")
    assert [row["text"] for row in found] == ["one", "two", "", "three", "three"]
    assert [bool(row["answer"]) for row in found] == [True, False, False, True, True]
    assert "400" in found[1]["error"] or "GW_4XX" in found[1]["error"]
    assert found[2]["error"] == "not sent: has 3 fields where the header has 2"
    assert found[3]["answer"] == found[4]["answer"]
    assert (float(found[3]["cost"]) > 0, float(found[4]["cost"])) == (True, 0.0)
    assert list(found[0]) == ["model", "text", "answer", "error", "cost"]  # the input says the model


def test_a_run_that_its_budget_stops_says_what_is_missing_and_goes_on(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file("text\n" + "".join(f"row {n}\n" for n in range(30)), "rows.csv")
    ran = run(sqlite_shell, "--out", "out.csv", "--budget", "0.0005", "--concurrency", "1", code=7)
    found = read_csv(sqlite_shell.folder / "out.csv")
    missing = [row for row in found if row["error"] == "not done yet"]
    assert len(found) == 30
    assert 0 < len(missing) < 30
    assert f"{len(missing)} rows without a result yet" in ran.err
    run(sqlite_shell, "--out", "out.csv", "--budget", "1")
    found = read_csv(sqlite_shell.folder / "out.csv")
    assert [row["text"] for row in found] == [f"row {n}" for n in range(30)]
    assert all(row["answer"] for row in found)
    assert calls(provider) == 30


@pytest.mark.parametrize(
    ("table", "args", "said"),
    [
        ("text,answer\na,b\n", (), "the input has a column 'answer'"),
        (TABLE, ("--columns", "id,nothing"), "--columns names 'nothing', which is not a column"),
        (TABLE, ("--columns", "id,id"), "--columns has 'id' twice"),
        (TABLE, ("--columns", "id", "--text-only"), "cannot be used together"),
    ],
)
def test_columns_that_cannot_be_are_refused_before_anything_is_sent(
    sqlite_shell: Shell, provider: Practice, table: str, args: tuple[str, ...], said: str
):
    sqlite_shell.file(table, "rows.csv")
    assert said in run(sqlite_shell, "--out", "out.csv", *args, code=2).err
    assert calls(provider) == 0
    assert not (sqlite_shell.folder / "out.csv").exists()


def test_the_advice_for_a_column_that_is_there_already_works(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file("text,answer\na,gold\n", "rows.csv")
    ran = run(sqlite_shell, "--out", "out.csv", code=2)
    assert "--columns text,old_answer=input.answer,answer,error,cost" in ran.err
    run(sqlite_shell, "--out", "out.csv", "--columns", "text,old_answer=input.answer,answer,error,cost")
    (row,) = read_csv(sqlite_shell.folder / "out.csv")
    assert (list(row), row["old_answer"]) == (["text", "old_answer", "answer", "error", "cost"], "gold")
    assert row["answer"] != "gold"


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("rows.csv", "rows.csv is the input itself"),
        ("other.csv", "other.csv already exists, and is not a table of this run"),
        ("folder.csv", "folder.csv is a folder"),
        ("nowhere/out.csv", "nowhere/out.csv cannot be written: No such file or directory"),
        ("out.txt", "out.txt has a place for one column"),
        ("loop.csv", "loop.csv cannot be written"),
    ],
)
def test_a_place_for_no_table_is_refused_before_anything_is_sent(
    sqlite_shell: Shell, provider: Practice, out: str, said: str
):
    sqlite_shell.file(TABLE, "rows.csv")
    sqlite_shell.file("something,else\n1,2\n", "other.csv")
    (sqlite_shell.folder / "folder.csv").mkdir()
    (sqlite_shell.folder / "loop.csv").symlink_to(sqlite_shell.folder / "loop.csv")
    assert said in run(sqlite_shell, "--out", out, code=2).err
    assert calls(provider) == 0
    assert (sqlite_shell.folder / "rows.csv").read_text() == TABLE
    assert (sqlite_shell.folder / "other.csv").read_text() == "something,else\n1,2\n"


def test_rows_of_json_and_of_text_make_tables_too(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file('[{"text": "one", "tags": ["x"]}, {"text": "two"}]', "rows.json")
    run(sqlite_shell, "--out", "a.parquet", file="rows.json")
    found: list[dict[str, Any]] = list(open_rows(sqlite_shell.folder / "a.parquet").rows())
    assert [(row["text"], row["tags"], row["error"]) for row in found] == [("one", ["x"], None), ("two", None, None)]
    sqlite_shell.file("one\n\ntwo\n", "lines.txt")
    ran = sqlite_shell("run", "lines.txt", "--model", "m", "--out", "b.csv")
    assert ran.code == 0, ran.err
    assert [row["row"] for row in read_csv(sqlite_shell.folder / "b.csv")] == ["one", "two"]


def test_the_text_goes_to_stdout_as_well(sqlite_shell: Shell, provider: Practice):
    sqlite_shell.file(TABLE, "rows.csv")
    ran = sqlite_shell.process("run", "rows.csv", "--prompt", PROMPT, "--model", "m", "--text-only", "--out", "-")
    assert (ran.code, len(ran.lines)) == (0, 3), ran.err
    assert "good night" in ran.lines[2]
