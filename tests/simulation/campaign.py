"""Many worlds, on all cores: what was reached, and the first that broke a promise."""

import os
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.simulation.plan import plan_of
from tests.simulation.world import Failure, digest, run_plan

# Rare situations that a campaign must have reached at least once; one that never is would go unproved.
PROBES = (
    "a late write was refused",
    "a hint came late",
    "a hint came twice",
    "a hint was lost",
    "a job was filled from another",
    "a submit was made again",
    "a lease was lost during a run",
    "a request was found",
    "a request was not found",
    "a request was recognised",
    "a tick ran",
    "a write that was made was made again",
    "breaker closed",
    "breaker half_open",
    "breaker open",
    "cancel by hand",
    "claim_items committed, its answer lost",
    "claim_named committed, its answer lost",
    "extend committed, its answer lost",
    "frozen",
    "killed",
    "past the deadline",
    "pause by hand",
    "poison: 403",
    "poison: 500",
    "poison: hang",
    "poison: kill",
    "poll committed, its answer lost",
    "rescue committed, its answer lost",
    "rescued",
    "resume by hand",
    "retry by hand",
    "settle committed, its answer lost",
    "settled: fallback",
    "settled: repeat",
    "settled: rescued",
    "stopped politely",
    "thawed",
    "the guard refused a late send",
)
RARE_PROBES = (*PROBES, "killed while asking", "killed while polling", "settled: handed_back")
CHUNK_SEEDS = 25


@dataclass
class Campaign:
    worlds: int = 0
    probes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)

    def missing(self, probes: Iterable[str] = PROBES) -> list[str]:
        return [probe for probe in probes if not self.probes[probe]]

    def add(self, other: "Campaign") -> None:
        self.worlds += other.worlds
        self.probes += other.probes
        self.failures += other.failures
        self.digests |= other.digests


def run_seeds(seeds: Iterable[int]) -> Campaign:
    campaign = Campaign()
    for seed in seeds:
        campaign.worlds += 1
        try:
            trace = run_plan(plan_of(seed))
        except Failure as failure:
            campaign.failures.append(str(failure))
        else:
            campaign.probes += trace.probes
            campaign.digests[seed] = digest(trace)
    return campaign


def run_on_all_cores(seeds: range, processes: int | None = None) -> Campaign:
    chunks = [seeds[start : start + CHUNK_SEEDS] for start in range(0, len(seeds), CHUNK_SEEDS)]
    campaign = Campaign()
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        for part in pool.map(run_seeds, chunks):
            campaign.add(part)
    return campaign
