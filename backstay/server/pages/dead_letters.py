"""Dead letters: what failed for good, in groups by error; a group is counted first and then queued afresh."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.core.errors import ErrorCode
from backstay.server import cursors
from backstay.server.api.pages import job_number
from backstay.server.pages import shell
from backstay.server.pages.figures import counted
from backstay.server.pages.flash import redirected
from backstay.server.pages.job_acts import code_named, replay_sentences, replayed, retried_sentence, would_replay
from backstay.server.pages.visit import Visit, acted, seen
from backstay.store import dead_letters as letters
from backstay.store.keys import Role

router = APIRouter(include_in_schema=False)

ROWS: Final = 25
HOUR_MS: Final = 3_600_000
AGES: Final = {"": "of any age", "1": "older than an hour", "24": "older than a day", "168": "older than 7 days"}


class Wanted(NamedTuple):
    """What the query string, or a form, asks for."""

    job: str = ""
    code: str = ""
    hours: str = ""
    cursor: str = ""

    @property
    def chosen(self) -> letters.Wanted:
        job = job_number(self.job) if self.job else None
        return letters.Wanted(job, self.code or None, int(self.hours or 0) * HOUR_MS)

    @property
    def link(self) -> dict[str, str]:
        return {"job": self.job, "code": self.code, "hours": self.hours}

    @property
    def words(self) -> str:
        parts = [f"with {self.code}" if self.code else "", f"of job {self.job}" if self.job else ""]
        parts.append(AGES[self.hours] if self.hours else "")
        return " ".join(part for part in parts if part) or "all"


def wanted_of(asked: Mapping[str, str]) -> Wanted:
    job = asked.get("job", "").strip()[:40]
    if job:
        job_number(job)
    hours = asked.get("hours", "")
    return Wanted(job, code_named(asked.get("code")) or "", hours if hours in AGES else "", asked.get("cursor", ""))


@router.get("/dead-letters")
async def list_letters(request: Request) -> Response:
    visit = await seen(request)
    store, wanted = visit.service.store, wanted_of(visit.asked)
    chosen = wanted.chosen
    what = "\0".join(("page-of-letters", *wanted.link.values()))
    before = cursors.take(visit.service, visit.owner, what, wanted.cursor or None)
    found, following = await store.dead_letters.page(visit.owner, chosen, before, ROWS)
    cursor = cursors.give(visit.service, visit.owner, what, following)
    return await shell.shown(
        visit,
        "dead_letters.html",
        wanted=wanted,
        groups=await store.overview.dead_groups(visit.owner, chosen.job_id),
        costs=await store.overview.dead_costs(visit.owner, chosen.job_id),
        letters=found,
        ages=AGES,
        codes=[code.value for code in ErrorCode],
        replay=shell.query("/dead-letters/replay", wanted.link),
        first=shell.query("/dead-letters", wanted.link) if wanted.cursor else None,
        following=shell.query("/dead-letters", {**wanted.link, "cursor": cursor}) if cursor else None,
    )


@router.get("/dead-letters/replay")
async def ask_replay(request: Request) -> Response:
    """Counts first."""
    visit = await seen(request, Role.WRITE)
    wanted = await _checked(visit, wanted_of(visit.asked))
    found = await would_replay(visit, wanted.chosen)
    return await shell.shown(
        visit,
        "confirm.html",
        title=f"Replay dead letters: {wanted.words}",
        sentences=replay_sentences(found),
        action="/dead-letters/replay",
        fields=wanted.link,
        act=f"Replay {counted(found.items, 'item')}" if found.items else "",
        danger=False,
        back=shell.query("/dead-letters", wanted.link),
    )


@router.post("/dead-letters/replay")
async def replay(request: Request) -> Response:
    visit = await acted(request)
    wanted = await _checked(visit, wanted_of(visit.form))
    done = await replayed(visit, wanted.chosen)
    return redirected(visit, "/dead-letters", retried_sentence(done), "done" if done.items else "refused")


async def _checked(visit: Visit, wanted: Wanted) -> Wanted:
    """A job that is named must be the owner's, or nothing would be told apart from nothing failed."""
    if wanted.job:
        await visit.service.store.views.job(job_number(wanted.job), visit.owner)
    return wanted
