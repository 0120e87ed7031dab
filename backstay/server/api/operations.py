"""What operators look at.

Figures: waiting items, the results of the last jobs, busy providers, live workers; alarms; health.

Providers: their breakers, and holding and releasing them. All owners share them, so only an operator may act.

Schedules: list, pause, resume, run now.
"""

import json
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.app import run_now
from backstay.core.alarms import WORDING, Alarm
from backstay.core.breaker import Breaker, BreakerState, hide_reason
from backstay.core.errors import BackstayError
from backstay.core.failures import one_line
from backstay.core.models import NAME_CHARACTERS_MAX, MissedPolicy
from backstay.server.auth import Admin, Operator, Principal, Reader, Writer, operates
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving
from backstay.server.shapes import (
    JSON,
    PAGE_DEFAULT,
    PROBLEMS,
    JobShape,
    Limit,
    ProviderShape,
    Strict,
    job_bytes,
    provider_object,
)
from backstay.store.alarms import AlarmStanding
from backstay.store.job_views import RECENT_JOBS
from backstay.store.schedules import Schedule

providers_router = APIRouter(prefix="/api/providers", tags=["providers"], responses=PROBLEMS)

HOLD_SECONDS_MAX: Final = 366 * 86_400
ProviderName = Annotated[str, Path(min_length=1, max_length=300)]


class ProvidersShape(BaseModel):
    data: list[ProviderShape]
    now: int


class HoldShape(Strict):
    reason: str = Field(default="an operator asked for it", max_length=1_000)
    seconds: float | None = Field(
        default=None, gt=0, le=HOLD_SECONDS_MAX, description="without it, until it is released"
    )


@providers_router.get("", response_model=ProvidersShape)
async def list_providers(who: Reader, service: Serving) -> Response:
    """Lists the providers that workers use or that are on hold, with their circuit breakers."""
    breakers, now = await known_breakers(service, who)
    data = [provider_object(breakers[name]) for name in sorted(breakers)]
    return Response(to_json({"data": data, "now": now}), media_type=JSON)


@providers_router.get("/{provider}", response_model=ProviderShape)
async def show_provider(who: Reader, service: Serving, provider: ProviderName) -> Response:
    return _answer_provider(await known_provider(service, who, provider))


@providers_router.post("/{provider}/hold", response_model=ProviderShape)
async def hold_provider(
    who: Operator, service: Serving, provider: ProviderName, given: HoldShape | None = None
) -> Response:
    """Stops sending to the provider: its items stay queued and lose no attempt."""
    given = given or HoldShape()
    await known_provider(service, who, provider)
    change = await service.store.providers.hold(provider, one_line(given.reason), given.seconds)
    return _answer_provider(change.after)


@providers_router.post("/{provider}/release", response_model=ProviderShape)
async def release_provider(who: Operator, service: Serving, provider: ProviderName) -> Response:
    """Closes the provider's circuit breaker, or ends its hold: its items run again at once."""
    await known_provider(service, who, provider)
    change = await service.store.providers.release(provider)
    await service.store.notify()
    service.wake()
    return _answer_provider(change.after)


async def visible_breakers(service: Service, who: Principal) -> tuple[dict[str, Breaker], int]:
    """The breakers of providers that were ever called or held, and the time now. Reasons are for operators only."""
    holds = await service.store.providers.holds()
    if operates(who, service):
        return holds.providers, holds.now
    return {name: hide_reason(breaker) for name, breaker in holds.providers.items()}, holds.now


async def known_breakers(service: Service, who: Principal) -> tuple[dict[str, Breaker], int]:
    """The same for all providers, including those that were never called."""
    observed, now = await visible_breakers(service, who)
    told = {name for worker in await service.store.workers.page() for name in worker.providers.values()}
    told |= {handler.provider for handler in service.backstay.handlers}
    return {name: Breaker(name) for name in told} | observed, now


async def known_provider(service: Service, who: Principal, provider: str) -> Breaker:
    found = (await known_breakers(service, who))[0].get(provider)
    if found is None:
        detail, hint = f"no provider {one_line(provider)[:100]}", "GET /api/providers lists the providers"
        raise Problem(404, detail, hint=hint, is_for_programs=True)
    return found


def _answer_provider(breaker: Breaker) -> Response:
    return Response(to_json(provider_object(breaker)), media_type=JSON)


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


schedules_router = APIRouter(prefix="/api/schedules", tags=["schedules"], responses=PROBLEMS)

ScheduleName = Annotated[str, Path(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00]*$")]
After = Annotated[
    str, Query(max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00]*$", description="only names after this one")
]


class ScheduleShape(BaseModel):
    """All moments are milliseconds since 1970, UTC."""

    name: str
    handler: str
    cron: str = Field(examples=["*/5 * * * *"])
    timezone: str = Field(examples=["Europe/Berlin"])
    payload: Any = Field(description="the payload of the items that it submits")
    missed: MissedPolicy = Field(description="which firings are made up for if no worker was running")
    paused_at: int | None
    next_at: int | None = Field(description="the next firing; null while the schedule is paused")
    last_at: int | None = Field(description="the time of the last firing")
    last_job: str | None = Field(description="the job of the last firing")
    error: str | None = Field(description="why the schedule could not fire")
    error_at: int | None
    declared_at: int | None = Field(description="when a program with this schedule in its code last started")
    created_at: int


class SchedulesShape(BaseModel):
    data: list[ScheduleShape]
    has_more: bool = Field(description="there are more: ask again with `after` set to the last name")


_FIELDS: Final = tuple(ScheduleShape.model_fields)
_values = attrgetter(*_FIELDS)


def schedule_object(found: Schedule) -> dict[str, Any]:
    last_job = None if found.last_job is None else str(found.last_job)
    plain = dict(zip(_FIELDS, _values(found), strict=True))
    return {**plain, "payload": json.loads(found.payload), "last_job": last_job}


@schedules_router.get("", response_model=SchedulesShape)
async def list_schedules(who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, after: After = "") -> Response:
    """By name."""
    found = await service.store.schedules.page(who.owner, after, limit + 1)
    data = [schedule_object(one) for one in found[:limit]]
    return Response(to_json({"data": data, "has_more": len(found) > limit}), media_type=JSON)


@schedules_router.post("/{schedule}/pause", response_model=ScheduleShape)
async def pause_schedule(who: Writer, service: Serving, schedule: ScheduleName) -> Response:
    """Fires no more until it is resumed. The firings in between are left out."""
    return _answer_schedule(await service.store.schedules.pause(schedule, who.owner))


@schedules_router.post("/{schedule}/resume", response_model=ScheduleShape)
async def resume_schedule(who: Writer, service: Serving, schedule: ScheduleName) -> Response:
    return _answer_schedule(await service.store.schedules.resume(schedule, who.owner))


@schedules_router.post("/{schedule}/run", status_code=201, response_model=JobShape)
async def run_schedule(who: Writer, service: Serving, schedule: ScheduleName) -> Response:
    """Submits one job now, as a firing would. The next firing stays as it is."""
    job = await run_now(service.client(who.owner), service.backstay.handlers, schedule, service.wake)
    headers = {"location": f"/api/jobs/{job.id}"}
    return Response(job_bytes(await job.show()), 201, headers=headers, media_type=JSON)


def _answer_schedule(found: Schedule) -> Response:
    return Response(to_json(schedule_object(found)), media_type=JSON)
