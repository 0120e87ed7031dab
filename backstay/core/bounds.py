"""The worst case that a configuration allows in one hour of ticks, so that nobody learns it from a bill."""

import math
from dataclasses import dataclass

from backstay.core.limits import Limits


@dataclass(frozen=True, slots=True)
class Bounds:
    """Counts per hour, and the longest lives; a cost of None is unknown, which is not the same as 0."""

    triggers: int
    invocations: int
    items: int
    calls: int
    retries: int
    compute_minutes: int
    cost_micros: int | None
    item_life_seconds: float
    job_life_seconds: float


def bounds(limits: Limits) -> Bounds:
    triggers = math.ceil(3_600 / limits.tick_interval_seconds)
    # A chain of depth d runs at the depths 0 to d, and r retries are r + 1 calls.
    invocations = triggers * (limits.chain_depth_max + 1)
    items = invocations * limits.tick_items_max
    retries = items * limits.call_retries_max
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
        item_life_seconds=_item_life_seconds(limits),
        job_life_seconds=_job_life_seconds(limits),
    )


def _job_life_seconds(limits: Limits) -> float:
    # The limit is looked at when an invocation starts: at worst one whole interval after it has passed.
    return limits.job_timeout_seconds + limits.tick_interval_seconds


def _item_life_seconds(limits: Limits) -> float:
    # An item is timed out after its poll, at worst at the end of the first invocation after its time.
    # An item that is never polled again ends with its job.
    life = limits.item_timeout_seconds + limits.tick_interval_seconds + limits.invocation_seconds
    return min(life, _job_life_seconds(limits))
