"""Archives of dead letters: what an admin puts away into files, and brings back."""

from typing import Final, Literal

from fastapi import APIRouter, Request, Response

from backstay.server.api.pages import row_number
from backstay.server.pages import layout
from backstay.server.pages.dead_letters import AGES, LettersQuery, checked, wanted_of
from backstay.server.pages.figures import count, counted
from backstay.server.pages.notices import redirected
from backstay.server.pages.page_request import acted, seen
from backstay.server.pages.replaying import begun, wake
from backstay.server.problems import Problem
from backstay.store.dead_letters import GROUPED_MAX
from backstay.store.keys import Role
from backstay.upkeep.archivist import Archivist
from backstay.upkeep.retention import PASS_ITEMS_MAX, Retention, bounds_of

router = APIRouter(include_in_schema=False)

BACK: Final = "/dead-letters#archives"


@router.get("/dead-letters/archive")
async def ask_archive(request: Request) -> Response:
    """Counts first, as far as one page counts."""
    visit = await seen(request, Role.ADMIN)
    wanted = await checked(visit, _by_error(wanted_of(visit.asked)))
    dead = await visit.service.store.overview.dead_groups(visit.owner, wanted.chosen.job_id, GROUPED_MAX)
    items = sum(group.items for group in dead.found.groups if wanted.code in ("", group.error_code))
    many = ("" if dead.found.complete else "more than ") + counted(items, "dead letter")
    which = f", if they are {AGES[wanted.hours]}" if wanted.hours else ""
    sentences = [
        f"Of {many}, those whose jobs have ended move into files{which}; at most {count(PASS_ITEMS_MAX)} at once.",
        "Archived items cannot be replayed until you restore them. Restoring brings them back completely.",
    ]
    return await layout.asked(
        visit,
        title=f"Archive dead letters: {wanted.words}",
        sentences=sentences if items else ["There is nothing to archive."],
        action="/dead-letters/archive",
        fields=wanted.link,
        act="Archive" if items else "",
        back=layout.query("/dead-letters", wanted.link),
    )


@router.post("/dead-letters/archive")
async def archive(request: Request) -> Response:
    visit = await acted(request, Role.ADMIN)
    wanted, service = await checked(visit, _by_error(wanted_of(visit.form))), visit.service
    bounds = bounds_of(service.backstay.settings)
    retention = Retention(service.store.archives, service.artifacts, service.main.clock, bounds)
    items = await begun(visit, retention.archive(visit.owner, wanted.chosen))
    if items is None:
        return redirected(visit, BACK, "Archiving has started; each archive is listed when it is complete.")
    said = (
        f"{counted(items, 'dead letter')} archived."
        if items
        else "Nothing was archived: the jobs of these items have not ended."
    )
    return redirected(visit, BACK, said, _kind(items))


@router.post("/dead-letters/archives/{number}/restore")
async def restore(request: Request, number: str) -> Response:
    visit = await acted(request, Role.ADMIN)
    service = visit.service
    found = await service.store.archives.archive(row_number(number, "archive"), visit.owner)
    archivist = Archivist(service.store.archives, service.artifacts, service.main.clock)
    items = await begun(visit, archivist.restore(found, bounds_of(service.backstay.settings).age_ms))
    await wake(visit)
    if items is None:
        return redirected(visit, BACK, f"Archive {found.id} is being restored.")
    said = f"{counted(items, 'dead letter')} of archive {found.id} restored."
    return redirected(visit, BACK, said if items else f"Archive {found.id} was already restored.", _kind(items))


def _by_error(wanted: LettersQuery) -> LettersQuery:
    """Retention knows no flaws, only error and age: without this check it would archive more than was asked for."""
    if wanted.flaw:
        raise Problem(400, "dead letters cannot be archived by outcome", hint="filter by error, job and age instead")
    return wanted


def _kind(items: int) -> Literal["done", "refused"]:
    return "done" if items else "refused"
