"""What failed is queued afresh: counted first, at a pace that a person chooses, and on even when he has left."""

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

PATIENCE_SECONDS: Final = 5.0  # for which a form waits for what it began; then it goes on by itself
PACE: Final = Field("rate", "How many a second", "Empty: all at once. Slow ones come back within 7 days.")


async def would_replay(visit: Visit, wanted: LetterFilter) -> Replayed:
    return await visit.service.store.replays.replay(visit.owner, wanted, None)


async def replayed(visit: Visit, wanted: LetterFilter, rate: float | None) -> Replayed | None:
    """None when there is so much that it goes on by itself."""
    counted_before = whole_number(visit.form.get("expected", ""), REPLAY_ITEMS_MAX + CHUNK_ITEMS)
    by = By(visit.principal.key_id or visit.owner, rate, counted_before)
    done = await begun(visit, visit.service.store.replays.replay(visit.owner, wanted, by))
    await wake(visit)
    return done


async def begun(visit: Visit, work: Coroutine[Any, Any, T]) -> T | None:
    """What comes of some work, if it does not take long; else it is done behind the back of whoever asked for it."""
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
        raise Problem(422, f"the pace must be {span} items a second", hint="leave it empty for all at once")
    return rate


def replay_sentences(found: Replayed) -> list[str]:
    if not found.items:
        return ["Nothing failed that can be retried: it was retried already, or its sources are gone."]
    more = " There are more; they come after these." if found.more else ""
    return [
        f"{counted(found.items, 'failed item')} will be queued afresh, with all their attempts before them.{more}",
        "Each may be sent to the provider, and paid, again. What has lost its source is left out.",
    ]


def replayed_sentence(done: Replayed | None) -> str:
    if done is None:
        return "They are being queued afresh; the list of replays says how far it is."
    if not done.items:
        return "Nothing was retried: nothing failed that can be."
    more = " There are more: do it again." if done.more else ""
    return f"{counted(done.items, 'item')} queued afresh.{more}"
