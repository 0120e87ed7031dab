"""One item: its timeline, request, result, log and cost; retry it, or accept a late result."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Final, Literal, NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.core.breaker import BreakerState, act_of
from backstay.core.callbacks import result_of
from backstay.core.display import show_span, visible
from backstay.core.errors import FilesUnreachable, NotAllowed
from backstay.core.ids import job_of, show_item
from backstay.core.models import AttemptOutcome
from backstay.core.states import ItemState
from backstay.server.api.items import log_chunks, log_pieces, read_result, stream_log
from backstay.server.auth import operates
from backstay.server.pages import layout
from backstay.server.pages.dead_letters import wake
from backstay.server.pages.figures import LINES, excerpt
from backstay.server.pages.layout import redirect_with_notice
from backstay.server.pages.operations import breaker_events
from backstay.server.pages.page_request import Visit, visit_to_act, visit_to_read
from backstay.server.service import Service
from backstay.server.shapes import JSON, item_number, row_number
from backstay.store.inbox import LateResult
from backstay.store.item_views import (
    AttemptView,
    EventView,
    ItemDetail,
    ItemReport,
    is_no_try,
    provider_of,
    read_item_story,
)
from backstay.store.keys import Role

WAIT_MS_MIN: Final = 1_000  # shorter waits are not shown
HELD_STATES: Final = {act_of(state): state for state in (BreakerState.OPEN, BreakerState.HELD)}
REQUEUED: Final = ("retried", "replayed")  # after these an item waits again

Kind = Literal["", "good", "bad", "warn", "wait"]


class Entry(NamedTuple):
    at: int
    kind: Kind
    what: str
    details: tuple[str, ...] = ()
    attempt: AttemptView | None = None


class Mark(NamedTuple):
    """The start of a wait, and the attempt before it."""

    at: int
    attempt: AttemptView | None = None


class Around(NamedTuple):
    """Events of the provider and the job, which may have kept the item waiting; the oldest first."""

    provider: str
    breaker: Sequence[EventView] = ()
    job: Sequence[EventView] = ()


def story(item: ItemDetail, attempts: Sequence[AttemptView], acts: Sequence[EventView], around: Around) -> list[Entry]:
    """The timeline of an item: acts, waits and attempts, in the order of time."""
    entries = [Entry(item.created_at, "", "Submitted")]
    entries += [_act(act) for act in acts]
    marks: list[Mark] = [Mark(item.created_at), *(Mark(act.at) for act in acts if act.act in REQUEUED)]
    for attempt, last in zip(attempts, [None, *attempts], strict=False):
        started = _start_of(item, attempt, last)
        known = [mark for mark in marks if mark.at <= started]
        since, before = max(known, default=Mark(started), key=lambda mark: mark.at)
        # An end that is not a try was still sent, as a provider's task, if it started after the wait began.
        sent = attempt.started_at if since <= attempt.started_at < started else started
        if sent - since >= WAIT_MS_MIN:
            entries.append(_wait(since, sent, before, around))
        if started - sent >= WAIT_MS_MIN:
            entries.append(Entry(sent, "wait", f"Waited {show_span(started - sent)}", ("for the provider's answer",)))
        entries.append(_end(attempt, started) if is_no_try(attempt, last) else _attempt(attempt, started))
        marks.append(Mark(attempt.ended_at or started, attempt))
    return sorted(entries, key=lambda entry: entry.at)


def _start_of(item: ItemDetail, attempt: AttemptView, last: AttemptView | None) -> int:
    """When the wait before an attempt was over: at the start of the try, or at an end without a try."""
    end = attempt.ended_at or item.finished_at or item.created_at
    return end if is_no_try(attempt, last) else attempt.started_at or end


def _end(attempt: AttemptView, at: int) -> Entry:
    said = (attempt.error_code,) if attempt.error_code else ()
    return Entry(
        at,
        "bad" if attempt.outcome == "failed" else "",
        f"Ended without another attempt: {attempt.outcome}",
        said,
        attempt,
    )


def _attempt(attempt: AttemptView, started: int) -> Entry:
    kinds: dict[str, Kind] = {
        "succeeded": "good",
        "failed": "bad",
        "retry": "warn",
        "unknown": "warn",
        AttemptOutcome.INVALID: "warn",
    }
    took = max((attempt.ended_at or started) - started, 0)
    said = [f"took {show_span(took)}" if took >= 1_000 else f"took {took} ms"]
    if attempt.provider_status is not None:
        said.append(f"the provider answered {attempt.provider_status}")
    if attempt.error_code:
        said.append(attempt.error_code)
    what = f"Call {attempt.number}: {attempt.outcome.replace('_', ' ')}"
    return Entry(started, kinds.get(attempt.outcome, ""), what, tuple(said), attempt)


def _act(act: EventView) -> Entry:
    words = {
        "retried": "Retried",
        "replayed": "Replayed",
        "repeat": "Sent again",
        "late_accepted": "Late result accepted",
    }
    what = words.get(act.act, act.act.replace("_", " ").capitalize())
    return Entry(act.at, "", what, (act.detail,) if act.detail else ())


def _wait(since: int, until: int, before: AttemptView | None, around: Around) -> Entry:
    reasons = [*_holds(since, until, around), *_pauses(since, until, around)]
    if before is not None and before.error_code:
        reasons.append(f"for a retry after {before.error_code}")
    return Entry(since, "wait", f"Waited {show_span(until - since)}", tuple(reasons or ["in the queue of its handler"]))


def _holds(since: int, until: int, around: Around) -> Iterator[str]:
    for start, end, word, detail in _stretches(around.breaker):
        if start < until and (end is None or end > since):
            because = f": {detail}" if detail else ""
            yield f"provider {around.provider} was {word}{because}"


def _stretches(events: Sequence[EventView]) -> Iterator[tuple[int, int | None, str, str]]:
    """When a breaker let nothing through: from, to, in which state, why."""
    began: tuple[int, str, str] | None = None
    for event in events:
        state = HELD_STATES.get(event.act)
        if began is not None and state is None:
            yield began[0], event.at, began[1], began[2]
            began = None
        elif began is None and state is not None:
            began = (event.at, state.value, event.detail or "")
    if began is not None:
        yield began[0], None, began[1], began[2]


def _pauses(since: int, until: int, around: Around) -> Iterator[str]:
    paused_at: int | None = None
    for event in around.job:
        if event.act == "paused":
            paused_at = event.at
        elif event.act == "resumed" and paused_at is not None:
            if paused_at < until and event.at > since:
                yield "its job was paused"
            paused_at = None
    if paused_at is not None and paused_at < until:
        yield "its job was paused"


router = APIRouter(include_in_schema=False)

LOG_BYTES_SHOWN: Final = 16_000
LOG_PIECES_MAX: Final = 20
ACTS_LOOKED: Final = 200


class Log(NamedTuple):
    text: str
    is_cut: bool = False
    is_away: bool = False  # the storage for files does not answer


@router.get("/items/{item_id}")
async def show(request: Request, item_id: str) -> Response:
    visit = await visit_to_read(request)
    service, number = visit.service, item_number(item_id)
    lease_ms, words = service.backstay.limits.lease_ms, operates(visit.principal, service)
    shown = await read_item_story(service.store, number, visit.owner, lease_ms, shows_reason=words)
    last = shown.attempts[-1] if shown.attempts else None
    costs = [attempt.cost_micros for attempt in shown.attempts if attempt.cost_micros is not None]
    return await layout.show_page(
        visit,
        "item.html",
        item=shown.view,
        reasons=shown.reasons,
        story=story(shown.view, shown.attempts, shown.events, await _events_around(visit, shown)),
        last=last,
        cost_micros=sum(costs) if costs else None,
        tokens=[sum(getattr(one, name) or 0 for one in shown.attempts) for name in ("input_tokens", "output_tokens")],
        asked=excerpt(shown.view.body),
        result=excerpt(last.result) if last is not None and shown.view.state is ItemState.SUCCEEDED else None,
        reply=excerpt(last.result) if last is not None and shown.view.state is ItemState.FAILED else None,
        log=await _log(service, number),
        late=[(late, excerpt(_result(late))) for late in await service.store.inbox.late_of(number, visit.owner)],
        no_retry=await _why_no_retry(visit, shown),
    )


async def _events_around(visit: Visit, shown: ItemReport) -> Around:
    store, view = visit.service.store, shown.view
    provider = provider_of(view.handler, await store.workers.page())
    breaker = await breaker_events(visit, provider, ACTS_LOOKED)
    return Around(provider, breaker[::-1], (await store.events.newest(f"job:{view.job_id}", ACTS_LOOKED))[::-1])


async def _why_no_retry(visit: Visit, shown: ItemReport) -> str | None:
    """Why the button is off; None when it is on."""
    if not visit.may(Role.WRITE):
        return "Your key has the role read; retrying needs the role write."
    if shown.view.state is not ItemState.FAILED:
        return f"Only a failed item can be retried; this one is {shown.view.state.value}."
    if shown.view.stop_reason is not None and shown.view.job_state.value in ("queued", "running", "paused"):
        return "Its job is being stopped."
    if shown.view.archive_id is not None:
        return f"It is in archive {shown.view.archive_id} of the dead letters: restore that archive first."
    if not await visit.service.store.files.has_source(shown.view.id, visit.owner):
        return "Its source file is gone: upload the file again and submit a new item."
    return None


async def _log(service: Service, item: int) -> Log:
    """The beginning of the handler's log; the page also works while the storage does not answer."""
    text = bytearray()
    try:
        pieces = await log_pieces(service, item)
        async with aclosing(log_chunks(service, pieces[:LOG_PIECES_MAX])) as chunks:
            async for chunk in chunks:
                text += chunk
                if len(text) > LOG_BYTES_SHOWN:
                    break
    except FilesUnreachable:
        return Log("", is_away=True)
    said = bytes(text[:LOG_BYTES_SHOWN]).decode("utf-8", "replace")
    return Log(visible(said, LINES), len(text) > LOG_BYTES_SHOWN or len(pieces) > LOG_PIECES_MAX)


def _result(late: LateResult) -> str:
    return result_of(late.body or '{"result":null}')


@router.get("/items/{item_id}/request")
async def show_request(request: Request, item_id: str) -> Response:
    visit = await visit_to_read(request)
    bodies = await visit.service.store.item_views.bodies(item_number(item_id), visit.owner)
    return _download(bodies.payload, f"item-{show_item(item_number(item_id))}-request.json")


@router.get("/items/{item_id}/result")
async def show_result(request: Request, item_id: str) -> Response:
    visit = await visit_to_read(request)
    response = await read_result(visit.principal, visit.service, item_id)
    name = f"item-{show_item(item_number(item_id))}-result.json"
    response.headers.setdefault("content-disposition", f'attachment; filename="{name}"')
    return response


@router.get("/items/{item_id}/log")
async def show_log(request: Request, item_id: str) -> Response:
    visit = await visit_to_read(request)
    return await stream_log(visit.principal, visit.service, item_id)


@router.get("/late-results/{number}")
async def show_late(request: Request, number: str) -> Response:
    visit = await visit_to_read(request)
    late = await visit.service.store.inbox.late_result(row_number(number, "late result"), visit.owner)
    return _download(_result(late), f"item-{show_item(late.item_id)}-late-result.json")


@router.post("/late-results/{number}/accept")
async def accept_late(request: Request, number: str) -> Response:
    visit = await visit_to_act(request, Role.ADMIN)
    inbox, row = visit.service.store.inbox, row_number(number, "late result")
    late = await inbox.late_result(row, visit.owner)
    path = f"/items/{show_item(late.item_id)}"
    try:
        await inbox.accept(row, visit.owner, visit.name)
    except NotAllowed as refused:
        return redirect_with_notice(visit, path, refused.message, "refused")
    job = job_of(late.item_id)
    return redirect_with_notice(visit, path, f"The late result was accepted: the item has succeeded in job {job}.")


@router.post("/items/{item_id}/retry")
async def retry_item(request: Request, item_id: str) -> Response:
    visit, item = await visit_to_act(request), item_number(item_id)
    path = f"/items/{show_item(item)}"
    await visit.service.store.item_views.row(item, visit.owner)
    try:
        await visit.service.store.jobs.retry(job_of(item), visit.owner, item)
    except NotAllowed as refused:
        return redirect_with_notice(visit, path, refused.message, "refused")
    await wake(visit)
    return redirect_with_notice(visit, path, f"Item {show_item(item)} is queued again; its attempts were reset.")


def _download(text: str | None, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response((text or "null").encode("utf-8", "replace"), headers=headers, media_type=JSON)
