"""Schedules: the next and the last firing of each, and its error; pause, resume and run now."""

from typing import Final

from fastapi import APIRouter, Request, Response

from backstay.core.errors import UsageError
from backstay.core.models import NAME_CHARACTERS_MAX
from backstay.cron import show_local
from backstay.schedules import run_now
from backstay.server.pages import layout
from backstay.server.pages.layout import redirect_with_notice
from backstay.server.pages.page_request import visit_to_act, visit_to_read

router = APIRouter(include_in_schema=False)

SHOWN: Final = 100
PLACE: Final = "/schedules"


@router.get("/schedules")
async def list_schedules(request: Request) -> Response:
    visit = await visit_to_read(request)
    after = visit.query.get("after", "")[:NAME_CHARACTERS_MAX]
    found = await visit.service.store.schedules.page(visit.owner, after, SHOWN + 1)
    following = layout.query(PLACE, {"after": found[SHOWN - 1].name}) if len(found) > SHOWN else None
    return await layout.show_page(
        visit,
        "schedules.html",
        schedules=found[:SHOWN],
        first=PLACE if after else None,
        following=following,
        local=_local,
    )


def _local(at: int | None, timezone: str) -> str:
    """A time in the time zone of the schedule; empty if this machine does not know the zone."""
    try:
        return "" if at is None else show_local(at, timezone)
    except UsageError:
        return ""


@router.post("/schedules/{schedule}/pause")
async def pause(request: Request, schedule: str) -> Response:
    visit = await visit_to_act(request)
    await visit.service.store.schedules.pause(schedule, visit.owner)
    return redirect_with_notice(visit, PLACE, f"Schedule {schedule} is paused. Firings in between are left out.")


@router.post("/schedules/{schedule}/resume")
async def resume(request: Request, schedule: str) -> Response:
    visit = await visit_to_act(request)
    try:
        await visit.service.store.schedules.resume(schedule, visit.owner)
    except UsageError as refused:
        return redirect_with_notice(visit, PLACE, f"Not resumed: {refused.message}.", "refused")
    return redirect_with_notice(visit, PLACE, f"Schedule {schedule} is resumed.")


@router.post("/schedules/{schedule}/run")
async def run(request: Request, schedule: str) -> Response:
    visit = await visit_to_act(request)
    service = visit.service
    try:
        job = await run_now(service.client(visit.owner), service.backstay.handlers, schedule, service.wake)
    except UsageError as refused:
        return redirect_with_notice(visit, PLACE, f"Not run: {refused.message}.", "refused")
    return redirect_with_notice(visit, PLACE, f"Schedule {schedule} runs now as job {job.id}.")
