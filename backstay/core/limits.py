"""Every bound of the system by name, with its unit last; the defaults are the balanced profile."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from backstay.core.errors import UsageError

_DAYS_MAX_SECONDS: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one installation; impossible ones are refused with a sentence that names the field."""

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
    batch_lag_seconds: float = (
        900  # the same for batches that a provider gives no name, so that only its list shows them
    )
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
        # A lease must outlive the beat that extends it, and the time in which nothing may be sent any more.
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
        """The time to add to a run's own time until a lost request has surely arrived, or never will."""
        return self.send_guard_seconds + self.visibility_lag_seconds + self.reconcile_margin_seconds


# From, to; a whole number where the field counts things. Zero is allowed where it makes sense.
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
    """How long after a claim the provider reliably shows a submission, or that there was none."""
    return round((run_seconds + limits.around_seconds) * 1_000)


def _require_in_range(name: str, value: object) -> None:
    if name == "cost_per_call_micros" and value is None:
        return
    require_number(name, value, *RANGES[name], whole=not name.endswith("_seconds"))


def require_number(name: str, value: object, low: float, high: float, *, whole: bool) -> None:
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        noun = "a whole number" if whole else "a number"
        raise UsageError(f"{name} must be {noun} from {low:g} to {_plain(high)}, not {value!r}")


def _plain(number: float) -> str:
    return f"{number:.0f}"


def timed_out(created_at: int, now_ms: int, limits: Limits) -> bool:
    """Whether an unfinished item has timed out; the caller checks only after one more poll or try."""
    return now_ms - created_at > round(limits.item_timeout_seconds * 1_000)


def past_deadline(deadline: int | None, now_ms: int) -> bool:
    """Work that ends exactly at the deadline is still in time."""
    return deadline is not None and now_ms > deadline
