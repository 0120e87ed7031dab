"""Set the figures against the bars: one table for people, one JSON file for programs."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.measure import Figures
from bench.rows import Bar, Row

RESULTS = Path(__file__).resolve().parent / "results.json"
SYNCS = 200


@dataclass(frozen=True)
class Line:
    """One bar of one row and how we stand to it; ratio is our figure itself where there is no peer."""

    row: str
    figure: str
    backstay: float | None
    against: str | None
    peer: float | None
    ratio: float | None
    bar: str
    verdict: str

    def cells(self) -> list[str]:
        unit = "x" if self.against else ""
        return [
            self.row,
            self.figure,
            shown(self.backstay),
            self.against or "-",
            shown(self.peer),
            f"{self.ratio:.2f}{unit}" if self.ratio is not None else "-",
            self.bar,
            self.verdict,
        ]


def line(row: Row, bar: Bar, results: dict[str, Figures | str]) -> Line:
    ours, our_reason = looked_up(results, row.ours, row.figure)
    peer, peer_reason = looked_up(results, bar.against, row.figure) if bar.against else (None, None)
    reasons = [f"{name}: {reason}" for name, reason in ((row.ours, our_reason), (bar.against, peer_reason)) if reason]
    ratio = None
    if reasons or ours is None:
        verdict = "not measured: " + "; ".join(reasons)
    else:
        ratio = ours / peer if peer else ours
        verdict = "met" if bar.holds(ratio) else "SHORT"
    return Line(row.name, row.figure, ours, bar.against, peer, ratio, str(bar), verdict)


def looked_up(results: dict[str, Figures | str], probe: str, figure: str) -> tuple[float | None, str | None]:
    found = results.get(probe, "not asked for")
    return (None, found) if isinstance(found, str) else (found[figure], None)


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(lines: list[Line]) -> str:
    head = ["row", "figure", "backstay", "against", "peer", "ratio", "bar", "verdict"]
    grid = [head, *(each.cells() for each in lines)]
    widths = [max(len(cells[column]) for cells in grid) for column in range(len(head) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=True)), cells[-1]])
        for cells in grid
    )


def machine() -> dict[str, object]:
    """What the figures depend on: they mean little without it, and nothing on another machine."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "sync_ms": round(sync_ms(), 3),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def sync_ms() -> float:
    """The mean time of a sync to the disk where the servers keep their data."""
    with tempfile.NamedTemporaryFile() as file:
        started = time.perf_counter()
        for _ in range(SYNCS):
            file.write(b"x" * 8192)
            file.flush()
            os.fdatasync(file.fileno())
        return (time.perf_counter() - started) / SYNCS * 1000


def write(lines: list[Line], results: dict[str, Figures | str], conditions: dict[str, object]) -> None:
    probes = {
        name: {"not_measured": found} if isinstance(found, str) else {"figures": found}
        for name, found in results.items()
    }
    whole = {"conditions": conditions, "rows": [asdict(each) for each in lines], "probes": probes}
    RESULTS.write_text(json.dumps(whole, indent=2) + "\n")
