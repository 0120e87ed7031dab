"""Rows come from anything that holds rows, can be read again, and what is wrong is named by row and column."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from pydantic import BaseModel

from backstay.core.errors import UsageError
from backstay.rows.sources import RowKind, open_rows

ROWS: list[dict[str, Any]] = [{"id": 1, "text": "ä"}, {"id": 2, "text": "b,c"}]


class Review(BaseModel):
    id: int
    text: str


@dataclasses.dataclass
class Note:
    id: int
    text: str


def written(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def parquet(folder: Path, columns: dict[str, Any], name: str = "rows.parquet") -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / name)
    return folder / name


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (ROWS, RowKind.LIST),
        (tuple(ROWS), RowKind.LIST),
        ([Review(**row) for row in ROWS], RowKind.LIST),
        ([Note(**row) for row in ROWS], RowKind.LIST),
        (iter(ROWS), RowKind.ITERATOR),
        ((row for row in ROWS), RowKind.ITERATOR),
        (pandas.DataFrame(ROWS), RowKind.PANDAS),
        (pandas.DataFrame(ROWS, index=[5, 5]), RowKind.PANDAS),
        (polars.DataFrame(ROWS), RowKind.POLARS),
    ],
)
def test_rows_are_the_same_from_everything_and_can_be_read_again(source: Any, kind: RowKind):
    found = open_rows(source)
    assert (found.kind, found.columns) == (kind, ["id", "text"])
    assert list(found.rows()) == list(found.rows()) == ROWS


def test_a_hugging_face_dataset_gives_its_rows():
    datasets = pytest.importorskip("datasets")
    found = open_rows(datasets.Dataset.from_list(ROWS))
    assert (found.kind, found.columns, list(found.rows())) == (RowKind.DATASET, ["id", "text"], ROWS)
    with pytest.raises(UsageError, match="all splits of a dataset: train"):
        open_rows(datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}))


def test_images_of_a_dataset_stay_bytes_and_paths(tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"photo": [str(tmp_path / "a.png")]}).cast_column("photo", datasets.Image())
    assert list(open_rows(rows).rows()) == [{"photo": {"bytes": None, "path": str(tmp_path / "a.png")}}]


@pytest.mark.parametrize("columns", [pandas.DataFrame, polars.DataFrame, list])
def test_rows_stay_as_they_were_when_they_were_given(columns: Callable[[Any], Any]):
    given = columns([dict(row) for row in ROWS])
    found = open_rows(given)
    if isinstance(given, list):
        given.reverse()
        given[0]["text"] = "changed"
    elif isinstance(given, pandas.DataFrame):
        given.loc[0, "text"] = "changed"
    else:
        given.replace_column(0, polars.Series("id", ["x"] * len(ROWS)))
    assert list(found.rows()) == ROWS


def test_a_file_that_has_changed_is_not_read_again(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("text\na\nb\n")
    found = open_rows(tmp_path / "rows.csv")
    assert len(list(found.rows())) == 2
    (tmp_path / "rows.csv").write_text("text\nb\na\nc\n")
    with pytest.raises(UsageError, match=r"rows\.csv has changed since it was read"):
        next(found.rows())


def test_two_readers_of_an_iterator_do_not_disturb_each_other():
    found = open_rows(iter(ROWS))
    assert [pair for pair in zip(found.rows(), found.rows(), strict=True)] == [(row, row) for row in ROWS]


@pytest.mark.parametrize("source", [["a", "b"], iter(["a", "b"]), pandas.Series(["a", "b"]), polars.Series(["a", "b"])])
def test_texts_are_bound_to_the_column_row(source: Iterable[str]):
    found = open_rows(source)
    assert (found.columns, list(found.rows())) == (["row"], [{"row": "a"}, {"row": "b"}])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", 'id,text\n1,ä\n2,"b,c"\n'),
        ("a.tsv", "id\ttext\n1\tä\n2\tb,c\n"),
        ("bom.csv", b"\xef\xbb\xbfid;text\n1;\xc3\xa4\n2;b,c\n"),
        ("utf16.csv", 'id,text\n1,ä\n2,"b,c"\n'.encode("utf-16")),
        ("a.jsonl", '{"id": "1", "text": "ä"}\n\n{"id": "2", "text": "b,c"}\n'),
        ("a.json", '[\n {"id": "1",\n "text": "ä"},{"id": "2", "text": "b,c"}]\n'),
        ("utf16.json", '[{"id": "1", "text": "ä"},{"id": "2", "text": "b,c"}]'.encode("utf-16")),
    ],
)
def test_files_of_every_kind_hold_the_same_rows(tmp_path: Path, name: str, data: str | bytes):
    found = open_rows(written(tmp_path, name, data))
    assert (found.kind, found.columns) == (RowKind.FILE, ["id", "text"])
    assert list(found.rows()) == list(found.rows()) == [{"id": "1", "text": "ä"}, {"id": "2", "text": "b,c"}]


def test_a_text_file_is_a_row_a_line(tmp_path: Path):
    found = open_rows(str(written(tmp_path, "a.txt", "[one]\r\n\nzwei ü\n")))
    assert (found.columns, list(found.rows())) == (["row"], [{"row": "[one]"}, {"row": "zwei ü"}])


def test_parquet_keeps_the_types_that_rows_can_have(tmp_path: Path):
    columns = {
        "n": [1, None],
        "f": [0.5, math.nan],
        "day": [date(2026, 1, 2), None],
        "tags": [["a"], []],
        "raw": [b"\xff", b""],
    }
    found = open_rows(parquet(tmp_path, columns))
    assert found.columns == ["n", "f", "day", "tags", "raw"]
    assert list(found.rows()) == [
        {"n": 1, "f": 0.5, "day": "2026-01-02", "tags": ["a"], "raw": b"\xff"},
        {"n": None, "f": None, "day": None, "tags": [], "raw": b""},
    ]


def test_what_is_not_there_is_none():
    frame = pandas.DataFrame(
        {"x": [1.0, math.nan], "t": [pandas.NaT, pandas.Timestamp("2026-01-02")], "s": ["a", pandas.NA]}
    )
    assert list(open_rows(frame).rows()) == [
        {"x": 1.0, "t": None, "s": "a"},
        {"x": None, "t": "2026-01-02T00:00:00", "s": None},
    ]


def test_columns_are_those_of_all_rows():
    assert open_rows([{"a": 1}, {"b": 2, "a": 3}]).columns == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"text": "a"}, "rows cannot be a single dict"),
        (Review(id=1, text="a"), "rows cannot be a single Review"),
        (b"text", "rows cannot be a single bytes"),
        (7, "rows cannot be a single int"),
        ([{"a": 1}, 7], "row 2 is of the type int"),
        ([{"a": 1}, {"a": object()}], "row 2 has in the column 'a' a value of the type object"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "the column 'a' twice"),
        (polars.DataFrame(ROWS).lazy(), "LazyFrame"),
    ],
)
def test_what_is_no_row_is_named(source: Any, said: str):
    with pytest.raises(UsageError, match=said):
        open_rows(source).columns  # noqa: B018 - some are read when they are opened, others later


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", "a,b\n1,2\n3\n", "line 3 of .* has 1 fields where the header has 2"),
        ("a.csv", b"a,b\n1,\xff\n", "line 2 of .* is not UTF-8"),
        ("a.csv", "a,a\n1,2\n", "the column 'a' twice"),
        ("a.jsonl", '{"a": 1}\n{"a": \n', "line 2 of .* is not JSON"),
        ("a.jsonl", '{"a": 1}\n7\n', "line 2 of .* is not a JSON object"),
        ("a.json", '[{"a": 1}, {"a": NaN}]', "element 2 of .* NaN is not a JSON number"),
        ("a.json", '[{"a": 1}, {"a": ]', "element 2 is not JSON"),
        ("a.json", '[{"a": 1} {"a": 2}]', "element 1 is not followed by a comma"),
        ("a.json", '[{"a": 1}] x', "more text after its array of 1 elements"),
        ("a.json", '[{"a": 1}', "element 1 is not followed by a comma"),
        ("a.csv", "a,b\n".encode("utf-16") + b"\x00", "begins as UTF-16 and is not"),
        ("a.parquet", "a,b\n", "is not a Parquet file"),
        ("a.parquet", b"PAR1 and nothing more", "cannot be read as Parquet"),
        ("a.xlsx", b"PK\x03\x04....", "is an Excel file or a ZIP archive"),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1", "is an old Excel"),
        ("a.csv", b"\x1f\x8b\x08\x00", "compressed with gzip"),
        ("a.txt", b"%PDF-1.7", "is a PDF"),
        ("a.csv", "a,b\n".encode("utf-16-le"), "is not text"),
    ],
)
def test_bad_files_are_refused_with_the_place(tmp_path: Path, name: str, data: str | bytes, said: str):
    with pytest.raises(UsageError, match=said) as refused:
        list(open_rows(written(tmp_path, name, data)).rows())
    assert "\n" not in refused.value.message


def test_foreign_files_are_refused_with_what_is_accepted(tmp_path: Path):
    with pytest.raises(UsageError) as refused:
        open_rows(written(tmp_path, "a.xlsx", b"PK\x03\x04"))
    assert "CSV" in refused.value.hint
    assert "Parquet" in refused.value.hint


def test_a_missing_library_is_named_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = parquet(tmp_path, {"a": [1]})
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match="need pyarrow") as refused:
        open_rows(path)
    assert refused.value.hint == "pip install 'backstay[parquet]'"


def test_elements_longer_than_what_is_read_at_once_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backstay.llm.lines.CHUNK_BYTES", 3)
    rows = [{"text": "ü" * n, "n": n} for n in range(30)]
    path = written(tmp_path, "a.json", json.dumps(rows, ensure_ascii=False, indent=1))
    assert list(open_rows(path).rows()) == rows
    numbers = written(tmp_path, "numbers.json", json.dumps(["a", "bb"]))
    assert list(open_rows(numbers).rows()) == [{"row": "a"}, {"row": "bb"}]
