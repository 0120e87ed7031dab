"""`backstay run` as a user starts it: a file of requests, an SQLite database, a file of results."""

from __future__ import annotations

import compileall
import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path

from bench.command import Spent, spend
from bench.probes import NotMeasured
from bench.prompts import write_requests

ROOT = Path(__file__).resolve().parent.parent
CONCURRENCY = 100
CONCURRENCY_SLOW = 1_000

_at = {"base_url": ""}


def prepare(base_url: str) -> None:
    _at["base_url"] = base_url
    # An installed package is compiled; the working tree that is measured here may just have been edited.
    compileall.compile_dir(ROOT / "backstay", quiet=1)


def rate(n: int) -> dict[str, float]:
    return whole_run(n, CONCURRENCY).figures(n)


def slow_rate(n: int) -> dict[str, float]:
    return whole_run(n, CONCURRENCY_SLOW).figures(n)


def faulty_rate(n: int) -> dict[str, float]:
    """The same, and what the provider says that it did to it: without faults there is nothing to compare."""
    spent = whole_run(n, CONCURRENCY)
    with urllib.request.urlopen(_at["base_url"].removesuffix("/v1") + "/counts") as reply:
        counts = json.load(reply)
    shares = {"throttled_share": counts["throttled"] / n, "failed_share": counts["server_errors"] / n}
    if shares["throttled_share"] < 0.08 or shares["failed_share"] < 0.01:
        raise NotMeasured(f"the provider made too few faults: {shares}")
    return {**spent.figures(n), **shares}


def whole_run(n: int, concurrency: int) -> Spent:
    """From the start of the command to its end; its results must be there, every one."""
    with tempfile.TemporaryDirectory(prefix="run-") as name:
        folder = Path(name)
        write_requests(folder / "requests.jsonl", n)
        spent = spend(command(folder, concurrency), folder, environment(folder))
        errors = folder / "results.errors.jsonl"
        done, failed = lines_of(folder / "results.jsonl"), lines_of(errors) if errors.exists() else 0
    if (done, failed) != (n, 0):
        raise NotMeasured(f"of {n} requests {done} have a result and {failed} failed")
    return spent


def command(folder: Path, concurrency: int) -> list[str]:
    backstay = Path(sys.executable).with_name("backstay")
    if not backstay.exists():
        raise NotMeasured("Backstay is not installed")
    return [
        str(backstay),
        "run",
        f"{folder}/requests.jsonl",
        "--out",
        f"{folder}/results.jsonl",
        "--base-url",
        _at["base_url"],
        "--db",
        f"sqlite:///{folder}/run.db",
        "--concurrency",
        str(concurrency),
    ]


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's own settings."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "OPENAI_API_KEY": "bench"}


def lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)
