"""Queues failed items again: counted first, at a chosen pace, and continuing after the visitor has left."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from backstay.core.errors import BackstayError
from backstay.core.events import Trouble
from backstay.server.pages.figures import counted
from backstay.server.pages.layout import Field
from backstay.server.pages.page_request import Visit, whole_number
from backstay.server.problems import Problem
from backstay.store.dead_letters import CHUNK_ITEMS, LetterFilter
from backstay.store.replays import RATE_MAX, RATE_MIN, REPLAY_ITEMS_MAX, By, Replayed

T = TypeVar("T")

PATIENCE_SECONDS: Final = 5.0  # how long a form waits for its replay; then it continues in the background
PACE: Final = Field(
    "rate", "Items per second", "Leave empty to queue all at once. A slow replay must finish within 7 days."
)


async def would_replay(visit: Visit, wanted: LetterFilter) -> Replayed:
    return await visit.service.store.replays.replay(visit.owner, wanted, None)


async def replayed(visit: Visit, wanted: LetterFilter, rate: float | None) -> Replayed | None:
    """None if there is so much that it continues in the background."""
    counted_before = whole_number(visit.form.get("expected", ""), REPLAY_ITEMS_MAX + CHUNK_ITEMS)
    by = By(visit.principal.key_id or visit.owner, rate, counted_before)
    done = await begun(visit, visit.service.store.replays.replay(visit.owner, wanted, by))
    await wake(visit)
    return done


async def begun(visit: Visit, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of some work if it is quick; otherwise the work continues after the answer."""
    service = visit.service
    task: asyncio.Task[T] = service.tasks.spawn(work)
    await asyncio.wait([task], timeout=PATIENCE_SECONDS)
    if task.done():
        return task.result()

    def tell(ended: asyncio.Task[T]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if isinstance(error, BackstayError):
            service.backstay.bus.emit(Trouble("dead letters", str(error)))
        elif error is not None:
            raise error
        service.wake()

    task.add_done_callback(tell)
    return None


async def wake(visit: Visit) -> None:
    await visit.service.store.notify()
    visit.service.wake()


def rate_of(form: Mapping[str, str]) -> float | None:
    text = form.get("rate", "").strip().replace(",", ".")
    if not text:
        return None
    try:
        rate = float(text[:20])
    except ValueError:
        rate = 0.0
    if not RATE_MIN <= rate <= RATE_MAX:
        span = f"{RATE_MIN:g} to {RATE_MAX:,g}"
        raise Problem(422, f"the pace must be {span} items per second", hint="leave the field empty for all at once")
    return rate


def replay_sentences(found: Replayed) -> list[str]:
    if not found.items:
        return ["There are no failed items to retry: they were retried already, or their source files are gone."]
    more = " There are more; they follow later." if found.more else ""
    return [
        f"{counted(found.items, 'failed item')} will be queued again; their attempts are reset.{more}",
        "Each item may be sent to the provider and paid again. Items whose source file is gone are skipped.",
    ]


def replayed_sentence(done: Replayed | None) -> str:
    if done is None:
        return "The items are being queued again; the list of replays shows the progress."
    if not done.items:
        return "Nothing was retried: there are no failed items to retry."
    more = " There are more: replay again." if done.more else ""
    return f"{counted(done.items, 'item')} queued again.{more}"
