"""The programs in the documentation run, and the library's page names everything there is."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import backstay
from backstay.app import Backstay, HandlerOptions
from backstay.client import Job, Options, Result
from backstay.core.errors import ErrorCode
from backstay.core.failures import NAMED, FailureKind, failure_of_status
from backstay.core.states import ItemState, JobState
from backstay.engine.tick import TickReport
from backstay.handlers.handler import Context
from backstay.store.job_views import JobView
from tests.house.sources import ROOT

PAGES = ("README.md", "docs/library.md")
SERVICE = "http://127.0.0.1:8000"  # a program that calls it is run by tests/stories/test_service_page.py
LINES_MAX = 450
RUN_SECONDS_MAX = 60
LIBRARY = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def programs(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BACKSTAY_")}
    return subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )


def printed_programs() -> list[object]:
    return [
        pytest.param(program, id=f"{page}-{number}")
        for page in PAGES
        for number, program in enumerate(programs((ROOT / page).read_text(encoding="utf-8")), 1)
        if SERVICE not in program
    ]


def public_names() -> list[str]:
    options = [
        name
        for method in (Backstay.handler, Backstay.task)
        for name in inspect.signature(method).parameters
        if name not in ("self", "rules")
    ]
    members = [name for kind in (Context, Job) for name in vars(kind) if not name.startswith("_")]
    records = [*Options.__slots__, *Result._fields, *JobView.__slots__, *TickReport.__slots__]
    words = [*ErrorCode, *NAMED, *ItemState, *JobState]
    return sorted(
        {*backstay.__all__, *HandlerOptions.__annotations__, *options, *members, *records, *map(str, words)}
        - {"__version__"}
    )


@pytest.mark.parametrize("program", printed_programs())
def test_a_printed_program_runs_as_it_stands(program: str, tmp_path: Path) -> None:
    ended = run(program, tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_its_programs_found(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    titled = text.count("```python title=")  # an example, which another test runs
    assert len(programs(text)) == text.count("```python") - titled > 0


def test_the_library_page_names_what_there_is() -> None:
    names = public_names()
    assert [name for name in names if not re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", LIBRARY)] == []


@pytest.mark.parametrize("row", [line for line in LIBRARY.splitlines() if re.match(r"\| … (?:\d|any)", line)])
def test_the_table_of_statuses_is_what_the_code_does(row: str) -> None:
    which, code, again, costs = (cell.strip() for cell in row.split("|")[1:5])
    other = re.search(r"other (\d)xx", which)
    statuses = [int(other[1]) * 100 + 77] if other else [int(found) for found in re.findall(r"\d{3}", which)]
    for failure in map(failure_of_status, statuses):
        assert f"`{failure.code}`" == code
        assert (failure.kind is not FailureKind.BUSINESS) == (again == "yes")
        assert (failure.kind is FailureKind.INFRASTRUCTURE) == (costs == "yes")


def test_the_library_page_is_short() -> None:
    assert len(LIBRARY.splitlines()) < LINES_MAX


def test_a_program_that_fails_is_noticed(tmp_path: Path) -> None:
    assert run("import backstay\nassert backstay is None\n", tmp_path).returncode != 0
