"""Profiles of limits, and the worst case that a configuration allows in one hour of ticks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from backstay.core.errors import UsageError
from backstay.core.limits import Limits
from backstay.core.retry import NAMED, RETRY_AFTER_CAP_MS

PROFILES: Final[Mapping[str, Limits]] = MappingProxyType(
    {
        "conservative": Limits(
            item_timeout_seconds=3_600,
            job_timeout_seconds=86_400,
            llm_item_timeout_seconds=172_800,
            llm_job_timeout_seconds=259_200,
            chain_depth_max=1,
            call_retries_max=3,
        ),
        "balanced": Limits(),
        "aggressive": Limits(
            item_timeout_seconds=14_400,
            job_timeout_seconds=345_600,
            llm_item_timeout_seconds=1_209_600,
            llm_job_timeout_seconds=2_592_000,
            chain_depth_max=5,
            call_retries_max=10,
        ),
    }
)


def profile_named(name: str) -> Limits:
    limits = PROFILES.get(name)
    if limits is None:
        raise UsageError(f"there is no profile {name!r}; choose from {', '.join(PROFILES)}")
    return limits


# Between two tries of an item: the longest wait that a provider may ask for, or that a built-in policy has.
WAIT_SECONDS_MAX = max(RETRY_AFTER_CAP_MS, *(policy.delay_ms_max for policy in NAMED.values())) / 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Counts per hour, and how long jobs and items live at most; a cost of None is unknown, not 0."""

    triggers: int
    invocations: int
    items: int
    calls: int
    retries: int
    compute_minutes: int
    cost_micros: int | None
    item_life_seconds: float  # of an item that is tried; one that is never tried ends with its job
    job_life_seconds: float
    llm_item_life_seconds: float  # the same for LLM requests: runs and batches
    llm_job_life_seconds: float


def bounds(limits: Limits) -> Bounds:
    triggers = math.ceil(3_600 / limits.tick_interval_seconds)
    # A chain of depth d runs at the depths 0 to d, and r retries are r + 1 calls. Even without retries they are two: an
    # item may be looked up and sent in one turn, or polled and cancelled.
    invocations = triggers * (limits.chain_depth_max + 1)
    items = invocations * limits.tick_items_max
    retries = items * max(limits.call_retries_max, 1)
    calls = items + retries
    price = limits.cost_per_call_micros
    return Bounds(
        triggers=triggers,
        invocations=invocations,
        items=items,
        calls=calls,
        retries=retries,
        compute_minutes=math.ceil(invocations * limits.invocation_seconds / 60),
        cost_micros=None if price is None else calls * price,
        item_life_seconds=_item_life(limits, limits.item_timeout_seconds, limits.job_timeout_seconds),
        job_life_seconds=_job_life(limits, limits.job_timeout_seconds),
        llm_item_life_seconds=_item_life(limits, limits.llm_item_timeout_seconds, limits.llm_job_timeout_seconds),
        llm_job_life_seconds=_job_life(limits, limits.llm_job_timeout_seconds),
    )


def _job_life(limits: Limits, timeout_seconds: float) -> float:
    # The limit is checked when an invocation starts, at worst one whole interval after it has passed; and that
    # invocation ends the job's remaining items.
    return timeout_seconds + limits.tick_interval_seconds + limits.invocation_seconds


def _item_life(limits: Limits, timeout_seconds: float, job_timeout_seconds: float) -> float:
    # An item is timed out after one more try or poll. At worst its wait for that begins just before its time is over,
    # and the try or poll comes at the end of the first invocation after the wait.
    wait = max(WAIT_SECONDS_MAX, limits.poll_interval_seconds)
    life = timeout_seconds + wait + limits.tick_interval_seconds + limits.invocation_seconds
    return min(life, _job_life(limits, job_timeout_seconds))
