"""Jobs: submit (a JSON body, or a stream of lines), list, show, why they wait, pause, resume, cancel, retry, delete."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field, StringConstraints
from pydantic_core import to_json

from backstay.client import AFTER_JOBS_MAX, Items, Options
from backstay.core.errors import UsageError
from backstay.core.money import MICROS_MAX
from backstay.core.states import JobState
from backstay.handlers.function import dump, unknown_handler
from backstay.handlers.handler import HANDLER_CHARACTERS_MAX, Handler, Weighed, name_of, weigh
from backstay.llm import lines
from backstay.server import shapes
from backstay.server.auth import Principal, Reader, Writer, operates, require_role
from backstay.server.idempotency import EffectKey
from backstay.server.problems import Problem
from backstay.server.request_limits import numbered_lines, whole_body
from backstay.server.service import Service, Serving, cancel_job, remove_job, service_of
from backstay.server.shapes import (
    CHANGES,
    JSON,
    PAGE_DEFAULT,
    PROBLEMS,
    Cursor,
    JobId,
    JobPage,
    JobShape,
    Limit,
    ReasonShape,
    Strict,
    answer_with_etag,
    etag_of,
    job_bytes,
    job_number,
    job_object,
    page,
    require_match,
)
from backstay.store.dead_letters import REPLAY_ITEMS_MAX
from backstay.store.item_views import read_job_story
from backstay.store.job_views import JobFilter
from backstay.store.jobs import MoneyVerdict
from backstay.store.keys import Role

router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=PROBLEMS)

LINES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_HINT: Final = 'send {"handler": …, "items": […]} as application/json, or one item per line as application/x-ndjson'


AfterId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")]


class OptionsShape(Strict):
    """How the items of a job are treated; the handler's rules apply to what is left out."""

    priority: int = Field(default=0, ge=0, le=9)
    deadline_seconds: float | None = Field(default=None, gt=0, le=366 * 86_400)
    retry: str | None = Field(default=None, max_length=100, description="the name of a retry policy")
    delivery: str | None = Field(default=None, max_length=100, description="at_least_once or at_most_once")
    label: str | None = Field(default=None, max_length=300)
    idempotency_key: str | None = Field(
        default=None, min_length=1, max_length=255, description="the same as the header Idempotency-Key"
    )
    budget_micros: int | None = Field(
        default=None, ge=1, le=MICROS_MAX, description="in millionths of a dollar; the handler must declare its cost"
    )
    fallback: str | None = Field(
        default=None, min_length=1, max_length=300, description="the handler that gets items that this one fails"
    )
    after: list[AfterId] | None = Field(
        default=None, min_length=1, max_length=AFTER_JOBS_MAX, description="the jobs that must end before it starts"
    )
    after_items: Literal["succeeded", "all"] = Field(
        default="succeeded", description="which results of those jobs are the payloads, if the job has no items"
    )
    unique: str | None = Field(
        default=None, min_length=1, max_length=255, description="a key, or payload: one job within unique_seconds"
    )
    unique_seconds: float | None = Field(default=None, gt=0, le=366 * 86_400)
    item_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="a field of the items: items whose value an earlier submit had are skipped",
    )


class SubmitShape(Strict):
    handler: str = Field(min_length=1, max_length=HANDLER_CHARACTERS_MAX)
    items: list[Any] | None = Field(default=None, min_length=1, description="not needed with options.after")
    options: OptionsShape = OptionsShape()


class QueryShape(OptionsShape):
    """The same options in the query, for a body of lines."""

    handler: str | None = Field(None, min_length=1, max_length=HANDLER_CHARACTERS_MAX)


_BODIES: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["handler"],
                "additionalProperties": False,
                "properties": {
                    "handler": {"type": "string", "minLength": 1, "maxLength": 300},
                    "items": {"type": "array", "minItems": 1, "items": {}},
                    "options": OptionsShape.model_json_schema(),
                },
            },
            "example": {"handler": "convert", "items": [{"page": 1}], "options": {"priority": 5}},
        },
        "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"page": 1}\n{"page": 2}\n'},
    },
}


@router.post(
    "",
    status_code=201,
    response_model=JobShape,
    responses={**CHANGES, **dict.fromkeys((408, 413, 415), PROBLEMS[422])},
    openapi_extra={"requestBody": _BODIES},
)
async def submit_job(
    request: Request,
    who: Writer,
    service: Serving,
    query: Annotated[QueryShape, Query()],
    key: EffectKey = None,
) -> Response:
    """Lines are stored as they arrive; handler and options are then in the query. The job is complete when this
    answers."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    items: Items | None
    given: OptionsShape
    encode: Callable[[Any], str | Weighed]
    if kind in LINES:
        if query.handler is None:
            raise Problem(
                422, "handler: the query parameter is missing", hint="POST /api/jobs?handler=NAME", is_for_programs=True
            )
        name, given = query.handler, query
        found = await _handler(service, name)
        items, encode = _payloads(request, service, found), lambda item: item
    elif kind == "application/json":
        body = await whole_body(request, SubmitShape)
        name, given, items = body.handler, body.options, body.items
        if items is None and given.after is None:
            raise Problem(
                422, "items: Field required", hint="give items, or the jobs whose results they are: options.after"
            )
        found = await _handler(service, name)
        encode = _Encoder(found)
    else:
        raise Problem(415, f"a body of type {kind[:100]!r} is not supported", hint=_HINT)
    options = _options(given, key, found)
    await _check_options(service, name, options.budget_micros, name_of(options.fallback))
    with service.backstay.bus.within_trace_of(request.headers):
        job = await service.client(who.owner).submit(name, items, options, encode, service.wake)
    view = await job.show()
    headers = {"location": f"/api/jobs/{job.id}", "etag": etag_of(job_bytes(view))}
    return Response(job_bytes(view), 201, headers=headers, media_type=JSON)


async def _check_options(service: Service, name: str, budget_micros: int | None, fallback: str | None) -> None:
    """Raises if the budget could not be kept, or there is no such fallback."""
    if fallback == name:
        raise Problem(422, f"handler {name[:100]!r} cannot be its own fallback", hint="name another handler")
    if fallback is not None:
        await _handler(service, fallback)
    if budget_micros is not None:
        try:
            service.backstay.handlers.require_costs(name, fallback)
        except UsageError as error:
            raise Problem(422, error.message, hint=error.hint) from None


class _Encoder:
    def __init__(self, handler: Handler | None) -> None:
        self._handler = handler

    def __call__(self, payload: Any) -> str | Weighed:
        if self._handler is not None:
            self._handler.check(payload)
        return weigh(self._handler, dump(payload))


async def _payloads(request: Request, service: Service, handler: Handler | None) -> AsyncIterator[str | Weighed]:
    """The text of every line, after a check that it is JSON and fits the handler."""
    async for number, text in numbered_lines(request, service.backstay.settings.upload_max_bytes):
        try:
            payload = lines.value_of(text)
            if handler is not None:
                handler.check(payload)
            item = weigh(handler, text)
        except lines.LineRefused as refused:
            raise Problem(422, f"line {number} {refused}") from None
        except UsageError as error:
            raise Problem(422, f"line {number}: {error.message}", hint=error.hint) from None
        yield item


async def _handler(service: Service, name: str) -> Handler | None:
    """The handler if its code is here; otherwise some worker must have registered it."""
    if "@" in name and "#" in name:
        raise Problem(422, "LLM requests are not submitted here", hint="POST /v1/batches, or `backstay run`")
    if name in service.backstay.handlers:
        return service.backstay.handlers[name]
    workers = await service.store.workers.page()
    known = {handler for worker in workers for handler in worker.handlers}
    if name not in known:
        known |= {handler.name for handler in service.backstay.handlers}
        error = unknown_handler(name[:100], sorted(one for one in known if "#" not in one))
        raise Problem(422, error.message, hint=error.hint)
    return None


def _options(given: OptionsShape, key: str | None, handler: Handler | None) -> Options:
    if key is not None and given.idempotency_key not in (None, key):
        differ = "the header Idempotency-Key and the field idempotency_key differ"
        raise Problem(422, differ, hint="leave one of them out")
    deadline = given.deadline_seconds
    if deadline is None and handler is not None:
        deadline = handler.rules.deadline_seconds
    return Options(
        priority=given.priority,
        deadline_seconds=deadline,
        # The header is for one request only; a job that these options find may be older.
        idempotency_key=given.idempotency_key if given.unique or given.item_key else key or given.idempotency_key,
        retry=given.retry,
        delivery=given.delivery,
        label=given.label,
        budget_micros=given.budget_micros,
        fallback=given.fallback or (handler.rules.fallback if handler is not None else None),
        after=None if given.after is None else [int(job) for job in given.after],
        after_items=given.after_items,
        unique=given.unique,
        unique_seconds=given.unique_seconds,
        item_key=given.item_key,
    )


UNKNOWN_MICROS_MAX: Final = (1 << 62) - 1


class RetriedJob(BaseModel):
    retried: int
    more: bool = Field(description=f"there may be more: one call handles about {REPLAY_ITEMS_MAX:,}; call again")
    job: JobShape


class UnknownShape(Strict):
    act: Literal["book", "release"] = Field(description="book: the money was paid; release: it was not")
    expected_micros: int = Field(
        ge=0, le=UNKNOWN_MICROS_MAX, description="the job's unknown_micros as you saw it; if it has changed: 409"
    )
    micros: int | None = Field(None, ge=1, le=UNKNOWN_MICROS_MAX, description="only this amount; default: all of it")


class JobWhyShape(BaseModel):
    """Every reason why its items wait, the strongest first."""

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
    before = shapes.decode(service, who.owner, what, cursor)
    found, following = await service.store.job_views.choose(who.owner, wanted, before, limit)
    next_cursor = shapes.encode(service, who.owner, what, following)
    return page(request, map(job_object, found), next_cursor)


@router.get("/{job_id}", response_model=JobShape)
async def show_job(request: Request, job_id: JobId) -> Response:
    """The answer has an ETag; send it in If-None-Match to poll cheaply."""
    who = await require_role(request, Role.READ)
    return answer_with_etag(request, await _job_body(service_of(request), who, job_number(job_id)))


@router.get("/{job_id}/why", response_model=JobWhyShape)
async def explain_job(who: Reader, service: Serving, job_id: JobId) -> Response:
    """Says why the job makes no progress. Each reason says what to do, or how long to wait. No reason: nothing blocks
    it."""
    lease_ms = service.backstay.limits.lease_ms
    number, words = job_number(job_id), operates(who, service)
    view, reasons = await read_job_story(service.store, number, who.owner, lease_ms, shows_reason=words)
    said = {"id": str(view.id), "state": view.state, "reasons": [reason._asdict() for reason in reasons]}
    return Response(to_json(said), media_type=JSON)


@router.post("/{job_id}/pause", response_model=JobShape, responses=CHANGES)
async def pause_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Starts no more items until the job is resumed; running items finish."""
    job = await _require_unchanged(request, service, who, job_id)
    await service.client(who.owner).job(job).pause()
    return answer_with_etag(request, await _job_body(service, who, job))


@router.post("/{job_id}/resume", response_model=JobShape, responses=CHANGES)
async def resume_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    job = await _require_unchanged(request, service, who, job_id)
    await service.client(who.owner).job(job).resume()
    service.wake()
    return answer_with_etag(request, await _job_body(service, who, job))


@router.post("/{job_id}/cancel", response_model=JobShape, responses=CHANGES)
async def cancel(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Waiting items end now, or soon if there are very many; running calls get a limited time to finish."""
    job = await _require_unchanged(request, service, who, job_id)
    await cancel_job(service, job, who.owner)
    return answer_with_etag(request, await _job_body(service, who, job))


@router.post("/{job_id}/retry", response_model=RetriedJob, responses=CHANGES)
async def retry_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Queues the job's failed items again and resets their attempts, a limited number per call."""
    job = await _require_unchanged(request, service, who, job_id)
    retried = await service.store.jobs.retry(job, who.owner, items_max=REPLAY_ITEMS_MAX)
    await service.store.notify()
    service.wake()
    view = await service.store.job_views.get(job, who.owner)
    more = retried >= REPLAY_ITEMS_MAX and view.failed > 0
    return Response(to_json({"retried": retried, "more": more, "job": job_object(view)}), media_type=JSON)


@router.post("/{job_id}/settle-unknown", response_model=JobShape, responses=CHANGES)
async def settle_unknown(
    request: Request, who: Writer, service: Serving, job_id: JobId, given: UnknownShape
) -> Response:
    """Settles money that may have been spent: `book` counts it as spent, `release` gives it back to the job's budget.

    Budgets that the job shares get it back only if an operator releases it."""
    job = await _require_unchanged(request, service, who, job_id)
    verdict = MoneyVerdict(given.act == "book", who.name, given.micros, given.expected_micros, operates(who, service))
    await service.store.jobs.settle_unknown(job, who.owner, verdict)
    await service.store.notify()
    service.wake()
    return answer_with_etag(request, await _job_body(service, who, job))


@router.delete("/{job_id}", status_code=204, responses=CHANGES)
async def delete_job(request: Request, who: Writer, service: Serving, job_id: JobId) -> Response:
    """Deletes a job that has ended, with its items, results and logs. This cannot be undone."""
    job = await _require_unchanged(request, service, who, job_id)
    await remove_job(service, job, who.owner)
    return Response(status_code=204)


async def _job_body(service: Service, who: Principal, job: int) -> bytes:
    return job_bytes(await service.reads.job(job, who.owner))


async def _require_unchanged(request: Request, service: Service, who: Principal, job_id: str) -> int:
    """The id of the job; raises if the job is not as If-Match says."""
    job = job_number(job_id)
    if "if-match" in request.headers:
        require_match(request, await _job_body(service, who, job))
    return job
