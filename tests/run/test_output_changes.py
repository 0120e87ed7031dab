"""Failures that are retried, files put in order, disks that are full: what becomes of files that are there."""

import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from backstay.core.errors import BackstayError
from backstay.run.output import ResultFiles, errors_path
from backstay.run.result_file import EndedRequest
from tests.house.sources import ROOT
from tests.run.results import JOB, apart, bad, good, ids_in, lines_in, standing, stream

# Failures that are retried


async def test_a_failure_that_is_under_way_again_loses_its_line_and_those_of_its_copies(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        files.write([bad(0), bad(1, "twin"), bad(2)])
    with ResultFiles(out, JOB) as files:
        await files.renew_errors(stream([bad(0), bad(2)]))
        assert files.lacks_line(1)
        assert ids_in(errors_path(out)) == ["request-0", "request-2"]
        files.write([good(1, "twin")])
    assert standing(out) == (["twin", "request-1"], ["request-0", "request-2"])


async def test_what_failed_once_more_has_its_newest_failure_and_what_succeeded_meanwhile_none(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        files.write([bad(0), bad(1), bad(2)])
        files.write([good(2)])
        await files.renew_errors(stream([bad(0, message="it was late"), bad(1), bad(2), good(3)]))
        assert [line["error"]["message"] for line in lines_in(errors_path(out))] == ["it was late", "it was down"]
        assert files.lacks_line(3)
        assert files.write([bad(0), bad(1)]) == 0
    assert standing(out) == (["request-2"], ["request-0", "request-1"])


async def test_errors_that_have_all_been_mended_leave_no_file(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        files.write([bad(0)])
    with ResultFiles(out, JOB) as files:
        await files.renew_errors(stream([]))
        files.write([good(0)])
    assert standing(out) == (["request-0"], [])
    assert not errors_path(out).exists()


def test_a_failure_that_succeeds_while_the_run_goes_on_moves_to_the_results(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        files.write([bad(0), bad(1)])
        assert (files.lacks_line(0, ok=True), files.lacks_line(0, ok=False)) == (True, False)
        assert files.write([good(0)]) == 1
        assert not files.lacks_line(0, ok=True)
        assert files.write([bad(0), good(0)]) == 0
    assert standing(out) == (["request-0"], ["request-1"])


def test_an_item_in_both_files_after_a_crash_stands_in_the_results_only(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        files.write([bad(0), bad(1)])
        crashed = errors_path(out).read_bytes()
        files.write([good(0)])
    errors_path(out).write_bytes(crashed)
    with ResultFiles(out, JOB):
        assert standing(out) == (["request-0"], ["request-1"])


async def test_a_replaced_file_keeps_its_permissions(out: Path) -> None:
    with ResultFiles(out, JOB) as files:
        files.write([bad(0), bad(1)])
        errors_path(out).chmod(0o640)
        await files.renew_errors(stream([bad(0)]))
    assert stat.S_IMODE(errors_path(out).stat().st_mode) == 0o640


# In order


async def test_both_files_are_put_in_order(out: Path) -> None:
    rows = [good(0, "twin"), bad(1), good(2), bad(3), good(4)]
    with ResultFiles(out, JOB) as files:
        files.write([good(4), bad(3), good(0, "twin"), bad(1)])
        await files.rewrite_in_order(stream(rows))
        assert not files.lacks_line(2)
        assert standing(out) == (["twin", "request-0", "request-2", "request-4"], ["request-1", "request-3"])
        files.write([good(5)])  # and they go on from there
    assert ids_in(out)[-2:] == ["request-4", "request-5"]
    assert [path.name for path in sorted(out.parent.iterdir())] == ["results.errors.jsonl", "results.jsonl"]


async def test_copies_that_stand_where_their_requests_do_are_taken_for_ours_and_the_file_goes_on(out: Path) -> None:
    first, failed = apart(good(0, "twin", "triplet")), apart(bad(1, "double"))
    rows = [first[0], failed[0], first[1], good(2), failed[1], first[2]]
    with ResultFiles(out, JOB) as files:
        await files.rewrite_in_order(stream(rows))
    assert standing(out) == (["request-0", "twin", "request-2", "triplet"], ["request-1", "double"])
    with ResultFiles(out, JOB) as files:
        assert (files.succeeded, files.failed) == (2, 1)
        files.write([good(0, "twin", "triplet"), good(3, "last")])
    assert ids_in(out) == ["request-0", "twin", "request-2", "triplet", "last", "request-3"]


async def test_a_copy_never_stands_in_a_file_that_has_not_its_item(out: Path) -> None:
    item, _ = apart(bad(0, "twin"))
    _, copy = apart(good(0, "twin"))  # it succeeded while the files were put in order
    with ResultFiles(out, JOB) as files:
        await files.rewrite_in_order(stream([item, copy]))
    assert standing(out) == ([], ["request-0"])


async def test_a_failure_while_putting_in_order_leaves_the_files_as_they_were(out: Path) -> None:
    async def broken() -> AsyncIterator[EndedRequest]:
        yield good(0)
        raise ConnectionError("the database is gone")

    with ResultFiles(out, JOB) as files:
        files.write([good(1), bad(2), good(0)])
        with pytest.raises(ConnectionError):
            await files.rewrite_in_order(broken())
        assert standing(out) == (["request-1", "request-0"], ["request-2"])
        files.write([good(3)])
    assert standing(out) == (["request-1", "request-0", "request-3"], ["request-2"])
    assert len(list(out.parent.iterdir())) == 2


# When writing fails

FULL_DISK = """
import resource, sys
from backstay.core.errors import BackstayError
from backstay.run.output import ResultFiles
from tests.run.results import JOB, bad, good
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
files = ResultFiles(sys.argv[1], JOB).open()
files.write([good(0)])
for row in ([bad(1), good(2, words="x" * 2000), good(3)], [good(4)]):
    try:
        files.write(row)
    except BackstayError as error:
        print(error.message, "|", error.hint)
files.close()
print(files.lacks_line(0), files.lacks_line(1), files.lacks_line(2), files.lacks_line(3), files.lacks_line(4))
"""


def test_a_full_disk_is_told_in_one_line_and_a_later_run_continues(out: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(out), "1000"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    told, missing = ran.stdout.splitlines()
    assert told.startswith(f"{out} cannot be written: File too large | nothing is lost")
    assert missing == "False True True True False", "what was refused counts as missing, what came later is there"
    assert standing(out) == (["request-0", "request-4"], [])
    with ResultFiles(out, JOB) as files:
        files.write([good(0), bad(1), good(2), good(3), good(4)])
    assert standing(out) == ([f"request-{n}" for n in (0, 4, 2, 3)], ["request-1"])


def test_a_file_that_was_removed_meanwhile_is_told_and_written_afresh_by_the_next_run(out: Path) -> None:
    files = ResultFiles(out, JOB).open()
    files.write([good(0), bad(1)])
    out.unlink()
    with pytest.raises(BackstayError, match="was removed or replaced"):
        files.close()
    with ResultFiles(out, JOB) as files:
        files.write([good(0), bad(1)])
    assert standing(out) == (["request-0"], ["request-1"])


@pytest.mark.parametrize("change", ["remove", "replace", "cut", "lengthen"])
def test_a_file_that_somebody_changes_meanwhile_is_told_at_the_next_line_and_mended_by_the_next_run(
    out: Path, change: str
) -> None:
    files = ResultFiles(out, JOB).open()
    files.write([good(0), good(1)])
    size = out.stat().st_size
    if change in ("cut", "lengthen"):
        os.truncate(out, size - 100 if change == "cut" else size + 100)
    else:
        out.rename(out.parent / "away")
    if change == "replace":
        out.touch()
    with pytest.raises(BackstayError, match="while the run wrote to it") as told:
        files.write([good(2)])
    assert "run the same command again" in told.value.hint
    assert files.lacks_line(2)
    with pytest.raises(BackstayError, match="while the run wrote to it"):
        files.close()
    with ResultFiles(out, JOB) as files:
        files.write([good(0), good(1), good(2)])
    assert sorted(ids_in(out)) == ["request-0", "request-1", "request-2"]


def test_a_thread_that_comes_too_late_writes_to_nobody_elses_file(out: Path) -> None:
    files = ResultFiles(out, JOB).open()
    files.close()
    with (out.parent / "other").open("wb+") as other, pytest.raises(BackstayError, match="cannot be written"):
        files.write([good(0)])
    assert other.closed
    assert ((out.parent / "other").read_bytes(), out.read_bytes()) == (b"", b"")


def test_a_failure_inside_is_told_rather_than_the_failure_to_close(out: Path) -> None:
    def fail_twice() -> None:
        with ResultFiles(out, JOB):
            out.unlink()
            raise RuntimeError("the first")

    with pytest.raises(RuntimeError, match="the first"):
        fail_twice()


def test_rows_that_cannot_be_read_leave_nothing_marked_as_written(out: Path) -> None:
    def rows() -> Iterable[EndedRequest]:
        yield good(0)
        yield bad(1)
        raise ConnectionError("the database is gone")

    with ResultFiles(out, JOB) as files:
        with pytest.raises(ConnectionError):
            files.write(rows())
        assert files.lacks_line(0)
        assert files.lacks_line(1)
        files.write([good(0), bad(1)])
    assert standing(out) == (["request-0"], ["request-1"])
    assert len(lines_in(out)) == 1
