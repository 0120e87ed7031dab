"""Files without lines of JSON are files of requests, too: text, JSON arrays, Parquet, UTF-16."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from backstay.core.errors import UsageError
from backstay.llm.formats import Format, InputOptions, ParsedRequest
from backstay.llm.intake import open_source
from tests.llm.request_files import batch_line, look, sent

READING = InputOptions(model="m")
TEMPLATE = InputOptions(model="m", template="Say {a}")


def written(path: Path, data: str | bytes) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def parquet(path: Path, **columns: list[Any]) -> str:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def prompts(file: str, reading: InputOptions = READING) -> list[tuple[str, str]]:
    """The ids and prompts that a run would send."""
    return [(one.custom_id, json.loads(one.body)["messages"][0]["content"]) for one in sent(file, reading)]


def test_every_line_of_a_text_file_is_a_prompt(tmp_path: Path):
    file = written(tmp_path / "a.txt", "[one], {two}\n\nthree\n")
    assert prompts(file) == [("request-1", "[one], {two}"), ("request-3", "three")]
    template = InputOptions(model="m", template="Say: {row}")
    assert prompts(file, template) == [("request-1", "Say: [one], {two}"), ("request-3", "Say: three")]
    assert prompts(written(tmp_path / "a.md", "one"), InputOptions(Format.TEXT, "m")) == [("request-1", "one")]


def test_a_text_file_of_json_objects_is_read_as_these(tmp_path: Path):
    assert prompts(written(tmp_path / "a.txt", '{"prompt": "one"}\n')) == [("request-1", "one")]


@pytest.mark.parametrize(
    ("data", "reading", "found"),
    [
        ('["one",\n"two"]', READING, [("request-1", "one"), ("request-2", "two")]),
        ('[{"prompt": "one", "id": "x"}]', READING, [("x", "one")]),
        ('[{"a": "one"},\n\n{"a": 2}]', TEMPLATE, [("request-1", "Say one"), ("request-2", "Say 2")]),
        ('[{"model": "m", "messages": [{"role": "user",\r\n"content": "one"}]}]', READING, [("request-1", "one")]),
    ],
)
def test_the_elements_of_an_array_are_like_lines(tmp_path: Path, data: str, reading: InputOptions, found: list):
    assert prompts(written(tmp_path / "a.json", data), reading) == found


def test_a_batch_line_in_an_array_keeps_its_body(tmp_path: Path):
    body = '{"model":"m",  "messages":[], "seed": 1e2}'
    (one,) = sent(written(tmp_path / "a.json", f"[{batch_line('a', body)}]"))
    assert one.body == body


def test_bad_elements_are_named_by_their_numbers(tmp_path: Path):
    file = written(
        tmp_path / "a.json", '[{"prompt": "one"}, 7, {"id": 1}, {"prompt": "two"}, {"prompt": "x", "id": "request-1"}]'
    )
    surveyed = look(file, READING)
    assert surveyed.requests == 2
    assert [surveyed.describe(bad) for bad in surveyed.bad] == [
        "element 2 is not a JSON object",
        "element 3 has no prompt",
        "element 5 has the custom_id of element 1 again",
    ]


def test_rows_of_parquet_fill_a_template(tmp_path: Path):
    file = parquet(tmp_path / "a.parquet", id=["x", "y"], a=["one", "two"], n=[1, 2], raw=[b"\xff", b"\xfe"])
    assert prompts(file, InputOptions(model="m", template="{a} {n}")) == [("x", "one 1"), ("y", "two 2")]


def test_the_column_prompt_of_parquet_is_the_prompt(tmp_path: Path):
    file = parquet(tmp_path / "a.parquet", prompt=["one"], label=["not sent"])
    assert prompts(file) == [("request-1", "one")]
    assert "label" not in sent(file, READING)[0].body


def test_parquet_with_messages_is_bodies(tmp_path: Path):
    messages = [[{"role": "user", "content": "one"}]]
    file = parquet(
        tmp_path / "a.parquet", messages=messages, max_tokens=[5], stop=pyarrow.array([None], pyarrow.string())
    )
    (one,) = sent(file, READING)
    assert json.loads(one.body) == {"model": "m", "messages": messages[0], "max_tokens": 5}


def test_bad_rows_of_parquet_are_named_by_row_and_column(tmp_path: Path):
    file = parquet(tmp_path / "a.parquet", a=[b"good", None, b"\xff"], b=[float("nan"), 1.0, 2.0])
    surveyed = look(file, TEMPLATE)
    assert surveyed.requests == 1
    assert [surveyed.describe(bad) for bad in surveyed.bad] == [
        "row 2 has no 'a', which the template names",
        "row 3 has bytes in the column 'a' that are not text",
    ]
    surveyed = look(file, InputOptions(model="m", template="{b}"))
    assert [bad.line for bad in surveyed.bad] == [1]


def test_a_template_for_another_parquet_file_is_refused(tmp_path: Path):
    file = parquet(tmp_path / "a.parquet", text=["one"])
    with pytest.raises(UsageError, match=r"\{a\}, which is not a column"):
        look(file, TEMPLATE)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_marked_encodings_are_read(tmp_path: Path, encoding: str):
    assert prompts(written(tmp_path / "a.csv", "prompt,id\nä 🎈,x\n".encode(encoding))) == [("x", "ä 🎈")]
    assert prompts(written(tmp_path / "a.jsonl", '{"prompt": "ä"}\n'.encode(encoding))) == [("request-1", "ä")]


def test_a_workbook_is_refused_in_one_line(tmp_path: Path):
    with pytest.raises(UsageError, match="is an Excel file or a ZIP archive, which Backstay cannot read") as refused:
        look(written(tmp_path / "rows.csv", b"PK\x03\x04"), READING)
    assert "accepted are CSV, TSV, JSON Lines, a JSON array, Parquet" in refused.value.hint


def test_the_option_wins_over_the_name(tmp_path: Path):
    file = written(tmp_path / "a.csv", '{"prompt": "one"}\n')
    with open_source(file, InputOptions(Format.PROMPTS, "m")) as source:
        (found,) = [entry for _, entry in source.entries()]
        assert isinstance(found, ParsedRequest)
        assert found.fields["messages"][0]["content"] == "one"
