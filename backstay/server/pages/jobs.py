"""Jobs: the list, with filter and search in the URL; one job with its items; and pause, resume, cancel, retry and
settling money of unknown outcome. An act that cannot be undone asks first."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from backstay.core.display import show_ceiling
from backstay.core.errors import ErrorCode, NotAllowed, NotFound, UsageError
from backstay.core.ids import POSITIONS_MAX, show_item
from backstay.core.states import ItemState, JobState
from backstay.server import shapes
from backstay.server.api.jobs import UNKNOWN_MICROS_MAX
from backstay.server.api.results import stream_results
from backstay.server.auth import operates
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
from backstay.server.pages.figures import count, count_of, outlook
from backstay.server.pages.layout import Field, redirect_with_notice
from backstay.server.pages.page_request import (
    Visit,
    read_error_code,
    read_flaw,
    visit_to_act,
    visit_to_read,
    whole_number,
)
from backstay.server.problems import Problem
from backstay.server.service import cancel_job
from backstay.server.shapes import item_number, job_number
from backstay.store.dead_letters import LetterFilter
from backstay.store.item_views import ItemFilter
from backstay.store.job_views import FAILURES_COUNTED_MAX, FailureGroup, JobFilter
from backstay.store.jobs import MoneyVerdict
from backstay.store.keys import Role

router = APIRouter(include_in_schema=False)

ROWS: Final = 25
TEXT_MAX: Final = 200


class JobsQuery(NamedTuple):
    """The filter in the query string."""

    state: str = ""
    handler: str = ""
    q: str = ""
    cursor: str = ""

    @property
    def chosen(self) -> JobFilter:
        return JobFilter(self.state or None, self.handler or None, self.q or None)

    @property
    def link(self) -> dict[str, str]:
        return {"state": self.state, "handler": self.handler, "q": self.q}


def jobs_query_of(asked: Mapping[str, str]) -> JobsQuery:
    state = asked.get("state", "")
    return JobsQuery(
        state if state in {known.value for known in JobState} else "",
        asked.get("handler", "")[:TEXT_MAX],
        asked.get("q", "").strip()[:TEXT_MAX],
        asked.get("cursor", ""),
    )


@router.get("/jobs")
async def list_jobs(request: Request) -> Response:
    visit = await visit_to_read(request)
    wanted = jobs_query_of(visit.query)
    direct = await _page_of_id(visit, wanted.q) if wanted.q and not wanted.cursor else None
    if direct is not None:
        return RedirectResponse(direct, 303)
    what = "\0".join(("page-of-jobs", *wanted.link.values()))
    before = shapes.decode(visit.service, visit.owner, what, wanted.cursor or None)
    found, following = await visit.service.store.job_views.choose(visit.owner, wanted.chosen, before, ROWS)
    cursor = shapes.encode(visit.service, visit.owner, what, following)
    now = visit.service.main.clock.now_ms()
    return await layout.show_page(
        visit,
        "jobs.html",
        wanted=wanted,
        jobs=[(job, outlook(job, now)) for job in found],
        states=[state.value for state in JobState],
        first=layout.query("/jobs", wanted.link) if wanted.cursor else None,
        following=layout.query("/jobs", {**wanted.link, "cursor": cursor}) if cursor else None,
    )


async def _page_of_id(visit: Visit, text: str) -> str | None:
    """The page of a job or an item, if the text is the id of one of the visitor's own."""
    store = visit.service.store
    try:
        if "-" in text:
            item = item_number(text)
            await store.item_views.row(item, visit.owner)
            return f"/items/{show_item(item)}"
        job = job_number(text)
        await store.job_views.get(job, visit.owner)
        return f"/jobs/{job}"
    except NotFound:
        return None


Ended = Literal["succeeded", "failed", "skipped", "cancelled"]

ENDED: Final[tuple[Ended, ...]] = ("succeeded", "failed", "skipped", "cancelled")


class ItemsQuery(NamedTuple):
    """The filter for items of a job in the query string."""

    state: str = ""
    code: str = ""
    position: int = 0
    cursor: str = ""

    @property
    def chosen(self) -> ItemFilter:
        return ItemFilter(self.state or None, self.code or None, self.position)

    @property
    def link(self) -> dict[str, str]:
        return {"state": self.state, "code": self.code, "from": str(self.position) if self.position else ""}


class FailuresView(NamedTuple):
    group: FailureGroup
    message: str | None  # of one of them


def items_query_of(asked: Mapping[str, str]) -> ItemsQuery:
    state, code = asked.get("state", ""), asked.get("code", "")
    return ItemsQuery(
        state if state in {known.value for known in ItemState} else "",
        code if code in {known.value for known in ErrorCode} else "",
        whole_number(asked.get("from", ""), POSITIONS_MAX - 1) or 0,
        asked.get("cursor", ""),
    )


@router.get("/jobs/{job_id}")
async def show_job(request: Request, job_id: str) -> Response:
    visit = await visit_to_read(request)
    store, job = visit.service.store, job_number(job_id)
    view = await store.job_views.get(job, visit.owner)
    wanted = items_query_of(visit.query)
    what = "\0".join(("page-of-items", str(job), *wanted.link.values()))
    after = shapes.decode(visit.service, visit.owner, what, wanted.cursor or None)
    items, following = await store.item_views.page(job, visit.owner, wanted.chosen, after, ROWS)
    cursor, path = shapes.encode(visit.service, visit.owner, what, following), f"/jobs/{job}"
    return await layout.show_page(
        visit,
        "job.html",
        job=view,
        outlook=outlook(view, visit.service.main.clock.now_ms()),
        under_way=await store.job_views.under_way(job),
        failures=await _failures(visit, job) if view.failed else [],
        failures_counted_max=FAILURES_COUNTED_MAX,
        acts=await store.events.newest(f"job:{job}", 10),
        wanted=wanted,
        items=items,
        item_states=[state.value for state in ItemState],
        codes=[code.value for code in ErrorCode],
        first=layout.query(path, wanted.link) if wanted.cursor else None,
        following=layout.query(path, {**wanted.link, "cursor": cursor}) if cursor else None,
    )


async def _failures(visit: Visit, job: int) -> list[FailuresView]:
    store = visit.service.store
    groups = await store.job_views.failures(job)
    return [FailuresView(group, (await store.item_views.row(group.example, visit.owner)).message) for group in groups]


@router.get("/jobs/{job_id}/results.jsonl")
async def download_results(request: Request, job_id: str) -> Response:
    """The ended items as a file: all of them, or those with one state."""
    visit = await visit_to_read(request)
    chosen = next((state for state in ENDED if state == visit.query.get("state")), None)
    response = await stream_results(
        visit.principal, visit.service, job_id, chosen, after=-1, payload=chosen == "failed"
    )
    name = f"job-{job_number(job_id)}-{chosen or 'results'}.jsonl"
    response.headers["content-disposition"] = f'attachment; filename="{name}"'
    return response


BOOK: Final = "book"
RELEASE: Final = "release"


@router.post("/jobs/{job_id}/pause")
async def pause(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_act(request), job_number(job_id)
    try:
        await visit.service.client(visit.owner).job(job).pause()
    except NotAllowed as refused:
        return _redirect_refused(visit, job, refused)
    return redirect_with_notice(visit, f"/jobs/{job}", f"Job {job} is paused. Running calls finish.")


@router.post("/jobs/{job_id}/resume")
async def resume(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_act(request), job_number(job_id)
    try:
        await visit.service.client(visit.owner).job(job).resume()
    except NotAllowed as refused:
        return _redirect_refused(visit, job, refused)
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
        return _redirect_refused(visit, job, refused)
    return redirect_with_notice(visit, f"/jobs/{job}", f"Job {job} is being cancelled.")


@router.get("/jobs/{job_id}/retry")
async def ask_retry(request: Request, job_id: str) -> Response:
    """Shows how many items it would queue, and asks. Items whose source file is gone do not count."""
    visit, job = await visit_to_read(request, Role.WRITE), job_number(job_id)
    code, flaw = read_error_code(visit.query.get("code")), read_flaw(visit.query.get("flaw"))
    await visit.service.store.job_views.get(job, visit.owner)
    found = await would_replay(visit, LetterFilter(job, code, flaw=flaw))
    return await layout.ask_to_confirm(
        visit,
        title=f"Retry failed items of job {job}" + (f" with {code}" if code else ""),
        sentences=replay_sentences(found),
        action=f"/jobs/{job}/retry",
        fields={"code": code or "", "flaw": visit.query.get("flaw", ""), "expected": str(found.items)},
        asks=[PACE],
        act=f"Retry {count_of(found.items, 'item')}" if found.items else "",
        back=f"/jobs/{job}",
    )


@router.post("/jobs/{job_id}/retry")
async def retry(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_act(request), job_number(job_id)
    await visit.service.store.job_views.get(job, visit.owner)
    wanted = LetterFilter(job, read_error_code(visit.form.get("code")), flaw=read_flaw(visit.form.get("flaw")))
    done = await replay_letters(visit, wanted, rate_of(visit.form))
    is_vain = done is not None and not done.items
    return redirect_with_notice(visit, f"/jobs/{job}", replayed_sentence(done), "refused" if is_vain else "done")


@router.get("/jobs/{job_id}/settle-unknown")
async def ask_settle_unknown(request: Request, job_id: str) -> Response:
    visit, job = await visit_to_read(request, Role.WRITE), job_number(job_id)
    view, paid = await visit.service.store.job_views.get(job, visit.owner), _is_paid(visit.query)
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
    expected = whole_number(visit.form.get("expected", ""), UNKNOWN_MICROS_MAX)
    if expected is None:
        raise Problem(422, "the form does not contain the amount that it showed", hint="go back and reload the page")
    paid = _is_paid(visit.form)
    shared = operates(visit.principal, visit.service)
    verdict = MoneyVerdict(paid, visit.name, _micros(visit.form.get("amount", "")), expected, shared)
    try:
        micros = await visit.service.store.jobs.settle_unknown(job, visit.owner, verdict)
    except (NotAllowed, UsageError) as refused:
        return _redirect_refused(visit, job, refused)
    await wake(visit)
    done = "booked as spent" if paid else "given back to the budget"
    return redirect_with_notice(visit, f"/jobs/{job}", f"{show_ceiling(micros)} of job {job} is {done}.")


def _is_paid(given: Mapping[str, str]) -> bool:
    act = given.get("act", "")
    if act not in (BOOK, RELEASE):
        raise Problem(400, f"there is no act {act[:40]}", hint=f"act is {BOOK} or {RELEASE}")
    return act == BOOK


def _micros(text: str) -> int | None:
    """An amount of dollars as a person writes it; None: the whole amount."""
    text = text.strip().removeprefix("$").replace(",", ".")
    if not text:
        return None
    whole, _, rest = text.partition(".")
    micros = whole_number(f"{whole or '0'}{rest.ljust(6, '0')}" if len(rest) <= 6 else "", UNKNOWN_MICROS_MAX)
    if micros is None:
        raise Problem(
            422,
            f"{text[:40]!r} is not an amount of dollars",
            hint="write an amount like 1.92, or leave the field empty",
        )
    return micros


def _redirect_refused(visit: Visit, job: int, refused: NotAllowed | UsageError) -> Response:
    return redirect_with_notice(
        visit, f"/jobs/{job}", refused.message[:1].upper() + refused.message[1:] + ".", "refused"
    )
