"""One item: its timeline, request, result, log and cost; retry it, or accept a late result."""

from contextlib import aclosing
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.core.callbacks import result_of
from backstay.core.display import visible
from backstay.core.errors import FilesUnreachable, NotAllowed
from backstay.core.ids import job_of, show_item
from backstay.core.states import ItemState
from backstay.server.api.items import log_chunks, log_pieces, read_result, stream_log
from backstay.server.auth import operates
from backstay.server.cursors import item_number, row_number
from backstay.server.etags import JSON
from backstay.server.pages import layout
from backstay.server.pages.figures import LINES, excerpt
from backstay.server.pages.layout import redirect_with_notice
from backstay.server.pages.page_request import Visit, visit_to_act, visit_to_read
from backstay.server.pages.providers import breaker_events
from backstay.server.pages.timeline import Around, story
from backstay.server.service import Service
from backstay.store.inbox import LateResult
from backstay.store.keys import Role
from backstay.store.story import ItemReport, provider_of, read_item_story

router = APIRouter(include_in_schema=False)

LOG_BYTES_SHOWN: Final = 16_000
LOG_PIECES_MAX: Final = 20
ACTS_LOOKED: Final = 200


class Log(NamedTuple):
    text: str
    is_cut: bool = False
    is_away: bool = False  # the place for files does not answer


@router.get("/items/{item_id}")
async def show(request: Request, item_id: str) -> Response:
    visit = await visit_to_read(request)
    service, number = visit.service, item_number(item_id)
    lease_ms, words = service.backstay.limits.lease_ms, operates(visit.principal, service)
    shown = await read_item_story(service.store, number, visit.owner, lease_ms, shows_words=words)
    last = shown.attempts[-1] if shown.attempts else None
    costs = [attempt.cost_micros for attempt in shown.attempts if attempt.cost_micros is not None]
    return await layout.show_page(
        visit,
        "item.html",
        item=shown.view,
        reasons=shown.reasons,
        story=story(shown.view, shown.attempts, shown.events, await _around(visit, shown)),
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


async def _around(visit: Visit, shown: ItemReport) -> Around:
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
    """The beginning of the handler's log; the page also works without the place for files."""
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
    return _as_file(bodies.payload, f"item-{show_item(item_number(item_id))}-request.json")


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
    return _as_file(_result(late), f"item-{show_item(late.item_id)}-late-result.json")


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


def _as_file(text: str | None, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response((text or "null").encode("utf-8", "replace"), headers=headers, media_type=JSON)
