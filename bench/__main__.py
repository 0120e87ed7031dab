"""The command: bash bench/run [--only NAME] [--quick] [--repeat N]."""

from __future__ import annotations

import argparse
import sys

from bench import report
from bench.measure import measure_all
from bench.probes import PROBES
from bench.rows import ROWS, Row

PEERS = "peers"


def arguments() -> argparse.Namespace:
    names = [PEERS, *(row.name for row in ROWS), *PROBES]
    parser = argparse.ArgumentParser(prog="bench/run", description=sys.modules[__name__].__doc__)
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="a row, a probe, or 'peers' for all peers without Backstay; may be given again: " + ", ".join(names),
    )
    parser.add_argument("--quick", action="store_true", help="fewer items: a try of the harness, not a measurement")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="take the median of N (3)")
    given = parser.parse_args()
    if unknown := [name for name in given.only if name not in names]:
        parser.error(f"unknown name {unknown[0]!r}; one of: {', '.join(names)}")
    return given


def chosen_probes(only: list[str]) -> list[str]:
    wanted = {name for name in only if name in PROBES}
    wanted |= {probe for row in ROWS if not only or row.name in only for probe in row.probes()}
    if PEERS in only:
        wanted |= {name for name, probe in PROBES.items() if not probe.ours}
    return [name for name in PROBES if name in wanted]


def chosen_rows(probes: list[str]) -> list[Row]:
    return [row for row in ROWS if any(probe in probes for probe in row.probes())]


def main() -> int:
    given = arguments()
    probes = chosen_probes(given.only)
    conditions = {"quick": given.quick, "repeat": given.repeat, **report.machine()}
    print("bench:", ", ".join(f"{key} {value}" for key, value in conditions.items()), file=sys.stderr)
    results = measure_all(probes, given.quick, given.repeat)
    lines = [report.line(row, bar, results) for row in chosen_rows(probes) for bar in row.bars]
    print(report.table(lines))
    report.write(lines, results, conditions)
    return 1 if any(each.verdict == "SHORT" for each in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
