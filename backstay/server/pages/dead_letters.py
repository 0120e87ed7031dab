"""Dead letters: failed items, grouped by error; their replay, and their archives."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic_core import from_json

from backstay.clock import HOUR_MS
from backstay.core.errors import BackstayError, ErrorCode
from backstay.core.events import Trouble
from backstay.core.models import ANSWERED, Flaw
from backstay.server import shapes
from backstay.server.pages import layout
from backstay.server.pages.figures import count, count_of
from backstay.server.pages.layout import Field, redirect_with_notice
from backstay.server.pages.page_request import Visit, read_error_code, visit_to_act, visit_to_read, whole_number
from backstay.server.problems import Problem
from backstay.server.shapes import job_number, row_number
from backstay.store import dead_letters as letters
from backstay.store.dead_letters import (
    CHUNK_ITEMS,
    GROUPED_FIRST,
    GROUPED_MAX,
    RATE_MAX,
    RATE_MIN,
    REPLAY_ITEMS_MAX,
    LetterFilter,
    Replayed,
    ReplayRequest,
    ReplayRow,
)
from backstay.store.keys import Role
from backstay.upkeep.archivist import Archivist
from backstay.upkeep.loop import PASS_ITEMS_MAX, Retention, bounds_of

T = TypeVar("T")

PATIENCE_SECONDS: Final = 5.0  # how long a form waits for its replay; then it continues in the background
PACE: Final = Field(
    "rate", "Items per second", "Leave empty to queue all at once. A slow replay must finish within 7 days."
)


async def would_replay(visit: Visit, wanted: LetterFilter) -> Replayed:
    return await visit.service.store.replays.replay(visit.owner, wanted, None)


async def replay_letters(visit: Visit, wanted: LetterFilter, rate: float | None) -> Replayed | None:
    """None if there is so much that it continues in the background."""
    counted_before = whole_number(visit.form.get("expected", ""), REPLAY_ITEMS_MAX + CHUNK_ITEMS)
    by = ReplayRequest(visit.principal.key_id or visit.owner, rate, counted_before)
    done = await finish_or_continue(visit, visit.service.store.replays.replay(visit.owner, wanted, by))
    await wake(visit)
    return done


async def finish_or_continue(visit: Visit, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of some work if it is quick; otherwise the work continues after the answer."""
    service = visit.service
    task: asyncio.Task[T] = service.tasks.spawn(work)
    await asyncio.wait([task], timeout=PATIENCE_SECONDS)
    if task.done():
        return task.result()

    def tell(ended: asyncio.Task[T]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if isinstance(error, BackstayError):
            service.backstay.bus.emit(Trouble("dead letters", str(error)))
        elif error is not None:
            raise error
        service.wake()

    task.add_done_callback(tell)
    return None


async def wake(visit: Visit) -> None:
    await visit.service.store.notify()
    visit.service.wake()


def rate_of(form: Mapping[str, str]) -> float | None:
    text = form.get("rate", "").strip().replace(",", ".")
    if not text:
        return None
    try:
        rate = float(text[:20])
    except ValueError:
        rate = 0.0
    if not RATE_MIN <= rate <= RATE_MAX:
        span = f"{RATE_MIN:g} to {RATE_MAX:,g}"
        raise Problem(422, f"the pace must be {span} items per second", hint="leave the field empty for all at once")
    return rate


def replay_sentences(found: Replayed) -> list[str]:
    if not found.items:
        return ["There are no failed items to retry: they were retried already, or their source files are gone."]
    more = " There are more; they follow later." if found.more else ""
    return [
        f"{count_of(found.items, 'failed item')} will be queued again; their attempts are reset.{more}",
        "Each item may be sent to the provider and paid again. Items whose source file is gone are skipped.",
    ]


def replayed_sentence(done: Replayed | None) -> str:
    if done is None:
        return "The items are being queued again; the list of replays shows the progress."
    if not done.items:
        return "Nothing was retried: there are no failed items to retry."
    more = " There are more: replay again." if done.more else ""
    return f"{count_of(done.items, 'item')} queued again.{more}"


router = APIRouter(include_in_schema=False)

ROWS: Final = 25
ROWS_BESIDE: Final = 10  # of replays, and of archives
SILENCE_MS: Final = 60_000  # an incomplete replay that is silent for this long was interrupted
AGES: Final = {"": "of any age", "1": "older than an hour", "24": "older than a day", "168": "older than 7 days"}
FLAWS: Final = {
    "": "any",
    Flaw.UNKNOWN.value: "outcome unknown",
    Flaw.LATE.value: "result came too late",
    **{flaw.value: f"answer {flaw.value}" for flaw in ANSWERED},
}


class LettersQuery(NamedTuple):
    """The filter in the query string, or in a form."""

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
    back: int  # how many are due again by now
    is_broken_off: bool

    @property
    def expected(self) -> int:
        return max(self.row.expected or 0, self.row.items)

    @property
    def goes_on(self) -> bool:
        return self.back < self.expected and not self.is_broken_off


def letters_query_of(asked: Mapping[str, str]) -> LettersQuery:
    job = asked.get("job", "").strip()[:40]
    if job:
        job_number(job)
    hours = asked.get("hours", "")
    if hours not in AGES:  # as any age, more items would be replayed than the form shows
        raise Problem(400, f"there is no age {hours[:40]}", hint=f"hours is {', '.join(filter(None, AGES))} or empty")
    flaw = asked.get("flaw", "")
    if flaw not in FLAWS:  # for the same reason
        raise Problem(400, f"there is no flaw {flaw[:40]}", hint=f"flaw is {', '.join(filter(None, FLAWS))} or empty")
    code = read_error_code(asked.get("code")) or ""
    return LettersQuery(job, code, hours, asked.get("cursor", ""), asked.get("whole") == "1", flaw)


@router.get("/dead-letters")
async def list_letters(request: Request) -> Response:
    visit = await visit_to_read(request)
    store, wanted = visit.service.store, letters_query_of(visit.query)
    chosen = wanted.chosen
    what = "\0".join(("page-of-letters", *wanted.link.values()))
    before = shapes.decode(visit.service, visit.owner, what, wanted.cursor or None)
    found, following = await store.dead_letters.page(visit.owner, chosen, before, ROWS)
    cursor = shapes.encode(visit.service, visit.owner, what, following)
    looked = letters.GROUPED_MAX if wanted.whole else GROUPED_FIRST
    return await layout.show_page(
        visit,
        "dead_letters.html",
        wanted=wanted,
        dead=await store.dead_letters.costly_groups(visit.owner, chosen.job_id, looked),
        looked=looked,
        whole=layout.query("/dead-letters", {**wanted.link, "whole": "1", "replays": visit.query.get("replays")}),
        letters=found,
        ages=AGES,
        flaws=FLAWS,
        codes=[code.value for code in ErrorCode],
        filter=layout.query("", wanted.link),
        first=layout.query("/dead-letters", wanted.link) if wanted.cursor else None,
        following=layout.query("/dead-letters", {**wanted.link, "cursor": cursor}) if cursor else None,
        **await _past_actions(visit, wanted),
    )


async def _past_actions(visit: Visit, wanted: LettersQuery) -> dict[str, Any]:
    """Past replays and archives, the newest first; older ones are on further pages."""
    store, now = visit.service.store, visit.service.main.clock.now_ms()
    lists: dict[str, Any] = {}
    for name, page in (("replays", store.replays.page), ("archives", store.archives.page)):
        what = f"page-of-{name}"
        before = shapes.decode(visit.service, visit.owner, what, visit.query.get(name) or None)
        rows: list[Any] = await page(visit.owner, before, ROWS_BESIDE)
        following = shapes.encode(visit.service, visit.owner, what, rows[-1].id if len(rows) == ROWS_BESIDE else None)
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
        f"{count_of(said['named'], 'item')} by name" if "named" in said else "",
    ]
    back = row.items
    if row.until_at is not None and row.until_at > now:
        back = row.items * max(now - row.at, 0) // max(row.until_at - row.at, 1)
    silent = now - (row.until_at or row.at) > SILENCE_MS
    words = " ".join(part for part in parts if part) or "all"
    return Replay(row, words, back, silent and row.items < (row.expected or 0))


@router.get("/dead-letters/replay")
async def ask_replay(request: Request) -> Response:
    """Shows how many items a replay would queue, and asks."""
    visit = await visit_to_read(request, Role.WRITE)
    wanted = await check_named_job(visit, letters_query_of(visit.query))
    found = await would_replay(visit, wanted.chosen)
    return await layout.ask_to_confirm(
        visit,
        title=f"Replay dead letters: {wanted.words}",
        sentences=replay_sentences(found),
        action="/dead-letters/replay",
        fields={**wanted.link, "expected": str(found.items)},
        asks=[PACE],
        act=f"Replay {count_of(found.items, 'item')}" if found.items else "",
        back=layout.query("/dead-letters", wanted.link),
    )


@router.post("/dead-letters/replay")
async def replay(request: Request) -> Response:
    visit = await visit_to_act(request)
    wanted = await check_named_job(visit, letters_query_of(visit.form))
    done = await replay_letters(visit, wanted.chosen, rate_of(visit.form))
    is_vain = done is not None and not done.items
    return redirect_with_notice(visit, "/dead-letters", replayed_sentence(done), "refused" if is_vain else "done")


async def check_named_job(visit: Visit, wanted: LettersQuery) -> LettersQuery:
    """A named job must belong to the owner; otherwise "not found" would look like "nothing failed"."""
    if wanted.job:
        await visit.service.store.job_views.get(job_number(wanted.job), visit.owner)
    return wanted


BACK: Final = "/dead-letters#archives"


@router.get("/dead-letters/archive")
async def ask_archive(request: Request) -> Response:
    """Shows about how many items would be archived, and asks."""
    visit = await visit_to_read(request, Role.ADMIN)
    wanted = await check_named_job(visit, _refuse_flaw(letters_query_of(visit.query)))
    dead = await visit.service.store.dead_letters.costly_groups(visit.owner, wanted.chosen.job_id, GROUPED_MAX)
    items = sum(group.items for group in dead.found.groups if wanted.code in ("", group.error_code))
    many = ("" if dead.found.complete else "more than ") + count_of(items, "dead letter")
    which = f", if they are {AGES[wanted.hours]}" if wanted.hours else ""
    sentences = [
        f"{many} found. Items of ended jobs move into files{which}, at most {count(PASS_ITEMS_MAX)} at once.",
        "Archived items cannot be replayed until you restore them. Restoring brings them back completely.",
    ]
    return await layout.ask_to_confirm(
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
    visit = await visit_to_act(request, Role.ADMIN)
    wanted, service = await check_named_job(visit, _refuse_flaw(letters_query_of(visit.form))), visit.service
    bounds = bounds_of(service.backstay.settings)
    retention = Retention(service.store.archives, service.artifacts, service.main.clock, bounds)
    items = await finish_or_continue(visit, retention.archive(visit.owner, wanted.chosen))
    if items is None:
        return redirect_with_notice(visit, BACK, "Archiving has started; each archive is listed when it is complete.")
    said = (
        f"{count_of(items, 'dead letter')} archived."
        if items
        else "Nothing was archived: the jobs of these items have not ended."
    )
    return redirect_with_notice(visit, BACK, said, _notice_kind(items))


@router.post("/dead-letters/archives/{number}/restore")
async def restore(request: Request, number: str) -> Response:
    visit = await visit_to_act(request, Role.ADMIN)
    service = visit.service
    found = await service.store.archives.archive(row_number(number, "archive"), visit.owner)
    archivist = Archivist(service.store.archives, service.artifacts, service.main.clock)
    items = await finish_or_continue(visit, archivist.restore(found, bounds_of(service.backstay.settings).age_ms))
    await wake(visit)
    if items is None:
        return redirect_with_notice(visit, BACK, f"Archive {found.id} is being restored.")
    said = f"{count_of(items, 'dead letter')} of archive {found.id} restored."
    return redirect_with_notice(
        visit, BACK, said if items else f"Archive {found.id} was already restored.", _notice_kind(items)
    )


def _refuse_flaw(wanted: LettersQuery) -> LettersQuery:
    """Retention cannot filter by flaw: without this check it would archive more than was asked for."""
    if wanted.flaw:
        raise Problem(400, "dead letters cannot be archived by outcome", hint="filter by error, job and age instead")
    return wanted


def _notice_kind(items: int) -> Literal["done", "refused"]:
    return "done" if items else "refused"
