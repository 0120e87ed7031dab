"""The script that says what the items of a job wait for while none of them is being sent."""

from typing import NamedTuple

from backstay.core.ids import item_range
from backstay.store.queries import Ask, Script
from backstay.store.rows import record

STRANGERS_MAX = 1_000


@record
class Waiting(NamedTuple):
    """Times are the database's."""

    now: int
    resume_at: int | None  # the end of a pause that the provider asked for
    due_at: int | None  # the next try of an item
    lost: int  # items whose sender is gone, and that are looked up
    ask_at: int | None  # when the first of those is
    strangers: int  # tasks that are due and belong to another account; no more than so many are looked at


def waiting(job_id: int, handler: str, account: str, paces: tuple[str, str]) -> Script[Waiting]:
    first, after = item_range(job_id)
    values = {"first": first, "after": after, "handler": handler, "account": account, "n": STRANGERS_MAX}
    paced, paced_then = paces
    [found] = yield Ask("waiting", {**values, "paced": paced, "paced_then": paced_then})
    return found  # type: ignore[no-any-return]
