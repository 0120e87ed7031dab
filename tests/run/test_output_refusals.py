"""Result files that a run may not write to are refused before anything is paid for, and left alone."""

from pathlib import Path

import pytest

from backstay.core.errors import UsageError
from backstay.run.output import ResultFiles, errors_path
from tests.run.results import JOB, bad, good, ids_in, stream, written


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
    with pytest.raises(UsageError, match=r"holds the results of job 12, and this run is job 1\n"):
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
    with pytest.raises(UsageError, match="two results for item 12-0"):
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
    with pytest.raises(UsageError, match="already holds the results of job 12, and this is a new run"):
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
            with pytest.raises(UsageError, match="holds results of job 12 of another database"):
                files.verify({**known, **stranger})
        with pytest.raises(UsageError):
            files.verify({})
