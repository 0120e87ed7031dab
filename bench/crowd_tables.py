"""What a crowd of workers does, as tables for docs/scale.md: measured, and foretold by the model."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.crowd_model import Costs, Crowd, foretell

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
BETWEEN = re.compile(r"(<!-- crowd -->\n).*?(<!-- /crowd -->)", re.DOTALL)
MEASURED_CORES = 2
BUSY_MAX = 0.05  # of the cores, by others, before it begins
# Workers with 100 slots and calls of two seconds: 50 items a second each, so a batch of 50 is a second of work.
THINK_SECONDS = 1.0
MACHINES = (10, 100, 1_000, 5_000)
SERVERS = (8, 32, 64)
SERVER_SYNC_SECONDS = 0.001
CONNECTIONS_PER_CORE = 4  # by way of a pooler


def costs_of(found: dict[str, Any]) -> Costs:
    alone, first = found["alone"], found["levels"][0]
    slower = 1 / reached(found)
    return Costs(
        claim_cpu=alone["claim_cpu_ms"] / 1000 * slower,
        settle_cpu=alone["settle_cpu_ms"] / 1000 * slower,
        python_cpu=first["python_cpu_ms"] / 1000 * slower,
        sync=alone["sync_ms"] / 1000,
    )


def reached(found: dict[str, Any]) -> float:
    """The share of the cores that connections and workers could get: the rest is the server's own, and the kernel's."""
    used = [
        row["items_per_second"] / found["batch"] * (row["server_cpu_ms"] + row["python_cpu_ms"]) / 1000
        for row in found["levels"]
    ]
    return min(max(used) / MEASURED_CORES, 1.0)


def tables(found: dict[str, Any]) -> str:
    costs = costs_of(found)
    return "\n".join((_conditions(found), _measured(found, costs), _foretold(found, costs)))


def _conditions(found: dict[str, Any]) -> str:
    where = f"{found['machine']}, of which others used {found['busy']:.0%} before it"
    alone, python = found["alone"], f"{found['levels'][0]['python_cpu_ms']:.2f} ms"
    claim, settle, sync = (f"{alone[name]:.2f} ms" for name in ("claim_cpu_ms", "settle_cpu_ms", "sync_ms"))
    return (
        f"Measured on {found['date']} by `python -m bench.claim_crowd`: {where};\n"
        "PostgreSQL is durable, and the workers are on the same machine. A claim and its settlement are "
        f"{found['batch']} items.\nOne worker alone: a claim costs the server {claim} of processor time, a settlement "
        f"{settle}, a commit waits {sync}\nfor the disk, and the worker's Python takes {python} for both.\n"
        f"They got {reached(found):.0%} of the cores at most, so the model takes a core for that much."
        f"{_warning(found)}\n"
    )


def _warning(found: dict[str, Any]) -> str:
    if found["busy"] <= BUSY_MAX:
        return ""
    return (
        " **The machine was busy with other things, so\nthe rates are too low; the processor times are about right.**"
    )


def _measured(found: dict[str, Any], costs: Costs) -> str:
    rows = [
        "| workers | jobs | items/s | by the model | claim p50 | p95 | settle p50 | short claims | waits most for |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    off = []
    for row in found["levels"]:
        crowd = Crowd(row["workers"], MEASURED_CORES, row["workers"], python_here=True)
        said = foretell(costs, crowd, found["batch"])
        off.append(said.items_per_second / row["items_per_second"])
        waits = next(((name, share) for name, share in row["waits"].items() if name != "at work"), ("nothing", 0))
        rows.append(
            f"| {row['workers']} | {row['jobs']} | {row['items_per_second']:,.0f} | {said.items_per_second:,.0f} "
            f"| {row['claim_p50_ms']:.1f} ms | {row['claim_p95_ms']:.1f} ms | {row['settle_p50_ms']:.1f} ms "
            f"| {row['short_share']:.0%} | {waits[0].partition(':')[2] or waits[0]}, {waits[1]:.0%} |"
        )
    return "\n".join(rows) + f"\n\nThe model says {min(off):.2f} to {max(off):.2f} times what was measured.\n"


def _foretold(found: dict[str, Any], costs: Costs) -> str:
    rows = [
        "| workers | needed, items/s | cores of the server | done, items/s | claim p50 | p95 | cores busy |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    away = replace(costs, sync=SERVER_SYNC_SECONDS)
    for workers in MACHINES:
        for cores in SERVERS:
            crowd = Crowd(workers, cores, CONNECTIONS_PER_CORE * cores, THINK_SECONDS)
            said = foretell(away, crowd, found["batch"])
            needed = workers * found["batch"] / THINK_SECONDS
            rows.append(
                f"| {workers:,} | {needed:,.0f} | {cores} | {said.items_per_second:,.0f} "
                f"| {said.claim_p50_ms:,.1f} ms | {said.claim_p95_ms:,.1f} ms | {said.cores_busy:.0%} |"
            )
    return "\n".join(rows) + "\n"


def put_into_page(made: str) -> None:
    PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")


def in_page(page: str, made: str) -> str:
    return BETWEEN.sub(lambda found: f"{found[1]}{made}{found[2]}", page)
