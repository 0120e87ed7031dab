"""Runs whose words go to a pipe, or nowhere at all."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.stories.runs import COMMAND, SHORT_WAITS, Provider, Rehearsal, practice

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def in_shell(run: Rehearsal, file: Path, rest: str) -> "subprocess.CompletedProcess[str]":
    words = [*COMMAND, "run", str(file), *run.options, "--concurrency", "4"]
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(words)} {rest}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **SHORT_WAITS},
        timeout=60,
        check=False,
    )


def charged(provider: Provider) -> int:
    return int(provider.bill()["charged"])


@pytest.mark.parametrize("kind", ["--out -", "--json --out {folder}/results.jsonl"])
def test_a_reader_that_has_had_enough_interrupts_a_run(tmp_path: Path, url: str, kind: str) -> None:
    with practice("--latency", "0.2") as provider:
        run = Rehearsal(tmp_path, provider, url)
        file = run.requests(60)
        ran = in_shell(run, file, f"{kind.format(folder=tmp_path)} | head -n 1")
        assert ran.returncode == 130, ran.stderr
        assert len(ran.stdout.splitlines()) == 1
        assert "Traceback" not in ran.stderr
        assert "ipe" not in ran.stderr, "there is nothing to say about the pipe"
        assert 0 < charged(provider) < 60
        whole = in_shell(run, file, "--out -")
        assert (whole.returncode, len(whole.stdout.splitlines())) == (0, 60), whole.stderr
        assert charged(provider) == 60


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&- <&-"])
def test_a_run_whose_standard_streams_are_closed_does_its_work(tmp_path: Path, url: str, closed: str) -> None:
    with practice() as provider:
        run = Rehearsal(tmp_path, provider, url)
        ran = in_shell(run, run.requests(5), f"--out {tmp_path}/results.jsonl {closed}")
        assert ran.returncode == 0
        run.check_complete(5)
