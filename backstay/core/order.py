"""The order in which ready items are taken: one number, set at submit, that the claim's index is sorted by.

Its high bits are the priority, so a higher one goes first; some claims start at a lower priority, so that no priority
is starved. Its low bits are a turn. A job starts at the turn that its queue has reached and takes one for each of its
items, so jobs of one priority take turns from then on: ten items do not wait behind a million submitted before them,
however fast or slowly those are done. Items that come back (resumed, retried) start at the turn of that time.
"""

from random import Random
from typing import Final

PRIORITY_MAX: Final = 9
TURN_BITS: Final = 52
LOW_PRIORITY_SHARE: Final = 20  # one claim in so many starts at a lower priority


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
