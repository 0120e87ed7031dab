"""Run probes, each in a fresh process against a fresh server, and keep the median of the repeats."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.environments import python_of
from bench.probes import PROBES, NotMeasured, Probe
from bench.provider import KINDS, provider
from bench.servers import NotHere, private_postgres, private_rabbitmq

PROBE_SECONDS_MAX = 3_600
HERE = Path(__file__).resolve().parent

Figures = dict[str, float]


@contextlib.contextmanager
def server(kind: str) -> Iterator[str]:
    """The URL of a server with nothing in it, or of a file that is not there yet; for `both` two of them."""
    if kind == "postgres":
        with private_postgres() as url:
            yield url
    elif kind == "rabbitmq":
        with private_rabbitmq() as url:
            yield url
    elif kind == "both":
        with private_postgres() as database, private_rabbitmq() as broker:
            yield f"{database} {broker}"
    elif kind in KINDS:
        with provider(kind) as url:
            yield url
    else:
        # Not the temporary folder, which may be memory: a sync would then cost nothing.
        with tempfile.TemporaryDirectory(prefix=".sqlite-", dir=HERE) as folder:
            yield f"sqlite:///{folder}/bench.db"


def measure(probe: Probe, quick: bool) -> Figures:
    """One figure or more from one process; NotMeasured says why it has no figure."""
    items = probe.items_quick if quick else probe.items
    python = python_of(probe.environment)
    command = [python, "-m", "bench.contestant", probe.module, probe.measure, str(items)]
    try:
        with server(probe.server) as url, tempfile.TemporaryDirectory(prefix=".scratch-", dir=HERE) as folder:
            return figures_of(*output_of([*command, url], folder))
    except NotHere as error:
        raise NotMeasured(str(error)) from error


def output_of(command: list[str], folder: str) -> tuple[int, str, str]:
    """The exit code and what was said; the contestant keeps its files in the folder."""
    process = subprocess.Popen(
        command,
        cwd=HERE.parent,
        env={**os.environ, "TMPDIR": folder},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=PROBE_SECONDS_MAX)
    except BaseException as error:
        # It has not been waited for, so the group is still its own: what it started ends with it.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise NotMeasured(f"no end after {PROBE_SECONDS_MAX} s") from error
        raise
    return process.returncode, output, errors


def figures_of(code: int, output: str, errors: str) -> Figures:
    try:
        answer = json.loads(output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = errors.strip().splitlines()
        raise NotMeasured(f"exit code {code}: {said[-1] if said else 'it said nothing'}") from None
    if "figures" not in answer:
        raise NotMeasured(answer["not_measured"])
    figures: Figures = answer["figures"]
    return figures


def measure_all(names: list[str], quick: bool, repeat: int) -> dict[str, Figures | str]:
    """The figures of each probe, or the reason why it has none; the repeats go round in turns."""
    taken: dict[str, list[Figures]] = {name: [] for name in names}
    reasons: dict[str, str] = {}
    for turn in range(repeat):
        for name in names:
            if name in reasons or (turn and PROBES[name].once):
                continue
            try:
                taken[name].append(measure(PROBES[name], quick))
                said = ", ".join(f"{key} {value:,.2f}" for key, value in taken[name][-1].items())
            except NotMeasured as error:
                reasons[name] = str(error)
                said = f"not measured: {error}"
            print(f"  [{turn + 1}/{repeat}] {name}: {said}", file=sys.stderr, flush=True)
    return {name: reasons[name] if name in reasons else medians(taken[name]) for name in names}


def medians(turns: list[Figures]) -> Figures:
    return {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
