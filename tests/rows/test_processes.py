"""`map` in processes of their own: killed, interrupted, and in the kernel of a notebook."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import backstay
from tests.databases import fresh_database
from tests.rows.conftest import RowSite
from tests.stories.runs import SHORT_WAITS

pytestmark = pytest.mark.slow
database_url = fresh_database("sqlite")

PROGRAM = """
import json, sys
import backstay
from pydantic import BaseModel

class Review(BaseModel):
    mood: str
    stars: int

options = json.loads(sys.argv[1])
answers = backstay.map("rows.csv", "Say {text}", schema=Review, **options)
table = answers.to_pandas()
assert list(table.columns) == ["text", "mood", "stars", "cost", "error"]
print(json.dumps({"rows": len(table), "distinct": table["mood"].nunique(), "failed": len(answers.errors)}))
"""
SECONDS_MAX = 240


@contextmanager
def started(site: RowSite) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        json.dumps(site.with_options(reconcilable=True, timeout=5, progress=None, budget=5, max_tokens=100)),
    ]
    environment = {**os.environ, **SHORT_WAITS}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_paid(site: RowSite, calls: int) -> None:
    end = time.monotonic() + SECONDS_MAX
    while site.paid < calls:
        assert time.monotonic() < end
        time.sleep(0.02)


def write_rows(folder: Path, rows: int) -> None:
    (folder / "rows.csv").write_text("text\n" + "".join(f"row {n}\n" for n in range(rows)))


def finish(site: RowSite, rows: int) -> None:
    """The same program again: every row has its answer, and none was paid twice."""
    with started(site) as process:
        out, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, errors
    assert json.loads(out) == {"rows": rows, "distinct": rows, "failed": 0}
    assert (site.practice.bill.charged, site.practice.bill.paid_twice) == (rows, [])


def test_five_thousand_rows_killed_in_the_middle_are_all_answered_and_paid_once(site: RowSite, tmp_path: Path) -> None:
    write_rows(tmp_path, 5_000)
    with started(site) as process:
        wait_until_paid(site, 1_500)
        process.kill()
        process.wait()
    assert site.paid < 5_000
    finish(site, 5_000)


def test_ctrl_c_saves_what_is_there_and_nothing_is_paid_again(site: RowSite, tmp_path: Path) -> None:
    write_rows(tmp_path, 300)
    site.practice.change(latency=0.1)
    with started(site) as process:
        wait_until_paid(site, 50)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS_MAX)
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
    assert "stopping: calls under way finish first" in errors
    assert site.paid < 300
    finish(site, 300)


LEFT_OPEN = """
import json, sys
import backstay

options = json.loads(sys.argv[1])
answers = iter(backstay.map(["one", "two"], "Say {row}", **options))
next(answers)
stream = backstay.imap([f"row {n}" for n in range(60)], "Say {row}", **options)
next(stream)
"""


def test_loops_that_a_program_leaves_open_are_left_at_its_end(site: RowSite) -> None:
    site.practice.change(latency=0.3)
    options = json.dumps(site.with_options(concurrency=4))
    ran = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, options], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert 2 < site.paid < 62
    backstay.map([f"row {n}" for n in range(60)], "Say {row}", **site.with_options(concurrency=60)).values()
    assert (site.paid, site.practice.bill.paid_twice) == (62, [])


CELLS = (
    "import backstay",
    "answers = backstay.map(['a', 'b'], 'Say {row}', **OPTIONS)\nanswers",
    "more = await backstay.amap(['c'], 'Say {row}', **OPTIONS)\n[answer.text.split()[-1] for answer in more]",
    "sum(1 for _ in backstay.imap(['d', 'e'], 'Say {row}', **OPTIONS))",
)


def test_cells_of_a_notebook_need_no_await(site: RowSite, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    options = {**site.options, "progress": None}
    notebook = nbformat.v4.new_notebook()
    cells = [cell.replace("OPTIONS", repr(options)) for cell in CELLS]
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    NotebookClient(notebook, timeout=SECONDS_MAX, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [each for cell in notebook.cells for each in cell.outputs]
    results = [each["data"] for each in shown if each["output_type"] == "execute_result"]
    assert "<table>" in results[0]["text/html"]
    assert [each["text/plain"] for each in results[1:]] == ["['c']", "2"]
    lines = [each["data"]["text/plain"] for each in shown if each["output_type"] == "display_data"]
    assert any("done" in line and "$" in line for line in lines)
