"""Why a job does not move: for the command, the page and the API alike."""

from typing import TYPE_CHECKING

from backstay.core.reasons import Reason, Standing, why_job_waits
from backstay.core.states import ItemState
from backstay.store.item_story import breaker_of
from backstay.store.views import JobView

if TYPE_CHECKING:
    from backstay.store.store import Store


async def look_at_job(
    store: "Store", job_id: int, owner: str, lease_ms: int, *, shows_words: bool = False
) -> tuple[JobView, list[Reason]]:
    """The job, and what keeps its waiting items from being started. `shows_words`: as for an item."""
    view = await store.views.job(job_id, owner)
    if view.ended or view.done + view.processing >= view.total:
        return view, []
    workers, holds = await store.views.workers(), await store.providers.holds()
    standing = Standing(
        now=holds.now,
        job_id=view.id,
        job_state=view.state,
        stop_reason=view.stop_reason,
        state=ItemState.QUEUED,
        handler=view.handler,
        breaker=breaker_of(holds, view.handler, workers, shows_words),
        job_short=view.held_by_budget,
        live_workers=sum(view.handler in worker.handlers and worker.alive(lease_ms) for worker in workers),
        is_request=view.handler in dict(await store.providers.endpoints(open_only=False)),
    )
    return view, why_job_waits(standing)
