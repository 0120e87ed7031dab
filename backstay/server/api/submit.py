"""Submitting jobs: as one JSON body, or as a stream of lines with an item on each."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, StringConstraints

from backstay.client import AFTER_JOBS_MAX, Items, Options
from backstay.core.errors import UsageError
from backstay.core.money import MICROS_MAX
from backstay.handlers.function import dump, unknown_handler
from backstay.handlers.handler import HANDLER_CHARACTERS_MAX, Handler, Weighed, require_cost, weigh
from backstay.llm import lines
from backstay.server import etags
from backstay.server.auth import Writer
from backstay.server.idempotency import EffectKey
from backstay.server.problems import Problem
from backstay.server.request_bodies import numbered_lines, whole_body
from backstay.server.service import Service, Serving
from backstay.server.shapes import CHANGES, PROBLEMS, JobShape, Strict, job_bytes

router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=PROBLEMS)

LINES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_HINT: Final = 'send {"handler": …, "items": […]} as application/json, or one item per line as application/x-ndjson'


AfterId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")]


class OptionsShape(Strict):
    """How a job wants its items treated; what it leaves out is the handler's business."""

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
    """The same beside a body of lines."""

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
    await _check_options(service, name, found, options.budget_micros, given.fallback)
    with service.backstay.bus.below(request.headers):
        job = await service.client(who.owner).submit(name, items, options, encode, service.wake)
    view = await job.show()
    headers = {"location": f"/api/jobs/{job.id}", "etag": etags.etag_of(job_bytes(view))}
    return Response(job_bytes(view), 201, headers=headers, media_type=etags.JSON)


async def _check_options(
    service: Service, name: str, handler: Handler | None, budget_micros: int | None, fallback: str | None
) -> None:
    """Raises if the budget could not be kept, or there is no such fallback."""
    if budget_micros is not None:
        try:
            require_cost(name[:100], handler)
        except UsageError as error:
            raise Problem(422, error.message, hint=error.hint) from None
    if fallback == name:
        raise Problem(422, f"handler {name[:100]!r} cannot be its own fallback", hint="name another handler")
    if fallback is not None:
        await _handler(service, fallback)


class _Encoder:
    def __init__(self, handler: Handler | None) -> None:
        self._handler = handler

    def __call__(self, payload: Any) -> str | Weighed:
        if self._handler is not None:
            self._handler.check(payload)
        return weigh(self._handler, payload, dump(payload))


async def _payloads(request: Request, service: Service, handler: Handler | None) -> AsyncIterator[str | Weighed]:
    """Every line's text as it stands, once it is known to be JSON that the handler takes."""
    async for number, text in numbered_lines(request, service.backstay.settings.upload_max_bytes):
        try:
            payload = lines.value_of(text)
            if handler is not None:
                handler.check(payload)
            item = weigh(handler, payload, text)
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
        # The header serves its own request only: what these options find may be older.
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
