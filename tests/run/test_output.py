"""Each custom_id stands in exactly one result file, once, whatever happened to whoever wrote it."""

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.core.ids import POSITIONS_MAX
from backstay.run.output import ResultFiles, errors_path
from backstay.run.positions import Positions
from backstay.run.result_line import Ended
from tests.run.results import JOB, bad, good, ids_in, lines_in, numbered, standing


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def written(out: Path, *rows: Ended) -> None:
    with ResultFiles(out, JOB) as files:
        files.write(rows)


async def stream(rows: Iterable[Ended]) -> AsyncIterator[Ended]:
    for row in rows:
        yield row


# What is written


def test_successes_and_failures_go_to_a_file_each(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        assert files.write([good(0), bad(1), good(2)]) == 3
        assert (files.succeeded, files.failed) == (2, 1)
    assert standing(out) == (["request-0", "request-2"], ["request-1"])


def test_what_is_written_can_be_read_at_once(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        files.write([good(0)])
        assert ids_in(out) == ["request-0"]


def test_a_run_in_which_nothing_fails_leaves_no_errors_file(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        assert errors_path(out).exists()  # that it can be written is known before anything is paid for
        files.write([good(0)])
    assert not errors_path(out).exists()


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("results.jsonl", "results.errors.jsonl"),
        ("results", "results.errors"),
        ("a.b.ndjson", "a.b.errors.ndjson"),
        (".jsonl", ".jsonl.errors"),
    ],
)
def test_the_errors_file_is_named_after_the_results(name: str, errors: str, tmp_path: Path) -> None:
    assert errors_path(tmp_path / name) == tmp_path / errors


def test_an_item_is_written_once_however_often_it_is_given(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        assert files.write([good(0), good(0), bad(1), bad(1)]) == 2
        assert files.write([good(0), bad(1)]) == 0
    assert standing(out) == (["request-0"], ["request-1"])


def test_what_is_missing_is_known(out: Path) -> None:
    written(out, good(0), bad(7))
    with ResultFiles(out, JOB) as files:
        assert [position for position in range(10) if not files.missing(position)] == [0, 7]
        assert files.missing(POSITIONS_MAX - 1)


def test_copies_stand_before_their_item_with_numbers_of_their_own(out: Path) -> None:
    written(out, good(3, "twin", "triplet"))
    assert [(line["id"], line["custom_id"]) for line in lines_in(out)] == [
        ("batch_req_12-3-2", "twin"),
        ("batch_req_12-3-3", "triplet"),
        ("batch_req_12-3", "request-3"),
    ]


def test_many_bytes_in_one_call_are_written_in_pieces_and_whole(out: Path) -> None:
    words = "x" * 300_000
    with ResultFiles(out, JOB) as files:
        assert files.write(good(n, words=words) for n in range(40)) == 40
    assert ids_in(out) == [f"request-{n}" for n in range(40)]


# Continuing


def test_a_file_is_continued(out: Path) -> None:
    written(out, good(0), bad(1))
    written(out, good(0), bad(1), good(2), bad(3))
    assert standing(out) == (["request-0", "request-2"], ["request-1", "request-3"])


def small_rows() -> list[Ended]:
    return [good(0), good(1, "twin-1", 'a "quoted" é'), bad(2), good(3), bad(4, "twin-4"), good(5, "twin-5")]


@given(cuts=st.tuples(st.integers(0, 2_000), st.integers(0, 2_000)))
@settings(max_examples=100, deadline=None)
def test_files_cut_at_any_byte_are_continued(cuts: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("cut") / "results.jsonl"
    written(out, *small_rows())
    whole = sorted(ids_in(out)), sorted(ids_in(errors_path(out)))
    for path, cut in zip((out, errors_path(out)), cuts, strict=True):
        os.truncate(path, min(cut, path.stat().st_size))
    written(out, *small_rows())
    assert (sorted(ids_in(out)), sorted(ids_in(errors_path(out)))) == whole


def test_a_results_file_cut_at_every_single_byte_is_continued(out: Path) -> None:
    rows = [Ended(0, "a", True, '{"status_code":200}'), Ended(1, "b", True, "{}", copies=numbered(("c", "d")))]
    written(out, *rows)
    whole, ids = out.read_bytes(), sorted(ids_in(out))
    for cut in range(len(whole)):
        out.write_bytes(whole[:cut])
        written(out, *rows)
        assert sorted(ids_in(out)) == ids, f"cut at {cut}"


def test_copies_whose_item_was_cut_off_are_written_again(out: Path) -> None:
    written(out, good(0), good(1, "twin", "triplet"))
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:3]))
    with ResultFiles(out, JOB) as files:
        assert files.missing(1)
        assert ids_in(out) == ["request-0"]


def test_a_hole_from_a_power_failure_is_cut_off_with_all_that_follows(out: Path) -> None:
    written(out, good(0), good(1), good(2))
    first, second, third = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(first + b"\0" * (len(second) - 2) + b"}\n" + third)
    with ResultFiles(out, JOB) as files:
        assert (files.missing(0), files.missing(1), files.missing(2)) == (False, True, True)
    assert ids_in(out) == ["request-0"]


def test_a_part_left_by_a_crash_is_taken_away(out: Path) -> None:
    written(out, bad(0))
    part = out.with_name(".results.errors.jsonl.backstay-part")
    part.write_text("half")
    written(out, good(1))
    assert not part.exists()
    assert standing(out) == (["request-1"], ["request-0"])


def test_the_memory_for_a_million_positions_is_125_kb() -> None:
    positions = Positions()
    for position in range(1_000_000):
        positions.add(position)
    assert (positions.bytes_used, len(positions)) == (125_000, 1_000_000)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300))))
def test_positions_are_a_set(acts: list[tuple[bool, int]]) -> None:
    positions, model = Positions(), set()
    for adds, position in acts:
        if adds:
            assert positions.add(position) == (position not in model)
            model.add(position)
        else:
            positions.discard(position)
            model.discard(position)
    assert [position for position in range(400) if position in positions] == sorted(model)
    assert len(positions) == len(model)


@pytest.mark.parametrize("position", [-1, POSITIONS_MAX])
def test_there_is_no_position_out_of_range(position: int) -> None:
    with pytest.raises(ValueError, match="no position"):
        Positions().add(position)


# What is refused


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"name,age\nAda,36\n",
        b'{"custom_id": "a", "method": "POST", "url": "/v1/x", "body": {}}\n',
        b"\0" * 100,
    ],
    ids=["text", "table", "requests", "zeros"],
)
def test_a_file_of_somebody_else_is_refused_and_left_alone(content: bytes, out: Path) -> None:
    out.write_bytes(content)
    with pytest.raises(UsageError, match="results") as refused:
        ResultFiles(out, JOB).open()
    assert "--out" in refused.value.hint
    assert (out.read_bytes(), errors_path(out).exists()) == (content, False)


def test_a_file_of_another_job_is_refused(out: Path) -> None:
    written(out, good(0))
    before = out.read_bytes()
    with pytest.raises(UsageError, match=r"holds the results of job 12, and this run is job 1$"):
        ResultFiles(out, 1).open()
    assert out.read_bytes() == before


def test_errors_of_another_job_are_refused_and_no_results_file_is_left(out: Path) -> None:
    with ResultFiles(out, 7) as files:
        files.write([bad(0)])
    out.unlink()
    with pytest.raises(UsageError, match=r"results\.errors\.jsonl holds the results of job 7"):
        ResultFiles(out, JOB).open()
    assert not out.exists()


@pytest.mark.parametrize(
    "line",
    [
        b"a note by hand\n",
        b"a note by hand",
        b'{"id":"batch_req_13-0","custom_id":"a","response":null,"error":null}\n',
        b'{"id":"batch_req_12-999999999","custom_id":"a","response":null,"error":null}\n',
        b'{"id":"batch_req_12-1","custom_id":"a","respo\n',
    ],
)
def test_a_line_that_is_not_ours_is_refused_by_its_number(line: bytes, out: Path) -> None:
    written(out, good(0))
    with out.open("ab") as file:
        file.write(line)
    before = out.read_bytes()
    with pytest.raises(UsageError, match="line 2 of") as refused:
        ResultFiles(out, JOB).open()
    assert "database" in refused.value.hint
    assert out.read_bytes() == before


def test_an_item_with_two_lines_is_refused(out: Path) -> None:
    written(out, good(0))
    out.write_bytes(out.read_bytes() * 2)
    with pytest.raises(UsageError, match="two lines for item 12-0"):
        ResultFiles(out, JOB).open()


def test_copies_of_an_item_whose_line_never_comes_are_refused(out: Path) -> None:
    written(out, good(0, "twin"), good(1))
    copy, _, other = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(copy + other)
    with pytest.raises(UsageError, match="line 2 of"):
        ResultFiles(out, JOB).open()


def test_a_run_without_a_job_yet_takes_an_empty_file_only(out: Path) -> None:
    with ResultFiles(out) as files:
        files.job_id = JOB
        files.write([good(0)])
    assert ids_in(out) == ["request-0"]
    with pytest.raises(UsageError, match="holds the results of job 12 already, and this is a new run"):
        ResultFiles(out).open()


async def test_two_runs_cannot_write_the_same_file(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        with pytest.raises(UsageError, match="another run is writing to"):
            ResultFiles(out, JOB).open()
        files.write([bad(0)])
        await files.renew_errors(stream([bad(0)]))  # a file that was replaced is still guarded
        with pytest.raises(UsageError, match="another run is writing to"):
            ResultFiles(errors_path(out), JOB).open()
    ResultFiles(out, JOB).open().close()


def test_a_folder_and_a_missing_folder_are_refused_in_one_line(tmp_path: Path) -> None:
    for out, why in ((tmp_path, "Is a directory"), (tmp_path / "none" / "results.jsonl", "No such file")):
        with pytest.raises(UsageError, match=why):
            ResultFiles(out, JOB).open()


def test_results_and_failures_need_a_file_each(out: Path) -> None:
    with pytest.raises(UsageError, match="cannot both go to"):
        ResultFiles(out, JOB, errors=out.parent / "." / out.name).open()


def test_the_files_of_a_job_with_the_same_number_in_another_database_are_refused(out: Path) -> None:
    written(out, good(0), good(1), good(2), bad(3))
    with ResultFiles(out, JOB) as files:
        assert [(seen.position, seen.custom_id, seen.ok) for seen in files.witnesses] == [
            (0, "request-0", True),
            (2, "request-2", True),
            (3, "request-3", False),
        ]
        known = {position: (f"request-{position}", True) for position in range(4)}
        files.verify(known)  # the failure has succeeded since: that may be
        for stranger in ({0: ("other", True)}, {2: ("request-2", False)}, {3: ("other", False)}):
            with pytest.raises(UsageError, match="holds results of another job 12"):
                files.verify({**known, **stranger})
        with pytest.raises(UsageError):
            files.verify({})
