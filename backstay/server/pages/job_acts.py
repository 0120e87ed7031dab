"""What a person does to a job: pause, resume, cancel, retry, and settle money of unknown outcome. What cannot be
undone is counted and asked first."""

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request, Response

from backstay.core.display import show_ceiling
from backstay.core.errors import NotAllowed, UsageError
from backstay.core.ids import job_of, show_item
from backstay.server.api.jobs import MICROS_MAX
from backstay.server.auth import operates
from backstay.server.cursors import item_number, job_number
from backstay.server.job_control import cancel_job
from backstay.server.pages import layout
from backstay.server.pages.dead_letters import (
    PACE,
    rate_of,
    replay_letters,
    replay_sentences,
    replayed_sentence,
    wake,
    would_replay,
)
from backstay.server.pages.figures import count, count_of
from backstay.server.pages.layout import Field, redirect_with_notice
from backstay.server.pages.page_request import Visit, code_named, flaw_named, visit_to_act, visit_to_read, whole_number
from backstay.server.problems import Problem
from backstay.store.dead_letters import LetterFilter
from backstay.store.jobs import MoneyVerdict
from backstay.store.keys import Role

router = APIRouter(include_in_schema=False)

BOOK: Final = "book"
RELEASE: Final = "release"


@router.post("/jobs/{job_id}/pause")
async def pause(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_act(request), job_number(job_id)
    try:
        await visit.service.client(visit.owner).job(job).pause()
    except NotAllowed as refused:
        return _refused(visit, job, refused)
    return redirect_with_notice(visit, f"/jobs/{job}", f"Job {job} is paused. Running calls finish.")


@router.post("/jobs/{job_id}/resume")
async def resume(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_act(request), job_number(job_id)
    try:
        await visit.service.client(visit.owner).job(job).resume()
    except NotAllowed as refused:
        return _refused(visit, job, refused)
    visit.service.wake()
    return redirect_with_notice(visit, f"/jobs/{job}", f"Job {job} is resumed.")


@router.get("/jobs/{job_id}/cancel")
async def ask_cancel(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_read(request, Role.WRITE), job_number(job_id)
    view = await visit.service.store.job_views.get(job, visit.owner)
    left = view.total - view.done
    sentences = [
        f"{count_of(left, 'item')} of {count(view.total)} have not ended and will be cancelled.",
        "Running calls may finish; calls that are cut off may have been paid. This cannot be undone.",
    ]
    return await layout.ask_to_confirm(
        visit,
        title=f"Cancel job {job}?",
        sentences=sentences if not view.ended else [f"Job {job} is {view.state.value}: there is nothing to cancel."],
        action=f"/jobs/{job}/cancel",
        act=f"Cancel {count_of(left, 'item')}" if not view.ended else "",
        danger=True,
        back=f"/jobs/{job}",
    )


@router.post("/jobs/{job_id}/cancel")
async def cancel(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_act(request), job_number(job_id)
    try:
        await cancel_job(visit.service, job, visit.owner)
    except NotAllowed as refused:
        return _refused(visit, job, refused)
    return redirect_with_notice(visit, f"/jobs/{job}", f"Job {job} is being cancelled.")


@router.get("/jobs/{job_id}/retry")
async def ask_retry(request: Request, job_id: str) -> Response:
    """Counts first: what it would queue, without those whose sources are gone."""
    visit, job = await visit_to_read(request, Role.WRITE), job_number(job_id)
    code, flaw = code_named(visit.asked.get("code")), flaw_named(visit.asked.get("flaw"))
    await visit.service.store.job_views.get(job, visit.owner)
    found = await would_replay(visit, LetterFilter(job, code, flaw=flaw))
    return await layout.ask_to_confirm(
        visit,
        title=f"Retry failed items of job {job}" + (f" with {code}" if code else ""),
        sentences=replay_sentences(found),
        action=f"/jobs/{job}/retry",
        fields={"code": code or "", "flaw": visit.asked.get("flaw", ""), "expected": str(found.items)},
        asks=[PACE],
        act=f"Retry {count_of(found.items, 'item')}" if found.items else "",
        back=f"/jobs/{job}",
    )


@router.post("/jobs/{job_id}/retry")
async def retry(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_act(request), job_number(job_id)
    await visit.service.store.job_views.get(job, visit.owner)
    wanted = LetterFilter(job, code_named(visit.form.get("code")), flaw=flaw_named(visit.form.get("flaw")))
    done = await replay_letters(visit, wanted, rate_of(visit.form))
    is_vain = done is not None and not done.items
    return redirect_with_notice(visit, f"/jobs/{job}", replayed_sentence(done), "refused" if is_vain else "done")


@router.get("/jobs/{job_id}/settle-unknown")
async def ask_settle_unknown(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_read(request, Role.WRITE), job_number(job_id)
    view, paid = await visit.service.store.job_views.get(job, visit.owner), _is_paid(visit.asked)
    amount = show_ceiling(view.unknown_micros)
    if paid:
        title, then = f"Book money that job {job} may have spent", "The money then counts as spent."
    else:
        title, then = f"Release money that job {job} may have spent", "The money is then available to the budget again."
    why = f"It is not known whether {amount} was paid: the answers were lost. Check the provider's bill."
    return await layout.ask_to_confirm(
        visit,
        title=title,
        sentences=[why, f"{then} This cannot be undone."] if view.unknown_micros else ["There is nothing to settle."],
        action=f"/jobs/{job}/settle-unknown",
        fields={"act": BOOK if paid else RELEASE, "expected": str(view.unknown_micros)},
        asks=[Field("amount", "Dollars", f"Leave empty for the whole amount: {amount}.")],
        act=("Book it as spent" if paid else "Release it") if view.unknown_micros else "",
        danger=not paid,
        back=f"/jobs/{job}",
    )


@router.post("/jobs/{job_id}/settle-unknown")
async def settle_unknown(request: Request, job_id: str) -> Response:
    """Settles only the sum that the form showed: sent twice, or after the sum has changed, it changes nothing."""
    visit, job = await visit_to_act(request), job_number(job_id)
    expected = whole_number(visit.form.get("expected", ""), MICROS_MAX)
    if expected is None:
        raise Problem(422, "the form does not contain the amount that it showed", hint="go back and reload the page")
    paid = _is_paid(visit.form)
    shared = operates(visit.principal, visit.service)
    verdict = MoneyVerdict(paid, visit.name, _micros(visit.form.get("amount", "")), expected, shared)
    try:
        micros = await visit.service.store.jobs.settle_unknown(job, visit.owner, verdict)
    except (NotAllowed, UsageError) as refused:
        return _refused(visit, job, refused)
    await wake(visit)
    done = "booked as spent" if paid else "given back to the budget"
    return redirect_with_notice(visit, f"/jobs/{job}", f"{show_ceiling(micros)} of job {job} is {done}.")


def _is_paid(given: Mapping[str, str]) -> bool:
    act = given.get("act", "")
    if act not in (BOOK, RELEASE):
        raise Problem(400, f"there is no act {act[:40]}", hint=f"act is {BOOK} or {RELEASE}")
    return act == BOOK


def _micros(text: str) -> int | None:
    """An amount of dollars as a person writes it; None for all there is."""
    text = text.strip().removeprefix("$").replace(",", ".")
    if not text:
        return None
    whole, _, rest = text.partition(".")
    micros = whole_number(f"{whole or '0'}{rest.ljust(6, '0')}" if len(rest) <= 6 else "", MICROS_MAX)
    if micros is None:
        raise Problem(
            422,
            f"{text[:40]!r} is not an amount of dollars",
            hint="write an amount like 1.92, or leave the field empty",
        )
    return micros


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


def _refused(visit: Visit, job: int, refused: NotAllowed | UsageError) -> Response:
    return redirect_with_notice(
        visit, f"/jobs/{job}", refused.message[:1].upper() + refused.message[1:] + ".", "refused"
    )
