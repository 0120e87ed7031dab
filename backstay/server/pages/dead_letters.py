"""Dead letters: permanently failed items, grouped by error; a replay counts a group first and then queues it again."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic_core import from_json

from backstay.core.errors import ErrorCode
from backstay.core.outcomes import ANSWER_FLAWS, Flaw
from backstay.server import cursors
from backstay.server.api.pages import job_number
from backstay.server.pages import layout
from backstay.server.pages.figures import counted
from backstay.server.pages.notices import redirected
from backstay.server.pages.page_request import Visit, acted, code_named, seen
from backstay.server.pages.replaying import PACE, rate_of, replay_sentences, replayed, replayed_sentence, would_replay
from backstay.server.problems import Problem
from backstay.store import dead_letters as letters
from backstay.store.keys import Role
from backstay.store.overview import GROUPED_FIRST
from backstay.store.replays import ReplayRow

router = APIRouter(include_in_schema=False)

ROWS: Final = 25
ROWS_BESIDE: Final = 10  # of replays, and of archives
HOUR_MS: Final = 3_600_000
SILENCE_MS: Final = 60_000  # after which a replay that has not all it was to have was broken off
AGES: Final = {"": "of any age", "1": "older than an hour", "24": "older than a day", "168": "older than 7 days"}
FLAWS: Final = {
    "": "any",
    Flaw.UNKNOWN.value: "outcome unknown",
    Flaw.LATE.value: "result came too late",
    **{flaw.value: f"answer {flaw.value}" for flaw in ANSWER_FLAWS},
}


class LettersQuery(NamedTuple):
    """What the query string, or a form, asks for."""

    job: str = ""
    code: str = ""
    hours: str = ""
    cursor: str = ""
    whole: bool = False  # count all, not only the first
    flaw: str = ""

    @property
    def chosen(self) -> letters.LetterFilter:
        job = job_number(self.job) if self.job else None
        return letters.LetterFilter(job, self.code or None, int(self.hours or 0) * HOUR_MS, self.flaw or None)

    @property
    def link(self) -> dict[str, str]:
        return {"job": self.job, "code": self.code, "hours": self.hours, "flaw": self.flaw}

    @property
    def words(self) -> str:
        parts = [f"with {self.code}" if self.code else "", f"of job {self.job}" if self.job else ""]
        parts.append(AGES[self.hours] if self.hours else "")
        parts.append(FLAWS[self.flaw] if self.flaw else "")
        return " ".join(part for part in parts if part) or "all"


class Replay(NamedTuple):
    row: ReplayRow
    words: str
    back: int  # how many were due again by now
    is_broken_off: bool

    @property
    def expected(self) -> int:
        return max(self.row.expected or 0, self.row.items)

    @property
    def goes_on(self) -> bool:
        return self.back < self.expected and not self.is_broken_off


def wanted_of(asked: Mapping[str, str]) -> LettersQuery:
    job = asked.get("job", "").strip()[:40]
    if job:
        job_number(job)
    hours = asked.get("hours", "")
    if hours not in AGES:  # treated as any age, more would be replayed than was asked for
        raise Problem(400, f"there is no age {hours[:40]}", hint=f"hours is {', '.join(filter(None, AGES))} or empty")
    flaw = asked.get("flaw", "")
    if flaw not in FLAWS:  # the same
        raise Problem(400, f"there is no flaw {flaw[:40]}", hint=f"flaw is {', '.join(filter(None, FLAWS))} or empty")
    code = code_named(asked.get("code")) or ""
    return LettersQuery(job, code, hours, asked.get("cursor", ""), asked.get("whole") == "1", flaw)


@router.get("/dead-letters")
async def list_letters(request: Request) -> Response:
    visit = await seen(request)
    store, wanted = visit.service.store, wanted_of(visit.asked)
    chosen = wanted.chosen
    what = "\0".join(("page-of-letters", *wanted.link.values()))
    before = cursors.take(visit.service, visit.owner, what, wanted.cursor or None)
    found, following = await store.dead_letters.page(visit.owner, chosen, before, ROWS)
    cursor = cursors.give(visit.service, visit.owner, what, following)
    looked = letters.GROUPED_MAX if wanted.whole else GROUPED_FIRST
    return await layout.shown(
        visit,
        "dead_letters.html",
        wanted=wanted,
        dead=await store.overview.dead_groups(visit.owner, chosen.job_id, looked),
        looked=looked,
        whole=layout.query("/dead-letters", {**wanted.link, "whole": "1", "replays": visit.asked.get("replays")}),
        letters=found,
        ages=AGES,
        flaws=FLAWS,
        codes=[code.value for code in ErrorCode],
        filter=layout.query("", wanted.link),
        first=layout.query("/dead-letters", wanted.link) if wanted.cursor else None,
        following=layout.query("/dead-letters", {**wanted.link, "cursor": cursor}) if cursor else None,
        **await _beside(visit, wanted),
    )


async def _beside(visit: Visit, wanted: LettersQuery) -> dict[str, Any]:
    """What was done to dead letters before, the last first; the older on pages of their own."""
    store, now = visit.service.store, visit.service.main.clock.now_ms()
    lists: dict[str, Any] = {}
    for name, page in (("replays", store.replays.page), ("archives", store.archives.page)):
        what = f"page-of-{name}"
        before = cursors.take(visit.service, visit.owner, what, visit.asked.get(name) or None)
        rows: list[Any] = await page(visit.owner, before, ROWS_BESIDE)
        following = cursors.give(visit.service, visit.owner, what, rows[-1].id if len(rows) == ROWS_BESIDE else None)
        lists[name] = [_replay(row, now) for row in rows] if name == "replays" else rows
        older = layout.query("/dead-letters", {**wanted.link, name: following})
        lists[f"older_{name}"] = older if following else None
        lists[f"newest_{name}"] = layout.query("/dead-letters", wanted.link) if before else None
    return lists


def _replay(row: ReplayRow, now: int) -> Replay:
    said = from_json(row.filter)
    hours = said.get("older_than_seconds", 0) / 3_600
    parts = [f"with {said['code']}" if "code" in said else "", f"of job {said['job']}" if "job" in said else ""]
    parts += [
        f"older than {hours:g} h" if hours else "",
        FLAWS.get(said.get("flaw", ""), "") if "flaw" in said else "",
        f"{counted(said['named'], 'item')} by name" if "named" in said else "",
    ]
    back = row.items
    if row.until_at is not None and row.until_at > now:
        back = row.items * max(now - row.at, 0) // max(row.until_at - row.at, 1)
    silent = now - (row.until_at or row.at) > SILENCE_MS
    words = " ".join(part for part in parts if part) or "all"
    return Replay(row, words, back, silent and row.items < (row.expected or 0))


@router.get("/dead-letters/replay")
async def ask_replay(request: Request) -> Response:
    """Counts first."""
    visit = await seen(request, Role.WRITE)
    wanted = await checked(visit, wanted_of(visit.asked))
    found = await would_replay(visit, wanted.chosen)
    return await layout.asked(
        visit,
        title=f"Replay dead letters: {wanted.words}",
        sentences=replay_sentences(found),
        action="/dead-letters/replay",
        fields={**wanted.link, "expected": str(found.items)},
        asks=[PACE],
        act=f"Replay {counted(found.items, 'item')}" if found.items else "",
        back=layout.query("/dead-letters", wanted.link),
    )


@router.post("/dead-letters/replay")
async def replay(request: Request) -> Response:
    visit = await acted(request)
    wanted = await checked(visit, wanted_of(visit.form))
    done = await replayed(visit, wanted.chosen, rate_of(visit.form))
    is_vain = done is not None and not done.items
    return redirected(visit, "/dead-letters", replayed_sentence(done), "refused" if is_vain else "done")


async def checked(visit: Visit, wanted: LettersQuery) -> LettersQuery:
    """A named job must belong to the owner; otherwise "not found" would look like "nothing failed"."""
    if wanted.job:
        await visit.service.store.views.job(job_number(wanted.job), visit.owner)
    return wanted
