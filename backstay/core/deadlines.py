"""What is late: timeouts counted from creation, deadlines set at creation, and the time that one run may take.

None of these asks for a state. An item that is not finished is timed by its age alone, so one that hangs in
`submitting` is as late as one that hangs in `queued` or `processing`.
"""

from backstay.core.limits import Limits


def timed_out(created_at: int, now_ms: int, limits: Limits) -> bool:
    """Whether an unfinished item is over its time; the caller asks only after one more poll or try."""
    return now_ms - created_at > _ms(limits.item_timeout_seconds)


def job_timed_out(created_at: int, now_ms: int, limits: Limits) -> bool:
    return now_ms - created_at > _ms(limits.job_timeout_seconds)


def deadline_at(created_at: int, seconds: float | None) -> int | None:
    """The deadline of work promised within so many seconds of its creation; None where nothing was promised."""
    return None if seconds is None else created_at + _ms(seconds)


def past_deadline(deadline: int | None, now_ms: int) -> bool:
    """At the deadline itself the work is still in time."""
    return deadline is not None and now_ms > deadline


def remaining_ms(deadline: int | None, now_ms: int) -> int | None:
    """The time left, never below 0; None is no end."""
    return None if deadline is None else max(0, deadline - now_ms)


def run_budget_ms(deadline: int | None, now_ms: int, limits: Limits) -> int:
    """How long one run of a handler may take: its own limit, or less when the deadline is nearer."""
    limit = _ms(limits.handler_timeout_seconds)
    left = remaining_ms(deadline, now_ms)
    return limit if left is None else min(limit, left)


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
