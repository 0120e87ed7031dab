"""Figures: an owner's waiting items, the results of the last jobs, busy providers, live workers."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.breaker import BreakerState
from backstay.server import etags
from backstay.server.api.providers import shown_breakers
from backstay.server.auth import Admin, Reader
from backstay.server.service import Serving
from backstay.server.shapes import PROBLEMS, ProviderShape, provider_object
from backstay.store.listing import RECENT_JOBS

router = APIRouter(prefix="/api", tags=["stats"], responses=PROBLEMS)


class BacklogShape(BaseModel):
    handler: str
    jobs: int
    items: int = Field(description="not ended yet")
    processing: int
    oldest_at: int


class RecentShape(BaseModel):
    jobs: int
    total: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    repeats: int
    spent_micros: int
    unknown_micros: int


class DeadLetterAlarm(BaseModel):
    """Whether more items of all owners failed permanently in the last 24 hours than the alarm allows."""

    alarm: int
    raised: bool


class StatsShape(BaseModel):
    now: int
    backlog: list[BacklogShape]
    recent: RecentShape = Field(description=f"of the last {RECENT_JOBS} jobs")
    workers: int = Field(description="that are alive")
    dead_letters: DeadLetterAlarm
    held: list[ProviderShape] = Field(description="providers that are not called now; their jobs resume by themselves")


class WorkerShape(BaseModel):
    id: str
    host: str
    pid: int
    handlers: list[str]
    started_at: int
    seen_at: int
    stopped_at: int | None
    alive: bool


class WorkersShape(BaseModel):
    data: list[WorkerShape]


@router.get("/stats", response_model=StatsShape)
async def show_stats(who: Reader, service: Serving) -> Response:
    """Reads only counters: the request costs the same for any number of items."""
    store, listing = service.store, service.store.listing
    breakers, now = await shown_breakers(service, who)
    lease_ms, alarm = service.backstay.limits.lease_ms, service.backstay.settings.dead_letter_alarm
    said = {
        "now": now,
        "backlog": [one._asdict() for one in await listing.backlog(who.owner)],
        "recent": (await listing.recent(who.owner))._asdict(),
        "workers": sum(worker.alive(lease_ms) for worker in await store.views.workers()),
        "dead_letters": {"alarm": alarm, "raised": (await store.alarms.failures()).letters > alarm},
        "held": [provider_object(one) for one in breakers.values() if one.state is not BreakerState.CLOSED],
    }
    return Response(to_json(said), media_type=etags.JSON)


@router.get("/workers", response_model=WorkersShape)
async def list_workers(who: Admin, service: Serving) -> Response:
    """Lists the workers of all owners that were seen last."""
    lease_ms = service.backstay.limits.lease_ms
    shown = [name for name in WorkerShape.model_fields if name != "alive"]
    workers = await service.store.views.workers()
    data = [{**{n: getattr(one, n) for n in shown}, "alive": one.alive(lease_ms)} for one in workers]
    return Response(to_json({"data": data}), media_type=etags.JSON)
