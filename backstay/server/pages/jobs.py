"""Jobs: the list, with a filter and a search that live in the URL."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from backstay.core.errors import NotFound
from backstay.core.ids import show_item
from backstay.core.states import JobState
from backstay.server import cursors
from backstay.server.api.pages import item_number, job_number
from backstay.server.pages import layout
from backstay.server.pages.forecasts import outlook
from backstay.server.pages.page_request import Visit, seen
from backstay.store.listing import JobFilter

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
    visit = await seen(request)
    wanted = wanted_of(visit.asked)
    direct = await _named(visit, wanted.q) if wanted.q and not wanted.cursor else None
    if direct is not None:
        return RedirectResponse(direct, 303)
    what = "\0".join(("page-of-jobs", *wanted.link.values()))
    before = cursors.take(visit.service, visit.owner, what, wanted.cursor or None)
    found, following = await visit.service.store.listing.jobs(visit.owner, wanted.chosen, before, ROWS)
    cursor = cursors.give(visit.service, visit.owner, what, following)
    now = visit.service.main.clock.now_ms()
    return await layout.shown(
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
            await store.listing.item(item, visit.owner)
            return f"/items/{show_item(item)}"
        job = job_number(text)
        await store.views.job(job, visit.owner)
        return f"/jobs/{job}"
    except NotFound:
        return None
