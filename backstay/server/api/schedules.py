"""Schedules: list, pause, resume, run now."""

import json
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.models import NAME_CHARACTERS_MAX, MissedPolicy
from backstay.schedules import run_now
from backstay.server.auth import Reader, Writer
from backstay.server.cursors import PAGE_DEFAULT, Limit
from backstay.server.service import Serving
from backstay.server.shapes import JSON, PROBLEMS, JobShape, job_bytes
from backstay.store.schedules import Schedule

router = APIRouter(prefix="/api/schedules", tags=["schedules"], responses=PROBLEMS)

Name = Annotated[str, Path(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00]*$")]
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


@router.get("", response_model=SchedulesShape)
async def list_schedules(who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, after: After = "") -> Response:
    """By name."""
    found = await service.store.schedules.page(who.owner, after, limit + 1)
    data = [schedule_object(one) for one in found[:limit]]
    return Response(to_json({"data": data, "has_more": len(found) > limit}), media_type=JSON)


@router.post("/{schedule}/pause", response_model=ScheduleShape)
async def pause_schedule(who: Writer, service: Serving, schedule: Name) -> Response:
    """Fires no more until it is resumed. The firings in between are left out."""
    return _answer(await service.store.schedules.pause(schedule, who.owner))


@router.post("/{schedule}/resume", response_model=ScheduleShape)
async def resume_schedule(who: Writer, service: Serving, schedule: Name) -> Response:
    return _answer(await service.store.schedules.resume(schedule, who.owner))


@router.post("/{schedule}/run", status_code=201, response_model=JobShape)
async def run_schedule(who: Writer, service: Serving, schedule: Name) -> Response:
    """Submits one job now, as a firing would. The next firing stays as it is."""
    job = await run_now(service.client(who.owner), service.backstay.handlers, schedule, service.wake)
    headers = {"location": f"/api/jobs/{job.id}"}
    return Response(job_bytes(await job.show()), 201, headers=headers, media_type=JSON)


def _answer(found: Schedule) -> Response:
    return Response(to_json(schedule_object(found)), media_type=JSON)
