"""Every limit of the engine by name, with its unit last; profiles of limits; and the worst case that they allow in one
hour of ticks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from backstay.core.errors import UsageError
from backstay.core.failures import NAMED, RETRY_AFTER_CAP_MS

_DAYS_MAX_SECONDS: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one installation; the defaults are the balanced profile. Impossible values raise an error that
    names the field."""

    item_timeout_seconds: float = 7_200
    job_timeout_seconds: float = 172_800
    llm_item_timeout_seconds: float = 604_800  # a provider's batch may take a day, and may have to be repeated
    llm_job_timeout_seconds: float = 1_209_600
    call_timeout_seconds: float = 60
    call_retries_max: int = 6
    invocation_seconds: float = 600
    handler_timeout_seconds: float = 300
    lease_seconds: float = 90
    heartbeat_seconds: float = 30
    submitting_seconds: float = 300
    claim_items_max: int = 1_000
    tick_items_max: int = 1_000
    tick_concurrency: int = 25
    tick_interval_seconds: float = 300
    chain_depth_max: int = 2
    worker_concurrency: int = 100
    send_guard_seconds: float = 10
    visibility_lag_seconds: float = 10
    batch_lag_seconds: float = 900  # the same for batches without a name of ours: only the provider's list shows them
    reconcile_margin_seconds: float = 10
    poll_interval_seconds: float = 5
    shutdown_seconds: float = 30
    cancel_grace_seconds: float = 600  # for calls under way when their job is cancelled, or past their deadline
    late_result_seconds: float = 86_400  # for tasks at the provider whose items have run out of time
    fallback_after_seconds: float = 60  # for a provider that fails or refuses, before requests go to the next one
    rescues_max: int = 5
    cost_per_call_micros: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            _require_in_range(field.name, getattr(self, field.name))
        if self.around_seconds >= self.submitting_seconds:
            raise UsageError(
                f"submitting_seconds must be above the sum of send guard, visibility lag and margin"
                f" ({self.around_seconds:g}), not {self.submitting_seconds:g}"
            )
        # A lease must be longer than the pause between two extensions, and longer than the send guard.
        for name, value in (
            ("heartbeat_seconds", self.heartbeat_seconds),
            ("send_guard_seconds", self.send_guard_seconds),
        ):
            if value >= self.lease_seconds:
                raise UsageError(f"{name} must be below lease_seconds ({self.lease_seconds:g}), not {value:g}")

    @property
    def lease_ms(self) -> int:
        return int(self.lease_seconds * 1000)

    @property
    def around_seconds(self) -> float:
        """After the time of a run and this time, a lost request has arrived at the provider, or never will."""
        return self.send_guard_seconds + self.visibility_lag_seconds + self.reconcile_margin_seconds


# The lowest and the highest value; a whole number unless the name ends in _seconds.
RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "item_timeout_seconds": (1, _DAYS_MAX_SECONDS),
        "job_timeout_seconds": (1, _DAYS_MAX_SECONDS),
        "llm_item_timeout_seconds": (1, _DAYS_MAX_SECONDS),
        "llm_job_timeout_seconds": (1, _DAYS_MAX_SECONDS),
        "call_timeout_seconds": (0.001, 86_400),
        "call_retries_max": (0, 100),
        "invocation_seconds": (1, 86_400),
        "handler_timeout_seconds": (0.001, _DAYS_MAX_SECONDS),
        "lease_seconds": (0.1, 86_400),
        "heartbeat_seconds": (0.01, 86_400),
        "submitting_seconds": (0.1, 86_400),
        "claim_items_max": (1, 100_000),
        "tick_items_max": (1, 1_000_000),
        "tick_concurrency": (1, 10_000),
        "tick_interval_seconds": (1, 86_400),
        "chain_depth_max": (0, 100),
        "worker_concurrency": (1, 10_000),
        "send_guard_seconds": (0, 3_600),
        "visibility_lag_seconds": (0, 86_400),
        "batch_lag_seconds": (0, 86_400),
        "reconcile_margin_seconds": (0, 86_400),
        "poll_interval_seconds": (0.01, 86_400),
        "shutdown_seconds": (0, 86_400),
        "cancel_grace_seconds": (0, 86_400),
        "late_result_seconds": (0, _DAYS_MAX_SECONDS),
        "fallback_after_seconds": (0, 86_400),
        "rescues_max": (0, 1_000),
        "cost_per_call_micros": (0, 1_000_000_000_000),
    }
)


def reconcile_after_ms(limits: Limits, run_seconds: float) -> int:
    """How long after a claim the provider can say for certain whether it received the request."""
    return round((run_seconds + limits.around_seconds) * 1_000)


def _require_in_range(name: str, value: object) -> None:
    if name == "cost_per_call_micros" and value is None:
        return
    require_number(name, value, *RANGES[name], whole=not name.endswith("_seconds"))


def require_number(name: str, value: object, low: float, high: float, *, whole: bool) -> None:
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        noun = "a whole number" if whole else "a number"
        raise UsageError(f"{name} must be {noun} from {low:g} to {high:.0f}, not {value!r}")


def has_timed_out(created_at: int, now_ms: int, limits: Limits) -> bool:
    """Whether an unfinished item has timed out. Callers ask only after one more poll or try."""
    return now_ms - created_at > round(limits.item_timeout_seconds * 1_000)


def is_past_deadline(deadline: int | None, now_ms: int) -> bool:
    """Work that ends exactly at the deadline is still in time."""
    return deadline is not None and now_ms > deadline


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
    """The most that can happen in an hour, and the longest life of jobs and items; a cost of None is unknown, not 0."""

    triggers: int
    invocations: int
    items: int
    calls: int
    retries: int
    compute_minutes: int
    cost_micros: int | None
    item_life_seconds: float  # of an item that is tried; an item that is never tried ends with its job
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
