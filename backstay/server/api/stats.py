"""Figures: waiting items, the results of the last jobs, busy providers, live workers; alarms; health."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.alarms import WORDING, Alarm
from backstay.core.breaker import BreakerState
from backstay.core.errors import BackstayError
from backstay.server.api.providers import visible_breakers
from backstay.server.auth import Admin, Operator, Reader
from backstay.server.service import Serving
from backstay.server.shapes import JSON, PROBLEMS, ProviderShape, provider_object
from backstay.store.alarms import AlarmStanding
from backstay.store.job_views import RECENT_JOBS

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
    store = service.store
    breakers, now = await visible_breakers(service, who)
    lease_ms, alarm = service.backstay.limits.lease_ms, service.backstay.settings.dead_letter_alarm
    said = {
        "now": now,
        "backlog": [one._asdict() for one in await store.job_views.backlog(who.owner)],
        "recent": (await store.job_views.recent(who.owner))._asdict(),
        "workers": sum(worker.alive(lease_ms) for worker in await store.workers.page()),
        "dead_letters": {"alarm": alarm, "raised": (await store.alarms.failures()).letters > alarm},
        "held": [provider_object(one) for one in breakers.values() if one.state is not BreakerState.CLOSED],
    }
    return Response(to_json(said), media_type=JSON)


@router.get("/workers", response_model=WorkersShape)
async def list_workers(who: Admin, service: Serving) -> Response:
    """Lists the workers of all owners that were seen last."""
    lease_ms = service.backstay.limits.lease_ms
    shown = [name for name in WorkerShape.model_fields if name != "alive"]
    workers = await service.store.workers.page()
    data = [{**{n: getattr(one, n) for n in shown}, "alive": one.alive(lease_ms)} for one in workers]
    return Response(to_json({"data": data}), media_type=JSON)


alarms_router = APIRouter(prefix="/api/alarms", tags=["alarms"], responses=PROBLEMS)


class AlarmShape(BaseModel):
    id: Alarm
    raised: bool
    value: int = Field(description="the last reading; shares are in percent, ages in seconds")
    bound: int = Field(description="the alarm is raised above this value")
    raised_at: int
    cleared_at: int | None
    text: str
    advice: str


class AlarmsShape(BaseModel):
    data: list[AlarmShape]


@alarms_router.get("", response_model=AlarmsShape)
async def list_alarms(who: Operator, service: Serving) -> Response:
    """Lists raised alarms first, then past ones. Alarms that were never raised are not listed."""
    data = [_alarm_object(standing) for standing in await service.store.alarms.all_known()]
    return Response(to_json({"data": data}), media_type=JSON)


def _alarm_object(standing: AlarmStanding) -> dict[str, object]:
    reading = standing.reading
    return {
        "id": reading.alarm,
        "raised": standing.cleared_at is None,
        "value": reading.value,
        "bound": reading.bound,
        "raised_at": standing.raised_at,
        "cleared_at": standing.cleared_at,
        "text": reading.words,
        "advice": WORDING[reading.alarm].advice,
    }


health_router = APIRouter(tags=["health"])


@health_router.get("/livez", include_in_schema=False)
async def livez() -> dict[str, str]:
    """Checks only that the process answers."""
    return {"status": "ok"}


@health_router.get("/readyz", include_in_schema=False)
async def readyz(request: Request, service: Serving) -> JSONResponse:
    checks: dict[str, str] = {}
    verbose = request.query_params.get("verbose", "0").lower() not in (
        "0",
        "false",
    )  # `?verbose` alone is a yes
    try:
        await service.store.providers.holds()
        checks["database"] = "ok"
    except BackstayError as error:
        checks["database"] = type(error).__name__
    ready = set(checks.values()) == {"ok"}
    if verbose and service.shared is not None:  # without Redis the service is slower, but ready
        checks["redis"] = "ok" if await service.shared.ask(lambda redis: redis.ping()) else "does not answer"
    said: dict[str, Any] = {"status": "ok" if ready else "not ready", **({"checks": checks} if verbose else {})}
    return JSONResponse(said, 200 if ready else 503)
