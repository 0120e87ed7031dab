"""`backstay.run_file`, which is `backstay.map` from file to file: the requests of `backstay run`, made of a Parquet
file and a prompt."""

from __future__ import annotations

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
backstay.run_file(f"{folder}/rows.parquet", prompt, f"{folder}/results.jsonl", model=model, max_tokens=16,
                  base_url=base_url, db=f"{folder}/map.db", concurrency=int(concurrency))
"""

_at = {"base_url": ""}


def prepare(base_url: str) -> None:
    _at["base_url"] = base_url
    prepare_run(base_url)


def rate(n: int) -> dict[str, float]:
    """From the start of Python to the end of the table; it must have an answer to every row."""
    with tempfile.TemporaryDirectory(prefix="map-") as name:
        folder = Path(name)
        write_rows(folder / "rows.parquet", n)
        prompt = TEXT.replace("{number:07d}", "{number}")
        arguments = [name, _at["base_url"], MODEL, prompt, str(CONCURRENCY)]
        spent = spend([sys.executable, "-c", PROGRAM, *arguments], folder, environment(folder))
        with (folder / "results.jsonl").open() as table:
            done = sum(1 for line in table if '"error":null' in line)
        if (done, lines_of(folder / "results.jsonl")) != (n, n):
            raise NotMeasured(f"of {n} rows {done} have an answer")
    return spent.figures(n)


def write_rows(path: Path, n: int) -> None:
    """The number of each request, as text of the length that it has in a request of `backstay run`."""
    import pyarrow
    import pyarrow.parquet

    numbers = [f"{number:07d}" for number in range(n)]
    pyarrow.parquet.write_table(pyarrow.table({"number": numbers}), path)
