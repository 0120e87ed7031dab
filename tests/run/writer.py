"""A run that only writes its files, to be killed: `python -m tests.run.writer OUT LIFE SEED`.

What the database would hold is worked out from the position and the number of the life. As if a person retried them,
some failures of one life are under way or successes in a later one.
"""

import asyncio
import random
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator

from backstay.run.output import ResultFiles
from backstay.run.result_file import EndedRequest
from tests.run.results import JOB, apart, bad, good

ITEMS = 6_000
LATER_MIN = 20
MENDED_LIFE = 40  # by then every failure that can be mended is


def ended(position: int, life: int) -> EndedRequest | None:
    """None: not yet, or not at the moment."""
    if position * MENDED_LIFE > ITEMS * (life + 1):
        return None
    copies = [f"twin-{position}-{n}" for n in range(position % 3)] if position % 10 == 3 else []
    if position % 7 == 0 and position % 14 == 0:
        return bad(position, *copies, message="x" * (position % 2_000))
    if position % 7 == 0 and life < position % MENDED_LIFE:
        return None if life % 4 == 2 else bad(position, *copies)  # or it was retried and is under way
    return good(position, *copies, words="y" * (position * 37 % 10_000))


def all_ended(life: int) -> Iterator[EndedRequest]:
    return (row for row in (ended(position, life) for position in range(ITEMS)) if row is not None)


async def failures(life: int) -> AsyncIterator[EndedRequest]:
    for row in all_ended(life):
        if not row.ok:
            yield row


def in_order(life: int) -> Iterator[EndedRequest]:
    """Copies stand some way behind their items."""
    later: deque[EndedRequest] = deque()
    for row in all_ended(life):
        item, *copies = apart(row)
        yield item
        later.extend(copies)
        if len(later) > LATER_MIN:
            yield later.popleft()
    yield from later


async def streamed(rows: Iterator[EndedRequest]) -> AsyncIterator[EndedRequest]:
    for row in rows:
        yield row


def write(out: str, life: int, seed: int) -> None:
    chance = random.Random(seed)
    with ResultFiles(out, JOB) as files:
        asyncio.run(files.renew_errors(failures(life)))
        rows = [row for row in all_ended(life) if files.lacks_line(row.position)]
        chance.shuffle(rows)
        while rows:
            count = chance.randint(1, 60)
            files.write(rows[:count])
            del rows[:count]
        while life < MENDED_LIFE:  # until it is killed
            asyncio.run(files.rewrite_in_order(streamed(in_order(life))))
        asyncio.run(files.rewrite_in_order(streamed(in_order(life))))


if __name__ == "__main__":
    print("started", flush=True)
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
