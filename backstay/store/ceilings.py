"""Scripts for the money of a job: its ceiling, the worst that each of its items may cost, and what is unknown of it."""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.core.errors import NotAllowed, NotFound, UsageError
from backstay.core.ids import item_range
from backstay.store.queries import Ask, Script
from backstay.store.rows import record

PAGE_ITEMS = 1_000


def change_budget(job_id: int, owner: str, budget_micros: int | None) -> Script[None]:
    yield Ask("change_budget", {"job_id": job_id, "owner": owner, "budget_micros": budget_micros})


class Verdict(NamedTuple):
    """What a person decides about money of unknown outcome: it was paid, or it was not. `micros`: only this much of it.
    `expected`: the sum that they saw; if it is another by now, nothing changes."""

    paid: bool
    who: str
    micros: int | None = None
    expected: int | None = None


def settle_unknown(job_id: int, owner: str, verdict: Verdict) -> Script[int]:
    """Books it as spent, or gives it back to the ceiling; returns how much it was."""
    rows = yield Ask("unknown_money", {"job_id": job_id, "owner": owner})
    if not rows:
        raise NotFound(f"no job {job_id}")
    seen: int = rows[0]["unknown_micros"]
    if verdict.expected not in (None, seen):
        raise _other_sum(job_id, seen)
    micros = seen if verdict.micros is None else verdict.micros
    if not seen:
        raise NotAllowed(f"job {job_id} has no money of unknown outcome")
    if not 0 < micros <= seen:
        raise UsageError(f"the amount must be above $0 and at most {_dollars(seen)}, not {_dollars(micros)}")
    values = {"job_id": job_id, "owner": owner, "seen": seen, "micros": micros, "booked": micros if verdict.paid else 0}
    if not (yield Ask("settle_unknown", values)):
        raise _other_sum(job_id, None)
    act = "unknown_booked" if verdict.paid else "unknown_released"
    yield Ask("write_events", batch=[(f"job:{job_id}", act, f"{_dollars(micros)} by {verdict.who}")])
    return micros


def _other_sum(job_id: int, seen: int | None) -> NotAllowed:
    now = "" if seen is None else f": it is now {_dollars(seen)}"
    hint = "look at the job again, then decide about the new sum"
    return NotAllowed(f"the unknown sum of job {job_id} has changed{now}", hint=hint)


def _dollars(micros: int) -> str:
    dollars, rest = divmod(micros, 1_000_000)
    return f"${dollars:,}.{rest:06}"


@record
class UnsentItem(NamedTuple):
    """An item that may be sent yet, and the worst that its call may cost, if that is known."""

    id: int
    cost_micros: int | None
    body: str


def unsent(job_id: int, anew: bool, cursor: int) -> Script[list[UnsentItem]]:
    first, after = item_range(job_id)
    values = {"cursor": max(cursor, first - 1), "after": after, "anew": int(anew), "n": PAGE_ITEMS}
    return (yield Ask("unsent_page", values))


def weigh_items(weights: Sequence[tuple[int, int | None]]) -> Script[None]:
    yield Ask("weigh_items", batch=weights)


def next_cost(job_id: int) -> Script[int | None]:
    first, after = item_range(job_id)
    rows = yield Ask("next_cost", {"first": first, "after": after})
    return rows[0]["cost_micros"] if rows else None
