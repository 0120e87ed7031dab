"""Scripts for the money of a job: its ceiling, and the worst that each of its items may cost."""

from collections.abc import Sequence

from backstay.core.ids import item_range
from backstay.store.queries import Ask, Script

PAGE_ITEMS = 1_000


def change_budget(job_id: int, owner: str, budget_micros: int | None) -> Script[None]:
    yield Ask("change_budget", {"job_id": job_id, "owner": owner, "budget_micros": budget_micros})


def unsent(job_id: int, anew: bool, cursor: int) -> Script[list[tuple[int, int | None, str]]]:
    first, after = item_range(job_id)
    values = {"cursor": max(cursor, first - 1), "after": after, "anew": int(anew), "n": PAGE_ITEMS}
    return [(row[0], row[1], row[2]) for row in (yield Ask("unsent_page", values))]


def weigh_items(weights: Sequence[tuple[int, int | None]]) -> Script[None]:
    yield Ask("weigh_items", batch=weights)


def next_cost(job_id: int) -> Script[int | None]:
    first, after = item_range(job_id)
    rows = yield Ask("next_cost", {"first": first, "after": after})
    return rows[0][0] if rows else None
