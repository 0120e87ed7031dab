"""The examples run as they stand, and the tutorial shows the one it says it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT


def ran(example: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / example)]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def run(example: str, folder: Path) -> str:
    ended = ran(example, folder)
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.slow
def test_the_rehearsal_is_killed_goes_on_and_ends_with_every_result_and_a_bill_that_agrees(tmp_path: Path) -> None:
    for _ in range(2):  # a second time in the same folder
        ended = ran("rehearsal.py", tmp_path)
        assert "killed with -9" in ended.stdout
        assert "300 of 300 requests succeeded" in ended.stderr
        assert "results     300, 0 of them twice" in ended.stdout
        assert "paid again  0\n" in ended.stdout
        assert "\x1b" not in ended.stdout + ended.stderr, "no animation off a terminal"
    results = re.search(r"look at the results: (.*)", ended.stdout)
    assert results is not None
    assert len((tmp_path / results[1]).read_text().splitlines()) == 300
    assert_there(re.findall(r"and at the job: +.venv/bin/backstay (.*)", ended.stdout), tmp_path)


@pytest.mark.slow
def test_the_faulty_provider_is_paid_once_for_everything_though_a_worker_is_killed(tmp_path: Path) -> None:
    for _ in range(2):  # a second time on the same file
        said = run("faulty_provider.py", tmp_path)
        assert "killed worker" in said
        assert "done      392 of 400" in said
        assert "failed    8 NOT_PDF" in said
        assert "paid      392 calls, 0 of them twice" in said
        assert "\x1b" not in said, "no animation off a terminal"
    looks = re.findall(r"look: .venv/bin/backstay (.*)", said)
    assert len(looks) == 3
    assert_there(looks, tmp_path)


@pytest.mark.slow
def test_a_folder_of_pdfs_is_converted_though_the_gateway_fails_now_and_then(tmp_path: Path) -> None:
    for _ in range(2):  # a second time in the same folder
        said = run("convert_pdfs.py", tmp_path)
        assert "converted 12 of 12" in said
    made = sorted((tmp_path / "build" / "converter" / "xml").glob("*.xml"))
    assert len(made) == 12
    assert '<text value="Paper number 0"/>' in made[0].read_text()
    assert_there(re.findall(r"look: .venv/bin/backstay (.*)", said), tmp_path)


def assert_there(looks: list[str], tmp_path: Path) -> None:
    """What the example says to look at next can be looked at."""
    assert looks
    for look in looks:
        command = [sys.executable, "-m", "backstay", *look.split()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, bool(ran.stdout)) == (0, True), ran.stderr


def test_the_quickstart_prints_its_results(tmp_path: Path) -> None:
    said = run("quickstart.py", tmp_path).splitlines()
    assert said == ["1-0 succeeded a long text", "1-1 succeeded another"]


@pytest.mark.slow
def test_tasks_are_submitted_polled_and_done(tmp_path: Path) -> None:
    said = run("tasks.py", tmp_path).splitlines()
    assert said[-3:] == [f"1-{number} succeeded render-{number}.png" for number in range(3)]


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="there are no pages in an installed copy")
def test_the_tutorial_shows_the_quickstart_as_it_is() -> None:
    page = (ROOT / "docs" / "start-library.md").read_text(encoding="utf-8")
    shown = re.search(r"```python[^\n]*\n(import asyncio.*?)```", page, re.DOTALL)
    assert shown is not None
    assert (ROOT / "examples" / "quickstart.py").read_text().endswith(shown[1])
