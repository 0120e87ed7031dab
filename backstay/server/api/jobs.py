"""Jobs: list, show, why they wait, pause, resume, cancel, retry, delete."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.states import JobState
from backstay.server import cursors, etags
from backstay.server.auth import Principal, Reader, Writer, operates, require_role
from backstay.server.cursors import PAGE_DEFAULT, Cursor, JobId, Limit, job_number, page
from backstay.server.job_control import cancel_job, remove
from backstay.server.service import Service, Serving, service_of
from backstay.server.shapes import CHANGES, PROBLEMS, JobPage, JobShape, ReasonShape, Strict, job_bytes, job_object
from backstay.store.dead_letters import REPLAY_ITEMS_MAX
from backstay.store.job_views import JobFilter
from backstay.store.jobs import MoneyVerdict
from backstay.store.keys import Role
from backstay.store.story import read_job_story

MICROS_MAX: Final = (1 << 62) - 1

router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=PROBLEMS)


class RetriedJob(BaseModel):
    retried: int
    more: bool = Field(description=f"there may be more: one call handles about {REPLAY_ITEMS_MAX:,}; call again")
    job: JobShape


class UnknownShape(Strict):
    act: Literal["book", "release"] = Field(description="book: the money was paid; release: it was not")
    expected_micros: int = Field(
        ge=0, le=MICROS_MAX, description="the job's unknown_micros as you saw it; if it has changed: 409"
    )
    micros: int | None = Field(None, ge=1, le=MICROS_MAX, description="only this amount; default: all of it")


class JobWhyShape(BaseModel):
    """What keeps all its waiting items, the strongest reason first."""

    id: str
    state: JobState
    reasons: list[ReasonShape]


@router.get("", response_model=JobPage)
async def list_jobs(
    request: Request,
    who: Reader,
    service: Serving,
    limit: Limit = PAGE_DEFAULT,
    cursor: Cursor = None,
    state: JobState | None = None,
    handler: Annotated[str | None, Query(max_length=300, pattern=r"^[^\x00]*$")] = None,
) -> Response:
    """Newest first."""
    wanted = JobFilter(state, handler)
    what = f"jobs\0{state}\0{handler}"
    before = cursors.take(service, who.owner, what, cursor)
    found, following = await service.store.job_views.choose(who.owner, wanted, before, limit)
    next_cursor = cursors.give(service, who.owner, what, following)
    return page(request, map(job_object, found), next_cursor)


@router.get("/{job_id}", response_model=JobShape)
async def show_job(request: Request, job_id: JobId) -> Response:
    """The answer has an ETag; send it in If-None-Match to poll cheaply."""
    who = await require_role(request, Role.READ)
    return etags.answer(request, await _job_body(service_of(request), who, job_number(job_id)))


@router.get("/{job_id}/why", response_model=JobWhyShape)
async def explain_job(who: Reader, service: Serving, job_id: JobId) -> Response:
    """Says why the job makes no progress. Each reason says what to do, or how long to wait. No reason: nothing blocks
    it."""
    lease_ms = service.backstay.limits.lease_ms
    number, words = job_number(job_id), operates(who, service)
    view, reasons = await read_job_story(service.store, number, who.owner, lease_ms, shows_words=words)
    said = {"id": str(view.id), "state": view.state, "reasons": [reason._asdict() for reason in reasons]}
    return Response(to_json(said), media_type=etags.JSON)


@router.post("/{job_id}/pause", response_model=JobShape, responses=CHANGES)
async def pause_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Starts no more items until the job is resumed; running items finish."""
    job = await _unchanged(request, service, who, job_id)
    await service.client(who.owner).job(job).pause()
    return etags.answer(request, await _job_body(service, who, job))


@router.post("/{job_id}/resume", response_model=JobShape, responses=CHANGES)
async def resume_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    job = await _unchanged(request, service, who, job_id)
    await service.client(who.owner).job(job).resume()
    service.wake()
    return etags.answer(request, await _job_body(service, who, job))


@router.post("/{job_id}/cancel", response_model=JobShape, responses=CHANGES)
async def cancel(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Waiting items end now, or soon if there are very many; running calls get a limited time to finish."""
    job = await _unchanged(request, service, who, job_id)
    await cancel_job(service, job, who.owner)
    return etags.answer(request, await _job_body(service, who, job))


@router.post("/{job_id}/retry", response_model=RetriedJob, responses=CHANGES)
async def retry_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Queues the job's failed items again and resets their attempts, a limited number per call."""
    job = await _unchanged(request, service, who, job_id)
    retried = await service.store.jobs.retry(job, who.owner, items_max=REPLAY_ITEMS_MAX)
    await service.store.notify()
    service.wake()
    view = await service.store.job_views.get(job, who.owner)
    more = retried >= REPLAY_ITEMS_MAX and view.failed > 0
    return Response(to_json({"retried": retried, "more": more, "job": job_object(view)}), media_type=etags.JSON)


@router.post("/{job_id}/settle-unknown", response_model=JobShape, responses=CHANGES)
async def settle_unknown(
    request: Request, who: Writer, service: Serving, job_id: JobId, given: UnknownShape
) -> Response:
    """Settles money that may have been spent: `book` counts it as spent, `release` gives it back to the job's budget.

    Budgets that the job shares get it back only if an operator releases it."""
    job = await _unchanged(request, service, who, job_id)
    verdict = MoneyVerdict(given.act == "book", who.name, given.micros, given.expected_micros, operates(who, service))
    await service.store.jobs.settle_unknown(job, who.owner, verdict)
    await service.store.notify()
    service.wake()
    return etags.answer(request, await _job_body(service, who, job))


@router.delete("/{job_id}", status_code=204, responses=CHANGES)
async def delete_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Deletes a job that has ended, with its items, results and logs. This cannot be undone."""
    job = await _unchanged(request, service, who, job_id)
    await remove(service, job, who.owner)
    return Response(status_code=204)


async def _job_body(service: Service, who: Principal, job: int) -> bytes:
    return job_bytes(await service.seen.job(job, who.owner))


async def _unchanged(request: Request, service: Service, who: Principal, job_id: str) -> int:
    """The job to change, if it is as If-Match says."""
    job = job_number(job_id)
    if "if-match" in request.headers:
        etags.require_match(request, await _job_body(service, who, job))
    return job
