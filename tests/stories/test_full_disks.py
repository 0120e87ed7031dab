"""Runs whose database takes nothing any more, as on a full disk: told, waited out for a while, and ended in order."""

import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.stories.runs import Provider, Rehearsal, paid_again, practice, wait_until

pytestmark = pytest.mark.slow

COUNT = 300
CONCURRENCY = 20
IMPATIENT = "from backstay.run import run; run.REFUSED_SECONDS_MAX = 2; from backstay.cli.main import main; main()"


def rehearse(folder: Path, provider: Provider) -> Rehearsal:
    url = f"sqlite:///{folder}/runs.db"
    run = Rehearsal(folder, provider, url, "--concurrency", str(CONCURRENCY), "--json")
    run.requests(COUNT)
    return run


@contextlib.contextmanager
def on_a_full_disk(run: Rehearsal) -> Iterator["subprocess.Popen[bytes]"]:
    """The run, from some results on, with files that cannot grow beyond what the database has written by then."""
    out = str(run.folder / "results.jsonl")
    words = ["run", str(run.folder / "requests.jsonl"), "--out", out, *run.options]
    with (run.folder / "run.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-c", IMPATIENT, *words], stdout=log, stderr=log, cwd=ROOT)
    try:
        wait_until(lambda: len(run.lines()) > 20, "results come in")
        size = (run.folder / "runs.db-wal").stat().st_size
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_full_disk_is_told_and_nothing_is_sent_until_there_is_room_again(tmp_path: Path) -> None:
    with practice("--seed", "1", "--latency", "0.1") as provider:
        run = rehearse(tmp_path, provider)
        with on_a_full_disk(run) as process:
            wait_until(lambda: "the database refuses writes: SQLite refused: " in run.log, "the run is held")
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert process.wait(60) == 0, run.log
        run.check_complete(COUNT)
        assert (provider.bill()["charged"], paid_again(provider.bill())) == (COUNT, 0)


def test_a_run_on_a_disk_that_stays_full_ends_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with practice("--seed", "2", "--latency", "0.1") as provider:
        run = rehearse(tmp_path, provider)
        with on_a_full_disk(run) as process:
            assert process.wait(60) == 8, run.log
        assert "run the same command again" in run.log
        assert provider.bill()["charged"] < COUNT
        assert run.finish() == 0, run.log
        run.check_complete(COUNT)
        assert paid_again(provider.bill()) <= CONCURRENCY
