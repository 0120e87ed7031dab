"""How a job stands: how far it is, when it will be done at the speed so far, and what it will have cost."""

from typing import NamedTuple

from backstay.core.states import JobState
from backstay.run.meter import RunState, forecast
from backstay.store.views import JobView

NEAR_SHARE = 0.9  # of a budget: then a person should know


class Outlook(NamedTuple):
    """Money in micro-dollars; None is not known."""

    done: int
    left: int
    per_second: float | None
    ready_at: int | None
    forecast_micros: int | None
    is_near_budget: bool


def outlook(job: JobView, now_ms: int) -> Outlook:
    left = max(job.total - job.done, 0)
    per_second = _speed(job, now_ms)
    ready_at = None
    if left and per_second and job.state is JobState.RUNNING and not job.held_by_budget:
        ready_at = now_ms + int(left / per_second * 1_000)
    state = RunState(
        job.total, job.succeeded, job.failed, job.cancelled + job.skipped, spent_micros=job.spent_micros or None
    )
    return Outlook(job.done, left, per_second, ready_at, forecast(state), is_near_budget(job))


def _speed(job: JobView, now_ms: int) -> float | None:
    """Items a second since it was started."""
    if job.started_at is None or not job.done:
        return None
    ended_at = now_ms if job.finished_at is None else job.finished_at
    return job.done / max((ended_at - job.started_at) / 1_000, 1.0)


def is_near_budget(job: JobView) -> bool:
    return job.budget_micros is not None and job.used_micros >= NEAR_SHARE * job.budget_micros
