"""An item's id is its job's id and its position in one integer, so a job's items are one range of the primary key."""

from backstay.core.errors import UsageError

POSITION_BITS = 28
POSITIONS_MAX = 1 << POSITION_BITS


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
    # Python itself refuses to read thousands of digits.
    if len(text) > 40 or int(position) >= POSITIONS_MAX or int(job) >= 1 << (63 - POSITION_BITS):
        raise UsageError(f"{text[:40]!r} is not an item id", hint="the numbers are too large")
    return item_id(int(job), int(position))
