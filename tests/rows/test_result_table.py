"""A table is made of the input that was surveyed; another content is noticed before it takes its place."""

from pathlib import Path

import pytest

from backstay.core.errors import UsageError
from backstay.llm.formats import InputOptions
from backstay.llm.intake import FileChanged, open_source, survey
from backstay.rows.tables import _chosen_columns, _entries

READING = InputOptions(model="m", template="{a}")


@pytest.mark.parametrize("changed", ["a\none\nTWO\n", "a\none\n", "a\n\none\ntwo\n"])
def test_an_input_that_was_changed_is_noticed(tmp_path: Path, changed: str):
    file = tmp_path / "rows.csv"
    file.write_text("a\none\ntwo\n")
    with open_source(str(file), READING) as source:
        surveyed = survey(source)
        assert [entry.row for entry in _entries(source, surveyed)] == [{"a": "one"}, {"a": "two"}]
        file.write_text(changed)
        with pytest.raises(FileChanged):
            list(_entries(source, surveyed))


def test_rows_that_were_added_since_are_left_out(tmp_path: Path):
    file = tmp_path / "rows.csv"
    file.write_text("a\none\ntwo\n")
    with open_source(str(file), READING) as source:
        surveyed = survey(source)
        file.write_text("a\none\ntwo\nthree\n")
        assert [entry.row for entry in _entries(source, surveyed)] == [{"a": "one"}, {"a": "two"}]


def test_rows_that_were_not_sent_say_why(tmp_path: Path):
    file = tmp_path / "rows.csv"
    file.write_text("id,a\nx,one\nx,two\n,three,more\nz,four\n")
    with open_source(str(file), READING) as source:
        found = list(_entries(source, survey(source)))
    assert [str(entry.parsed) if isinstance(entry.parsed, Exception) else "" for entry in found] == [
        "",
        "has the same custom_id as an earlier row",
        "has 3 fields where the header has 2",
        "",
    ]


def test_columns_are_named_renamed_and_told_apart():
    found = _chosen_columns("n=input.id, gold = input.answer,answer,a=b,price=cost", ["id", "answer", "a=b"])
    assert [tuple(column) for column in found] == [
        ("n", "id", False),
        ("gold", "answer", False),
        ("answer", "answer", True),
        ("a=b", "a=b", False),
        ("price", "cost", True),
    ]
    for wrong in ("", "id,", "x", "x=", "=id", "n=x", "id,id=answer"):
        with pytest.raises(UsageError, match="--columns"):
            _chosen_columns(wrong, ["id"])
