"""Tables hold what was written, are there whole or not at all, and problems with their place are named."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from backstay.core.errors import BackstayError, UsageError
from backstay.rows.sources import open_rows
from backstay.rows.tables import check_table, open_table

ROWS: list[dict[str, Any]] = [
    {"id": 1, "text": 'a,"b"\nc', "answer": "ä", "cost": 0.5},
    {"id": 2, "text": None, "answer": "x\ty", "cost": None},
    {"id": 3},
]
COLUMNS = ["id", "text", "answer", "cost"]


def save(path: Path, rows: list[dict[str, Any]], columns: list[str], bare: bool = False) -> Path:
    with open_table(path, columns, bare) as table:
        for row in rows:
            table.write([row])
    assert os.listdir(path.parent) == [path.name]  # nothing is left beside it
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_csv_table_reads_back(tmp_path: Path, name: str):
    path = save(tmp_path / name, ROWS, COLUMNS)
    with path.open(newline="") as file:
        found = list(csv.DictReader(file, delimiter="," if name == "a.csv" else "\t"))
    assert found == [
        {"id": "1", "text": 'a,"b"\nc', "answer": "ä", "cost": "0.5"},
        {"id": "2", "text": "", "answer": "x\ty", "cost": ""},
        {"id": "3", "text": "", "answer": "", "cost": ""},
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_typed_table_reads_back_as_its_rows(tmp_path: Path, name: str):
    path = save(tmp_path / name, ROWS, COLUMNS)
    assert list(open_rows(path).rows()) == [{column: row.get(column) for column in COLUMNS} for row in ROWS]


def test_parquet_types_are_known_only_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backstay.rows.tables.GROUP_ROWS", 1)
    rows: list[dict[str, Any]] = [
        {"late": None, "number": 1, "mixed": 1, "list": [], "none": None, "big": 2**70, "raw": b"\xff"},
        {"late": "x", "number": 0.5, "mixed": "a", "list": ["b"], "none": None, "big": 1, "raw": None},
        {"late": None, "number": None, "mixed": {"k": [1]}, "list": None, "none": None, "big": None, "raw": b""},
    ]
    path = save(tmp_path / "a.parquet", rows, list(rows[0]))
    found = list(open_rows(path).rows())
    assert [row["late"] for row in found] == [None, "x", None]
    assert [row["number"] for row in found] == [1.0, 0.5, None]
    assert [row["mixed"] for row in found] == ["1", "a", '{"k":[1]}']
    assert [row["list"] for row in found] == [[], ["b"], None]
    assert [row["big"] for row in found] == [str(2**70), "1", None]
    assert [row["raw"] for row in found] == [b"\xff", None, b""]
    assert pyarrow.parquet.read_schema(path).field("none").type == "string"


def test_a_table_without_rows_has_its_columns(tmp_path: Path):
    assert open_rows(save(tmp_path / "a.parquet", [], COLUMNS)).columns == COLUMNS


def test_bare_tables_hold_the_answers_alone(tmp_path: Path):
    rows: list[dict[str, Any]] = [{"answer": "a\nb"}, {"answer": None}, {"answer": "c\u2028d"}]
    for name, lines in (("a.txt", ["a b", "", "c d"]), ("a.jsonl", ['"a\\nb"', "null", '"c\u2028d"'])):
        (folder := tmp_path / name[2:]).mkdir()
        path = save(folder / name, rows, ["answer"], bare=True)
        assert path.read_text().split("\n") == [*lines, ""]


def test_bytes_are_base64_where_there_are_none(tmp_path: Path):
    path = save(tmp_path / "a.jsonl", [{"raw": b"\xff", "in": [{"x": b"a"}]}], ["raw", "in"])
    assert json.loads(path.read_text()) == {"raw": "/w==", "in": [{"x": "YQ=="}]}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_an_error_leaves_the_earlier_table_as_it_was(tmp_path: Path, name: str):
    path = save(tmp_path / name, ROWS[:1], COLUMNS)
    before = path.read_bytes()

    def broken() -> Any:
        yield ROWS[1]
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError), open_table(path, COLUMNS) as table:
        table.write(broken())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [name]


def test_a_full_disk_is_one_sentence_and_leaves_no_half_table(tmp_path: Path):
    path = save(tmp_path / "a.csv", ROWS[:1], COLUMNS)
    before = path.read_bytes()

    def full() -> Any:
        yield ROWS[1]
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(BackstayError, match=r"a\.csv cannot be written: No space left"),
        open_table(path, COLUMNS) as table,
    ):
        table.write(full())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.csv"]


def test_what_a_crash_left_beside_it_is_replaced(tmp_path: Path):
    (tmp_path / ".a.csv.backstay-part").write_text("half of a ta" * 1000)
    assert save(tmp_path / "a.csv", [{"id": 1}], ["id"]).read_text() == "id\n1\n"


def test_a_symbolic_link_is_followed_and_stays(tmp_path: Path):
    (real := tmp_path / "real").mkdir()
    link = tmp_path / "link.csv"
    link.symlink_to(real / "a.csv")
    with open_table(link, ["id"]) as table:
        table.write([{"id": 1}])
    assert link.is_symlink()
    assert (real / "a.csv").read_text() == "id\n1\n"


def test_the_mode_of_the_earlier_file_stays(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("")
    path.chmod(0o600)
    with open_table(path, ["id"]) as table:
        table.write([])
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder.csv", r"folder\.csv is a folder"),
        ("missing/a.csv", r"missing/a\.csv cannot be written: No such file"),
        ("loop.csv", "cannot be written"),
        ("a.xlsx", r"a\.xlsx is not a table"),
    ],
)
def test_a_place_that_takes_no_table_is_named_before_there_is_one(tmp_path: Path, name: str, said: str):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(UsageError, match=said):
        check_table(tmp_path / name, ["id"])
    with pytest.raises(UsageError, match=said), open_table(tmp_path / name, ["id"]):
        raise AssertionError("it must not be opened")
    assert sorted(os.listdir(tmp_path)) == before


def test_a_text_file_has_one_column(tmp_path: Path):
    with pytest.raises(UsageError, match="a place for one column, not for 2"):
        check_table(tmp_path / "a.txt", ["a", "b"])
    with pytest.raises(UsageError, match="a place for one column, not for 2"):
        check_table(tmp_path / "a.jsonl", ["a", "b"], bare=True)


def test_two_writers_of_one_table_are_refused(tmp_path: Path):
    with open_table(tmp_path / "a.csv", ["id"]) as table:
        with pytest.raises(UsageError, match="another run is writing to"):
            check_table(tmp_path / "a.csv", ["id"])
        table.write([{"id": 1}])
    assert (tmp_path / "a.csv").read_text() == "id\n1\n"
