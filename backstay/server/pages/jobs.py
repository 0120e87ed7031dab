"""Jobs: the list, with a filter and a search that live in the URL; and one job with its items."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from backstay.core.errors import ErrorCode, NotFound
from backstay.core.ids import POSITIONS_MAX, show_item
from backstay.core.states import ItemState, JobState
from backstay.server import cursors
from backstay.server.api.results import stream_results
from backstay.server.cursors import item_number, job_number
from backstay.server.pages import layout
from backstay.server.pages.figures import outlook
from backstay.server.pages.page_request import Visit, visit_to_read, whole_number
from backstay.store.item_views import ItemFilter
from backstay.store.job_views import FAILURES_COUNTED_MAX, FailureGroup, JobFilter

router = APIRouter(include_in_schema=False)

ROWS: Final = 25
TEXT_MAX: Final = 200


class JobsQuery(NamedTuple):
    """What the query string asks for."""

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


def wanted_of(asked: Mapping[str, str]) -> JobsQuery:
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
    wanted = wanted_of(visit.asked)
    direct = await _named(visit, wanted.q) if wanted.q and not wanted.cursor else None
    if direct is not None:
        return RedirectResponse(direct, 303)
    what = "\0".join(("page-of-jobs", *wanted.link.values()))
    before = cursors.take(visit.service, visit.owner, what, wanted.cursor or None)
    found, following = await visit.service.store.job_views.choose(visit.owner, wanted.chosen, before, ROWS)
    cursor = cursors.give(visit.service, visit.owner, what, following)
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


async def _named(visit: Visit, text: str) -> str | None:
    """A search for an id of the visitor's own leads straight to its page."""
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
    """Which of its items the query string asks for."""

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
    wanted = items_query_of(visit.asked)
    what = "\0".join(("page-of-items", str(job), *wanted.link.values()))
    after = cursors.take(visit.service, visit.owner, what, wanted.cursor or None)
    items, following = await store.item_views.page(job, visit.owner, wanted.chosen, after, ROWS)
    cursor, path = cursors.give(visit.service, visit.owner, what, following), f"/jobs/{job}"
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
    """What has ended so far, all or with one state, as a file."""
    visit = await visit_to_read(request)
    chosen = next((state for state in ENDED if state == visit.asked.get("state")), None)
    response = await stream_results(
        visit.principal, visit.service, job_id, chosen, after=-1, payload=chosen == "failed"
    )
    name = f"job-{job_number(job_id)}-{chosen or 'results'}.jsonl"
    response.headers["content-disposition"] = f'attachment; filename="{name}"'
    return response
