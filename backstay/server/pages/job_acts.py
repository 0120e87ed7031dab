"""What a person does to a job: pause, resume, cancel, retry. What cannot be undone is counted and asked first."""

from fastapi import APIRouter, Request, Response

from backstay.core.errors import NotAllowed
from backstay.core.ids import job_of, show_item
from backstay.server.api.pages import item_number, job_number
from backstay.server.pages import shell
from backstay.server.pages.figures import count, counted
from backstay.server.pages.flash import redirected
from backstay.server.pages.replaying import (
    PACE,
    rate_of,
    replay_sentences,
    replayed,
    replayed_sentence,
    wake,
    would_replay,
)
from backstay.server.pages.visit import Visit, acted, code_named, seen
from backstay.server.stopping import cancel_job
from backstay.store.dead_letters import Wanted
from backstay.store.keys import Role

router = APIRouter(include_in_schema=False)


@router.post("/jobs/{job_id}/pause")
async def pause(request: Request, job_id: str) -> Response:
    visit, job = await acted(request), job_number(job_id)
    try:
        await visit.service.client(visit.owner).job(job).pause()
    except NotAllowed as refused:
        return _refused(visit, job, refused)
    return redirected(visit, f"/jobs/{job}", f"Job {job} is paused. What is under way goes on to its end.")


@router.post("/jobs/{job_id}/resume")
async def resume(request: Request, job_id: str) -> Response:
    visit, job = await acted(request), job_number(job_id)
    try:
        await visit.service.client(visit.owner).job(job).resume()
    except NotAllowed as refused:
        return _refused(visit, job, refused)
    visit.service.wake()
    return redirected(visit, f"/jobs/{job}", f"Job {job} goes on.")


@router.get("/jobs/{job_id}/cancel")
async def ask_cancel(request: Request, job_id: str) -> Response:
    visit, job = await seen(request, Role.WRITE), job_number(job_id)
    view = await visit.service.store.views.job(job, visit.owner)
    left = view.total - view.done
    sentences = [
        f"{counted(left, 'item')} of {count(view.total)} have not ended: they will not be done.",
        "What is at the provider is given up, and may have been paid. There is no way back.",
    ]
    return await shell.asked(
        visit,
        title=f"Cancel job {job}?",
        sentences=sentences if not view.ended else [f"Job {job} is {view.state.value}: there is nothing to cancel."],
        action=f"/jobs/{job}/cancel",
        act=f"Cancel {counted(left, 'item')}" if not view.ended else "",
        danger=True,
        back=f"/jobs/{job}",
    )


@router.post("/jobs/{job_id}/cancel")
async def cancel(request: Request, job_id: str) -> Response:
    visit, job = await acted(request), job_number(job_id)
    try:
        await cancel_job(visit.service, job, visit.owner)
    except NotAllowed as refused:
        return _refused(visit, job, refused)
    return redirected(visit, f"/jobs/{job}", f"Job {job} is being cancelled.")


@router.get("/jobs/{job_id}/retry")
async def ask_retry(request: Request, job_id: str) -> Response:
    """Counts first: what it would queue, without those whose sources are gone."""
    visit, job = await seen(request, Role.WRITE), job_number(job_id)
    code = code_named(visit.asked.get("code"))
    await visit.service.store.views.job(job, visit.owner)
    found = await would_replay(visit, Wanted(job, code))
    return await shell.asked(
        visit,
        title=f"Retry what failed of job {job}" + (f" with {code}" if code else ""),
        sentences=replay_sentences(found),
        action=f"/jobs/{job}/retry",
        fields={"code": code or "", "expected": str(found.items)},
        asks=[PACE],
        act=f"Retry {counted(found.items, 'item')}" if found.items else "",
        back=f"/jobs/{job}",
    )


@router.post("/jobs/{job_id}/retry")
async def retry(request: Request, job_id: str) -> Response:
    visit, job = await acted(request), job_number(job_id)
    await visit.service.store.views.job(job, visit.owner)
    done = await replayed(visit, Wanted(job, code_named(visit.form.get("code"))), rate_of(visit.form))
    is_vain = done is not None and not done.items
    return redirected(visit, f"/jobs/{job}", replayed_sentence(done), "refused" if is_vain else "done")


@router.post("/items/{item_id}/retry")
async def retry_item(request: Request, item_id: str) -> Response:
    visit, item = await acted(request), item_number(item_id)
    path = f"/items/{show_item(item)}"
    await visit.service.store.listing.item(item, visit.owner)
    try:
        await visit.service.store.retry(job_of(item), visit.owner, item)
    except NotAllowed as refused:
        return redirected(visit, path, refused.message, "refused")
    await wake(visit)
    return redirected(visit, path, f"Item {show_item(item)} is queued afresh, with all its attempts before it.")


def _refused(visit: Visit, job: int, refused: NotAllowed) -> Response:
    return redirected(visit, f"/jobs/{job}", refused.message[:1].upper() + refused.message[1:] + ".", "refused")
