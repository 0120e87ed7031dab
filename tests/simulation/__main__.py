"""`python -m tests.simulation`: a campaign of seeded worlds, or one of them told line by line."""

import argparse
import sys
import time

from tests.simulation.campaign import PROBES, RARE_PROBES, Campaign, run_on_all_cores
from tests.simulation.exhaustive import FAULTS, every_point
from tests.simulation.plan import KINDS, plan_of
from tests.simulation.world import Failure, digest, run_plan

RARE_FROM_SEEDS = 1_000


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    return range(int(first), int(last)) if colon else range(int(first))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("count", nargs="?", type=_seeds, help="how many seeds, from 0")
    parser.add_argument("--seeds", type=_seeds, help="which seeds, as FROM:TO")
    parser.add_argument("--seed", type=int, help="replay one seed and print its trace")
    parser.add_argument("--exhaustive", action="store_true", help="strike at every suspension point instead")
    return parser.parse_args()


def _replay(seed: int) -> int:
    try:
        trace, said = run_plan(plan_of(seed)), ""
    except Failure as failure:
        trace, said = failure.trace, str(failure).splitlines()[0]
    print("\n".join(trace.lines))
    print(said or f"seed {seed}: every promise held; trace {digest(trace)[:16]}")
    return 1 if said else 0


def _exhaust() -> int:
    for kind in KINDS.values():
        for what in FAULTS:
            try:
                worlds = sum(1 for _ in every_point(kind, what))
            except Failure as failure:
                print(failure, file=sys.stderr)
                return 1
            print(f"{kind.name:20} {what:8} {worlds} points, every promise held", flush=True)
    return 0


def _report(campaign: Campaign, seconds: float) -> int:
    probes = RARE_PROBES if campaign.worlds >= RARE_FROM_SEEDS else PROBES
    for failure in campaign.failures[:3]:
        print(failure, file=sys.stderr)
    for probe in sorted(campaign.probes | dict.fromkeys(probes, 0)):
        print(f"{campaign.probes[probe]:9,}  {probe}")
    missing = campaign.missing(probes)
    for probe in missing:
        print(f"never reached: {probe}", file=sys.stderr)
    print(f"{campaign.worlds:,} worlds, {len(campaign.failures)} broken, in {seconds:.0f} s")
    return 1 if campaign.failures or missing else 0


def main() -> int:
    given = _arguments()
    if given.seed is not None:
        return _replay(given.seed)
    if given.exhaustive:
        return _exhaust()
    started = time.perf_counter()
    campaign = run_on_all_cores(given.seeds or given.count or range(2_000))
    return _report(campaign, time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
