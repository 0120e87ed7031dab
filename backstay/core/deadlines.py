"""What is late: timeouts counted from creation, and deadlines set at creation.

Neither asks for a state. An item that is not finished is timed by its age alone, so one that hangs in
`submitting` is as late as one that hangs in `queued` or `processing`.
"""

from backstay.core.limits import Limits


def timed_out(created_at: int, now_ms: int, limits: Limits) -> bool:
    """Whether an unfinished item is over its time; the caller asks only after one more poll or try."""
    return now_ms - created_at > round(limits.item_timeout_seconds * 1_000)


def past_deadline(deadline: int | None, now_ms: int) -> bool:
    """At the deadline itself the work is still in time."""
    return deadline is not None and now_ms > deadline
