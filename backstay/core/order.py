"""The order in which ready items are taken: one number, set at submit, that the claim's index is sorted by.

An item's key is its job's time of submit, less a head start for priority, plus a step for each item before it in its
job. So a high priority overtakes, an old low one is never starved (every hour of waiting makes up for one level), and
ten items do not wait behind the million submitted before them: only behind as many of those as jobs have had turns.
"""

HEAD_START_MS = 3_600_000
STEP_MS = 1_000


def order_key(submitted_at: int, priority: int, position: int) -> int:
    return submitted_at - priority * HEAD_START_MS + position * STEP_MS
