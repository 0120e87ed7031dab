"""kill -9 of a process that writes results, at random moments, again and again."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from backstay.run.output import errors_path
from tests.house.sources import ROOT
from tests.run.results import lines_in
from tests.run.writer import MENDED_LIFE, in_order

pytestmark = pytest.mark.slow


def start(out: Path, life: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.run.writer", str(out), str(life), str(life)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def live_until_killed(out: Path, life: int, seconds: float) -> None:
    with start(out, life) as process:
        time.sleep(seconds)  # the moment of a kill is chance, not a fact to wait for
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it was alive when it was killed"


def whole_lines(path: Path) -> list[str]:
    """The ids of the lines that have their end."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line)["id"] for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def expected(life: int) -> tuple[list[str], list[str]]:
    results: list[str] = []
    errors: list[str] = []
    for row in in_order(life):
        (results if row.ok else errors).append(row.custom_id)
    return results, errors


@pytest.mark.parametrize(("kills", "seed"), [(20, 1), pytest.param(80, 2, marks=pytest.mark.slow)])
def test_each_custom_id_stands_once_in_one_file_after_any_number_of_kills(
    kills: int, seed: int, tmp_path: Path
) -> None:
    out, chance = tmp_path / "results.jsonl", random.Random(seed)
    for number in range(kills):
        live_until_killed(out, number * MENDED_LIFE // kills, chance.choice((0.02, 0.3)) * chance.random())
        for path in (out, errors_path(out)):
            assert max(Counter(whole_lines(path)).values(), default=0) <= 1
    with start(out, MENDED_LIFE) as process:
        assert process.wait(60) == 0
    found = [[line["custom_id"] for line in lines_in(path)] for path in (out, errors_path(out))]
    assert tuple(found) == expected(MENDED_LIFE)
    assert len(list(tmp_path.iterdir())) == 2, "nothing is left beside the two files"
