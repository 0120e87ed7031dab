"""A command of Backstay that says where it is and stands still there for good: `POINT COMMAND…`.

claimed: a claim of named items is committed; nothing of it was sent, and no message acknowledged. All stands still.
unacknowledged: it goes on to do what it has claimed, and never acknowledges a message.
published: the broker has confirmed messages of the outbox, and none is marked. All stands still.
"""

import asyncio
import sys
import threading
from collections.abc import Collection, Iterable, Sequence

from backstay.cli.main import main
from backstay.engine import engine, hints
from backstay.messaging.broker_session import Consumer
from backstay.messaging.queues import MessageDelivery
from backstay.store.databases.database import Front
from backstay.store.outbox import Outbox


def say(point: str) -> None:
    print(f"stands still: {point}", file=sys.stderr, flush=True)


def done(self: Consumer, ids: Iterable[int], missed: Collection[int] = ()) -> None:
    if list(ids):
        say("claimed")
        threading.Event().wait()


async def ack(self: MessageDelivery) -> None:
    say("unacknowledged")
    await asyncio.Event().wait()


async def published(self: Outbox, ids: Sequence[int]) -> None:
    if ids:  # else nothing was confirmed, and it tries again
        say("published")
        threading.Event().wait()


class NamedFirst(hints.Turns):
    """The database's order has a turn only before the broker is there: whatever is claimed after that was named."""

    def __init__(self, hints: hints.Hints) -> None:
        super().__init__(hints)
        self.database_at = float("inf")

    def note_database_turn(self, now: float, more: bool) -> None:
        self.database_more = False


if __name__ == "__main__":
    engine.Turns = NamedFirst  # type: ignore[attr-defined]
    Front.again_ms = None  # type: ignore[assignment]  # nor has it a turn because a look did not start at the head
    point = sys.argv.pop(1)
    if point == "claimed":
        Consumer.mark_done = done  # type: ignore[method-assign]
    elif point == "unacknowledged":
        MessageDelivery.ack = ack  # type: ignore[method-assign]
    elif point == "published":
        Outbox.mark_published = published  # type: ignore[method-assign]
    else:
        raise SystemExit(f"no such point: {point}")
    main()
