"""What is late: timeouts counted from creation, and deadlines set at creation.

Neither depends on the state. Only the age of an unfinished item counts, so one that hangs in
`submitting` is as late as one that hangs in `queued` or `processing`.
"""

from backstay.core.limits import Limits


def timed_out(created_at: int, now_ms: int, limits: Limits) -> bool:
    """Whether an unfinished item has timed out; the caller checks only after one more poll or try."""
    return now_ms - created_at > round(limits.item_timeout_seconds * 1_000)


def past_deadline(deadline: int | None, now_ms: int) -> bool:
    """Work that ends exactly at the deadline is still in time."""
    return deadline is not None and now_ms > deadline
