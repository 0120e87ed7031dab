"""/batches: create, show, list, cancel, and the results so far. Runs of the command line on the same database are
batches, too."""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backstay.clock import new_id
from backstay.core.states import BatchStatus
from backstay.core.why_waiting import Reason
from backstay.llm.lines import unseal
from backstay.server.auth import Reader, Writer, operates, require_role
from backstay.server.idempotency import EffectId
from backstay.server.openai.shapes import asks_chat, batch_object, content, page, result_lines
from backstay.server.openai.survey import printable_model
from backstay.server.openai.upstream import require_upstream
from backstay.server.problems import Problem
from backstay.server.request_limits import whole_bytes
from backstay.server.service import Service, Serving, service_of, stop_job
from backstay.store.batches import Adoptable, Adopted, NewBatch
from backstay.store.item_views import read_job_story
from backstay.store.keys import Role

ENDPOINTS: Final = (
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/completions",
    "/v1/moderations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/videos",
)
BODY_BYTES_MAX: Final = 1 << 20
PAIRS_MAX: Final = 16
WINDOW_SECONDS_MAX: Final = 30 * 86_400
BACKGROUND: Final = "background"
STRICT_WINDOW: Final = "24h"
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,6})([smhdw])")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

MetadataKey = Annotated[str, Field(min_length=1, max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class OutputExpiresAfter(BaseModel):
    model_config = ConfigDict(strict=True)

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3_600, le=2_592_000)


class BatchOrder(BaseModel):
    """The order to make a batch of an uploaded file."""

    model_config = ConfigDict(strict=True)

    input_file_id: str = Field(pattern=r"^[!-~]{1,200}$")
    endpoint: str
    completion_window: str
    metadata: dict[MetadataKey, MetadataValue] | None = Field(None, max_length=PAIRS_MAX)
    output_expires_after: OutputExpiresAfter | None = None

    def window_seconds(self, strict: bool) -> int:
        said = self.completion_window
        if strict and said != STRICT_WINDOW:
            raise _unsupported_value("completion_window", said, [STRICT_WINDOW])
        if said == BACKGROUND:
            return WINDOW_SECONDS_MAX
        form = _WINDOW.fullmatch(said)
        seconds = int(form[1]) * _UNIT_SECONDS[form[2]] if form else 0
        if not 0 < seconds <= WINDOW_SECONDS_MAX:
            raise _unsupported_value("completion_window", said, [STRICT_WINDOW, "1h", "30d", BACKGROUND])
        return seconds

    def check_endpoint(self, strict: bool) -> None:
        """Azure's clients leave the version out."""
        if self.endpoint not in ENDPOINTS and (strict or f"/v1{self.endpoint}" not in ENDPOINTS):
            raise _unsupported_value("endpoint", self.endpoint, ENDPOINTS)


async def read_order(request: Request) -> BatchOrder:
    try:
        value = json.loads(await whole_bytes(request, BODY_BYTES_MAX))
    except (ValueError, RecursionError):
        raise Problem(400, "We could not parse the JSON body of your request", label="invalid_json") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be a JSON object", label="invalid_type")
    try:
        return BatchOrder.model_validate(value)
    except ValidationError as error:
        raise _invalid_order(error, value) from None


def _invalid_order(error: ValidationError, value: dict[str, Any]) -> Problem:
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"] if part != "[key]")
    if first["type"] == "missing":
        return Problem(400, f"Missing required parameter: '{param}'", param=param, label="missing_required_parameter")
    code = "invalid_type" if first["type"].endswith("_type") else "invalid_value"
    said = first["msg"][:1].lower() + first["msg"][1:]
    return Problem(400, f"Invalid {code.removeprefix('invalid_')} for '{param}': {said}", param=param, label=code)


def _unsupported_value(param: str, value: str, supported: Any) -> Problem:
    listed = ", ".join(f"'{one}'" for one in supported)
    detail = f"Invalid value for {param}: '{value[:100]}'. Supported values are: {listed}"
    return Problem(400, detail, param=param, label="invalid_value")


router = APIRouter(tags=["OpenAI batches"])

LIST_MAX: Final = 100
REPLAY_MS: Final = 120_000
NDJSON: Final = "application/x-ndjson"
OVER: Final = (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED)
_BODY: Final = {"requestBody": {"content": {"application/json": {"schema": BatchOrder.model_json_schema()}}}}


@router.post("/batches", openapi_extra=_BODY)
async def create(request: Request, service: Serving, who: Writer, effect: EffectId) -> Response:
    """Stores the batch and answers at once; the batch itself soon reports what is wrong with its file."""
    order = await read_order(request)
    strict = service.options.strict_openai
    order.check_endpoint(strict)
    seconds = order.window_seconds(strict)
    require_upstream(service.options)
    expires = order.output_expires_after
    new = NewBatch(
        id=f"batch_{effect}",
        owner=who.owner,
        endpoint=order.endpoint,
        input_file_id=order.input_file_id,
        completion_window=order.completion_window,
        window_ms=int(min(seconds, service.backstay.limits.llm_job_timeout_seconds) * 1000),
        metadata=None if order.metadata is None else json.dumps(order.metadata, sort_keys=True),
        output_seconds=None if expires is None else expires.seconds,
    )
    replay = service.options.replays and is_sent_again(request)
    made, is_new = await service.store.batches.create(new, REPLAY_MS if replay else None)
    service.wake_mover()
    headers = {} if is_new else {"x-backstay-replayed": "1"}
    return JSONResponse(batch_object(await service.store.batches.get(made, who.owner)), headers=headers)


def is_sent_again(request: Request) -> bool:
    """Whether a client repeats a request because the answer was lost: the official clients count their tries."""
    count = request.headers.get("x-stainless-retry-count", "")
    return count.isascii() and count.isdigit() and int(count[:9]) > 0


@router.get("/batches")
async def list_batches(
    service: Serving,
    who: Reader,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 20,
) -> Response:
    """Newest first, including runs of the command line on the same database."""
    await adopt(service, who.owner)
    found = await service.store.batches.page(who.owner, after, limit + 1)
    return JSONResponse(page([batch_object(batch) for batch in found[:limit]], len(found) > limit))


@router.get("/batches/{batch_id}")
async def show(request: Request, batch_id: str) -> Response:
    who, service = await require_role(request, Role.READ), service_of(request)
    return JSONResponse(batch_object(await service.reads.batch(batch_id, who.owner)))


@router.post("/batches/{batch_id}/cancel")
async def cancel(batch_id: str, service: Serving, who: Writer) -> Response:
    """Finished results are kept; requests under way may still be answered."""
    batch = await service.store.batches.get(batch_id, who.owner)
    if batch.status in OVER:
        raise Problem(409, f"Cannot cancel a batch with status '{batch.status}'.", headers={"x-should-retry": "false"})
    if await service.store.batches.cancel(batch_id, who.owner):
        if batch.job_id is not None:
            await stop_job(service, batch.job_id, who.owner)
        service.wake_mover()
    return JSONResponse(batch_object(await service.store.batches.get(batch_id, who.owner)))


@router.get("/batches/{batch_id}/output", response_class=StreamingResponse)
async def output(batch_id: str, service: Serving, who: Reader) -> Response:
    """The results that have succeeded so far, during the batch and after it."""
    return await _stream_results(service, batch_id, who.owner, ok=True)


@router.get("/batches/{batch_id}/errors", response_class=StreamingResponse)
async def errors(batch_id: str, service: Serving, who: Reader) -> Response:
    """The requests that have failed so far."""
    return await _stream_results(service, batch_id, who.owner, ok=False)


@router.get("/batches/{batch_id}/why")
async def explain(batch_id: str, service: Serving, who: Reader) -> Response:
    """Says why the batch makes no progress; OpenAI's object has no field for it. No reason: nothing blocks it."""
    batch = await service.store.batches.get(batch_id, who.owner)
    reasons: list[Reason] = []
    if batch.job_id is not None and not batch.job_ended:
        lease_ms = service.backstay.limits.lease_ms
        words = operates(who, service)
        _, reasons = await read_job_story(service.store, batch.job_id, who.owner, lease_ms, shows_reason=words)
    said = {"id": batch.id, "status": batch.status, "reasons": [reason._asdict() for reason in reasons]}
    return JSONResponse(said)


async def _stream_results(service: Service, batch_id: str, owner: str, ok: bool) -> Response:
    batch = await service.store.batches.get(batch_id, owner)
    file_id = batch.output_file_id if ok else batch.error_file_id
    file = await service.store.files.find(file_id, owner) if file_id else None
    if file is not None:
        return StreamingResponse(content(service, file), media_type=NDJSON)
    if batch.job_id is None:
        return Response(b"", media_type=NDJSON)
    copies, as_chat = bool(batch.adopted), asks_chat(batch)
    lines = result_lines(service.store, batch.job_id, ok=ok, copies=copies, as_chat=as_chat)
    return StreamingResponse(lines, media_type=NDJSON)


OWNERS_MAX: Final = 10_000
LATE_SECONDS: Final = 10.0


@dataclass(slots=True)
class AdoptionProgress:
    """How far this process has searched the jobs of an owner for runs."""

    settled: int = 0  # complete up to this position
    newest: int = 0  # searched at least once up to here
    again_at: float = 0.0  # when to search those between again: one may have been committed late


async def adopt(service: Service, owner: str) -> None:
    """Makes batches of the owner's runs that have none: new runs at once, late ones every few seconds."""
    if len(service.adoption_progress) >= OWNERS_MAX:
        service.adoption_progress.clear()
    progress = service.adoption_progress.setdefault(owner, AdoptionProgress())
    after, now = progress.newest, service.main.clock.monotonic()
    if now >= progress.again_at:
        after, progress.again_at = progress.settled, now + LATE_SECONDS
    more = True
    while more:
        page = await service.store.batches.adoptable(owner, after)
        await service.store.batches.adopt(owner, [_batch_of_run(run) for run in page.runs])
        progress.settled = max(progress.settled, page.settled)
        progress.newest = max(progress.newest, page.last)
        after, more = page.last, page.more
        if page.runs:
            service.wake_mover()


def _batch_of_run(run: Adoptable) -> Adopted:
    request = unseal(run.first)
    model = json.loads(request.body).get("model")
    named = run.label or f"job-{run.job_id}"
    return Adopted(
        batch_id=f"batch_{new_id()}",
        run=run,
        file_id=f"file-{new_id()}",
        filename=named if named.endswith(".jsonl") else f"{named}.jsonl",
        endpoint=request.url,
        model=printable_model(model) if isinstance(model, str) else None,
    )
