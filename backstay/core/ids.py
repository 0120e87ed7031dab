"""The two numbers of an item: its id, and its order key, which is its place in a queue.

An item's id is its job's id and its position in one integer, so a job's items are one range of the primary key.

Ready items are taken in the order of their order keys. The key is set at submit, and the claim's index is sorted by it.

The high bits of the key are the priority, so a higher priority goes first; some claims start at a lower priority, so
that no priority is starved. The low bits are a turn. A job starts at the turn that its queue has reached, and takes one
turn for each of its items. So jobs of one priority take turns: ten items do not wait behind a million that were
submitted before them, whether those are done fast or slowly. Items that come back (resumed, retried) start at the turn
that the queue has reached by then.
"""

from random import Random
from typing import Final

from backstay.core.errors import UsageError

POSITION_BITS = 28
POSITIONS_MAX = 1 << POSITION_BITS
JOB_IDS_MAX = 1 << 63 - POSITION_BITS  # with an item's position behind it, a job's id must fit into 63 bits


def item_id(job_id: int, position: int) -> int:
    return (job_id << POSITION_BITS) | position


def job_of(item: int) -> int:
    return item >> POSITION_BITS


def position_of(item: int) -> int:
    return item & (POSITIONS_MAX - 1)


def item_range(job_id: int) -> tuple[int, int]:
    """The first id of a job and the first id after it."""
    return job_id << POSITION_BITS, (job_id + 1) << POSITION_BITS


def show_items(number: int) -> str:
    return f"{number:,} item{'' if number == 1 else 's'}"


def show_item(item: int) -> str:
    return f"{job_of(item)}-{position_of(item)}"


def read_item(text: str) -> int:
    job, dash, position = text.partition("-")
    if not (dash and job.isascii() and job.isdigit() and position.isascii() and position.isdigit()):
        raise UsageError(f"{text[:40]!r} is not an item id", hint="an item id is JOB-POSITION, for example 12-345")
    # The length is checked first, because Python refuses to read a number of thousands of digits.
    if len(text) > 40 or int(position) >= POSITIONS_MAX or int(job) >= 1 << (63 - POSITION_BITS):
        raise UsageError(f"{text[:40]!r} is not an item id", hint="the numbers are too large")
    return item_id(int(job), int(position))


PRIORITY_MAX: Final = 9
TURN_BITS: Final = 52
LOW_PRIORITY_SHARE: Final = 20  # one claim in 20 starts at a lower priority


def level_key(priority: int) -> int:
    """Where the turns of a priority begin."""
    return (PRIORITY_MAX - priority) << TURN_BITS


def level_of(order_key: int) -> int:
    """Where the turns of this item's priority begin."""
    return order_key >> TURN_BITS << TURN_BITS


def draw_start(rng: Random) -> int:
    """Where a claim starts: most at the first item in the queue, some at a priority below the highest."""
    return 0 if rng.randrange(LOW_PRIORITY_SHARE) else draw_low_start(rng)


def draw_low_start(rng: Random) -> int:
    """A start at a lower priority, whose items other claims leave behind."""
    return level_key(rng.randrange(PRIORITY_MAX))
