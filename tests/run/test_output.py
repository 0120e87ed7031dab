"""Each custom_id stands in exactly one result file, once, whatever happened to whoever wrote it."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.core.ids import POSITIONS_MAX
from backstay.run.output import ResultFiles, errors_path
from backstay.run.result_file import EndedRequest
from tests.run.results import JOB, bad, good, ids_in, lines_in, numbered, standing, written

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
        assert [position for position in range(10) if not files.lacks_line(position)] == [0, 7]
        assert files.lacks_line(POSITIONS_MAX - 1)


def test_copies_stand_before_their_item_with_numbers_of_their_own(out: Path) -> None:
    written(out, good(3, "twin", "triplet"))
    assert [(line["id"], line["custom_id"]) for line in lines_in(out)] == [
        ("batch_req_12-3-32", "twin"),
        ("batch_req_12-3-33", "triplet"),
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


def small_rows() -> list[EndedRequest]:
    return [good(0), good(1, "twin-1", 'a "quoted" é'), bad(2), good(3), bad(4, "twin-4"), good(5, "twin-5")]


@given(cuts=st.tuples(st.integers(0, 2_000), st.integers(0, 2_000)))
@settings(max_examples=100)
def test_files_cut_at_any_byte_are_continued(cuts: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("cut") / "results.jsonl"
    written(out, *small_rows())
    whole = sorted(ids_in(out)), sorted(ids_in(errors_path(out)))
    for path, cut in zip((out, errors_path(out)), cuts, strict=True):
        os.truncate(path, min(cut, path.stat().st_size))
    written(out, *small_rows())
    assert (sorted(ids_in(out)), sorted(ids_in(errors_path(out)))) == whole


def test_a_results_file_cut_at_every_single_byte_is_continued(out: Path) -> None:
    rows = [
        EndedRequest(0, "a", True, '{"status_code":200}'),
        EndedRequest(1, "b", True, "{}", copies=numbered(("c", "d"))),
    ]
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
        assert files.lacks_line(1)
        assert ids_in(out) == ["request-0"]


def test_a_hole_from_a_power_failure_is_cut_off_with_all_that_follows(out: Path) -> None:
    written(out, good(0), good(1), good(2))
    first, second, third = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(first + b"\0" * (len(second) - 2) + b"}\n" + third)
    with ResultFiles(out, JOB) as files:
        assert (files.lacks_line(0), files.lacks_line(1), files.lacks_line(2)) == (False, True, True)
    assert ids_in(out) == ["request-0"]


def test_a_part_left_by_a_crash_is_taken_away(out: Path) -> None:
    written(out, bad(0))
    part = out.with_name(".results.errors.jsonl.backstay-part")
    part.write_text("half")
    written(out, good(1))
    assert not part.exists()
    assert standing(out) == (["request-1"], ["request-0"])
