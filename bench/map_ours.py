"""`backstay.map` as a user calls it: the requests of `backstay run`, made of a Parquet file and a prompt."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import tempfile
from pathlib import Path

from bench.command import spend
from bench.probes import NotMeasured
from bench.prompts import MODEL, TEXT
from bench.run_ours import CONCURRENCY, environment, lines_of
from bench.run_ours import prepare as prepare_run

PROGRAM = """
import sys
import backstay

folder, base_url, model, prompt, concurrency = sys.argv[1:]
backstay.map(f"{folder}/rows.parquet", prompt, model=model, max_tokens=16,
             base_url=base_url, db=f"{folder}/map.db", concurrency=int(concurrency))"""
WITH_TABLE = f"""{PROGRAM}.to_jsonl(folder + "/results.jsonl")
"""

_at = {"base_url": ""}


def prepare(base_url: str) -> None:
    _at["base_url"] = base_url
    prepare_run(base_url)


def rate(n: int) -> dict[str, float]:
    """From the start of Python to its end; there must be an answer to every row."""
    return measure(n, PROGRAM)


def table_rate(n: int) -> dict[str, float]:
    """The same, with a table of the answers."""
    return measure(n, WITH_TABLE)


def again_rate(n: int) -> dict[str, float]:
    """The same call a second time, with a table: nothing is sent."""
    return measure(n, WITH_TABLE, calls=2)


def measure(n: int, program: str, calls: int = 1) -> dict[str, float]:
    """The figures of the last call."""
    with tempfile.TemporaryDirectory(prefix="map-") as name:
        folder = Path(name)
        write_rows(folder / "rows.parquet", n)
        prompt = TEXT.replace("{number:07d}", "{number}")
        arguments = [name, _at["base_url"], MODEL, prompt, str(CONCURRENCY)]
        for _ in range(calls):
            spent = spend([sys.executable, "-c", program, *arguments], folder, environment(folder))
        with contextlib.closing(sqlite3.connect(folder / "map.db")) as database:
            (done,) = database.execute("SELECT succeeded FROM jobs").fetchone()
            (attempts,) = database.execute("SELECT count(*) FROM attempts").fetchone()
        table = folder / "results.jsonl"
        if calls > 1 and attempts != n:
            raise NotMeasured(f"{attempts} attempts for {n} rows: the second call has sent something")
        if done != n or (table.exists() and lines_of(table) != n):
            raise NotMeasured(f"of {n} rows {done} have an answer")
    return spent.figures(n)


def write_rows(path: Path, n: int) -> None:
    """The number of each request, as text of the length that it has in a request of `backstay run`."""
    import pyarrow
    import pyarrow.parquet

    numbers = [f"{number:07d}" for number in range(n)]
    pyarrow.parquet.write_table(pyarrow.table({"number": numbers}), path)
