"""The objects of Backstay's own API: their fields for OpenAPI, their JSON, and ETags. The JSON is made without the
models, because that is faster.

And pages of lists: cursors that are valid for one owner and one list, limits, and the ids in paths.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from backstay.core.breaker import Breaker
from backstay.core.errors import ErrorCode, NotFound, UsageError
from backstay.core.ids import POSITION_BITS, job_of, position_of, read_item, show_item
from backstay.core.models import Flaw
from backstay.core.states import ItemState, JobState
from backstay.server.problems import Problem
from backstay.server.service import Service
from backstay.store.item_views import ItemView
from backstay.store.job_views import JobView
from backstay.store.jobs import NEVER_MS

MOMENT: Final = "milliseconds since 1970, UTC"


class ProblemShape(BaseModel):
    """RFC 9457, with one of the public codes and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    code: ErrorCode
    hint: str


def _describe(text: str) -> dict[str, Any]:
    schema = ProblemShape.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    schema["properties"]["code"] = {"type": "string", "enum": [code.value for code in ErrorCode]}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    400: _describe("The request is not valid."),
    401: _describe("No valid key."),
    403: _describe("The key's role does not allow it."),
    404: _describe("It does not exist, or it belongs to another owner."),
    422: _describe("The request is not valid."),
    429: _describe("Too many requests; Retry-After says when to try again."),
    503: _describe("The database does not answer."),
}
CHANGES: Final[dict[int | str, dict[str, Any]]] = {
    409: _describe("Not possible in the present state."),
    412: _describe("Changed since the client read it."),
}


class JobShape(BaseModel):
    """All moments are milliseconds since 1970, UTC."""

    id: str = Field(examples=["12"])
    handler: str
    state: JobState
    stop_reason: str | None = Field(description="why the job starts no more items although some are left")
    label: str | None
    priority: int
    retry: str | None
    delivery: str | None
    idempotency_key: str | None
    sealed: bool = Field(description="whether all items are submitted")
    total: int
    done: int
    processing: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    repeats: int = Field(description="calls without an answer, which may have been paid and are sent again")
    created_at: int
    started_at: int | None
    finished_at: int | None
    timeout_at: int
    deadline_at: int | None
    budget_micros: int | None
    spent_micros: int
    reserved_micros: int
    unknown_micros: int
    short: bool = Field(description="the next item could exceed the budget")
    input_tokens: int
    output_tokens: int
    truncated: int = Field(description="truncated answers, whether they count as failures or not")
    refused: int = Field(description="answers in which the model refuses")
    filtered: int = Field(description="answers that a filter of the provider removed")
    unfinished: int = Field(description="answers of a turn that the provider paused, which can be continued")
    fallback: str | None = Field(description="the handler that gets items that the job's own handler fails")
    waits_for: list[str] | None = Field(description="the jobs that must end before this one starts")
    known: int = Field(description="items that were skipped because an earlier submit had them")
    reused: int = Field(description="items that got the answer of an earlier run, at no cost")


class ItemShape(BaseModel):
    """All moments are milliseconds since 1970, UTC."""

    id: str = Field(examples=["12-345"])
    job: str
    position: int
    handler: str
    state: ItemState
    attempts: int = Field(description="calls that count against the retry policy")
    calls: int = Field(description="all calls, including those that cost no attempt")
    repeats: int
    progress: int = Field(description="per cent")
    error_code: ErrorCode | None
    flaw: Flaw | None = Field(
        description="more about the outcome; unknown: the call may have been paid; late: the result came too late; "
        "invalid: the answer does not fit its schema"
    )
    message: str | None = Field(description="the message of the last attempt")
    created_at: int
    queued_at: int
    started_at: int | None = Field(description="when its first call began")
    last_attempt_at: int | None
    updated_at: int = Field(description="when it last changed its state")
    finished_at: int | None
    timed_out_at: int | None
    deadline_at: int | None
    due_at: int | None
    retry_after: int | None = Field(description="when it is tried again, if it waits for that")
    provider_task_id: str | None
    reused_from: str | None = Field(description="the item of an earlier run whose answer it got")
    archive: str | None = Field(description="the archive that holds the payload, for items that failed long ago")


class ReasonShape(BaseModel):
    code: str
    text: str
    until_at: int | None


class PageShape(BaseModel):
    """A page may be short, even empty, and still have a next one."""

    has_more: bool
    next_cursor: str | None


class JobPage(PageShape):
    data: list[JobShape]


class ItemPage(PageShape):
    data: list[ItemShape]


class ProviderShape(BaseModel):
    provider: str
    state: str = Field(description="closed, open, half_open or held")
    since_at: int | None
    until_at: int | None
    reason: str


class Strict(BaseModel):
    """A body that clients send: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


_JOB_FIELDS: Final = tuple(JobShape.model_fields)  # of the same names as those of the view
_job_values = attrgetter(*_JOB_FIELDS)
_ITEM_FIELDS: Final = tuple(name for name in ItemShape.model_fields if hasattr(ItemView, name))
_item_values = attrgetter(*_ITEM_FIELDS)


def job_object(view: JobView) -> dict[str, Any]:
    return {**dict(zip(_JOB_FIELDS, _job_values(view), strict=True)), "id": str(view.id)}


def item_object(view: ItemView) -> dict[str, Any]:
    due_at = view.due_at
    return {
        **dict(zip(_ITEM_FIELDS, _item_values(view), strict=True)),
        "id": show_item(view.id),
        "job": str(job_of(view.id)),
        "position": position_of(view.id),
        "attempts": view.attempt_count,
        # A paused job's items are moved out of the way by a due time that never comes.
        "due_at": due_at if due_at is None or (due_at < NEVER_MS and view.finished_at is None) else None,
        "reused_from": None if view.reused_from is None else show_item(view.reused_from),
        "archive": None if view.archive_id is None else str(view.archive_id),
    }


def job_bytes(view: JobView) -> bytes:
    return to_json(job_object(view))


def item_bytes(view: ItemView) -> bytes:
    return to_json(item_object(view))


def provider_object(breaker: Breaker) -> dict[str, Any]:
    return {
        "provider": breaker.provider,
        "state": breaker.state,
        "since_at": breaker.since_at,
        "until_at": breaker.until_at,
        "reason": breaker.reason,
    }


JSON: Final = "application/json"
_BYTES: Final = 12


def etag_of(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=_BYTES).hexdigest()}"'


def answer_with_etag(request: Request, body: bytes) -> Response:
    """The object, or 304 if the client has this version of it."""
    tag = etag_of(body)
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    asked = request.headers.get("if-none-match")
    if asked is not None and _matches(asked, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=JSON)


def require_match(request: Request, body: bytes) -> None:
    """Raises 412 if the client has seen another version of the object."""
    asked = request.headers.get("if-match")
    if asked is not None and not _matches(asked, etag_of(body)):
        raise Problem(
            412, "the object has changed since you read it", hint="read it again, and send its new ETag in If-Match"
        )


def _matches(asked: str, tag: str) -> bool:
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in asked.split(","))


_LENGTH_MAX: Final = 100
_HINT: Final = "take next_cursor from the page before, with the same filters"


def encode(service: Service, owner: str, what: str, place: int | None) -> str | None:
    """`what` names the list and its filters; the last page of a list has no cursor."""
    if place is None:
        return None
    text = f"{place}.{service.signer.tag('cursor', owner, what, place)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(service: Service, owner: str, what: str, cursor: str | None) -> int | None:
    """The position in a cursor; a cursor of another owner or list is not valid."""
    if cursor is None:
        return None
    try:
        padded = cursor[:_LENGTH_MAX].encode("ascii") + b"=" * (-len(cursor) % 4)
        place, _, tag = base64.urlsafe_b64decode(padded).decode("ascii").partition(".")
        number = int(place)
    except (UnicodeError, binascii.Error, ValueError):
        raise Problem(400, "the cursor is not valid", hint=_HINT) from None
    if not service.signer.fits(tag, "cursor", owner, what, number):
        raise Problem(400, "the cursor is not valid", hint=_HINT)
    return number


PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 50
_ROW_DIGITS_MAX: Final = 18
_JOB_DIGITS_MAX: Final = len(str(1 << (63 - POSITION_BITS)))

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="how many at most")]
Cursor = Annotated[str | None, Query(max_length=100, description="next_cursor of the page before")]
JobId = Annotated[str, Path(description="a job's id", examples=["12"])]
ItemId = Annotated[str, Path(description="an item's id: JOB-POSITION", examples=["12-345"])]


def job_number(text: str) -> int:
    """A text that is not an id is handled like an unknown id."""
    if text.isascii() and text.isdigit() and len(text) <= _JOB_DIGITS_MAX and int(text) < 1 << (63 - POSITION_BITS):
        return int(text)
    raise NotFound(f"no job {text[:40]}")


def row_number(text: str, what: str) -> int:
    """The number of a row other than a job, from a path."""
    if text.isascii() and text.isdigit() and len(text) <= _ROW_DIGITS_MAX:
        return int(text)
    raise NotFound(f"no {what} {text[:40]}")


def item_number(text: str) -> int:
    try:
        return read_item(text)
    except UsageError:
        raise NotFound(f"no item {text[:40]}") from None


def page(request: Request, data: Iterable[dict[str, Any]], next_cursor: str | None) -> Response:
    """A page, with the next cursor in its body and in a Link header."""
    body = to_json({"data": list(data), "has_more": next_cursor is not None, "next_cursor": next_cursor})
    headers = {"cache-control": "private, no-cache"}
    if next_cursor is not None:
        following = request.url.include_query_params(cursor=next_cursor)
        headers["link"] = f'<{following.path}?{following.query}>; rel="next"'
    return Response(body, headers=headers, media_type=JSON)
