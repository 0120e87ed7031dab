"""Submissions: new jobs and their items.

A new item may find the answer of an earlier job: `AnswerKeys` has the keys of requests, the answers that they find, and
the deletion of keys. Results stay.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple

from backstay.core.errors import IdempotencyConflict, NotAllowed, NotFound, UsageError
from backstay.core.ids import POSITION_BITS, POSITIONS_MAX, item_id, item_range, level_key
from backstay.core.models import AnswerKey
from backstay.store.databases.database import Database, reads, writes
from backstay.store.outbox import hint_few, hint_new
from backstay.store.queries import FEW_ROWS_MAX, Ask, Load, Script, one, record

JOBS_PAGE: Final = 1_000
CLEARED_ITEMS: Final = 20_000  # by one transaction


class Search(NamedTuple):
    """Which answers a run may use: not older than `age_ms`. Answers of first providers, and of these handlers of its
    own."""

    age_ms: int | None = None
    handlers: tuple[str, ...] = ()


@record
class FoundAnswer(NamedTuple):
    """The answer of another item for the request with this number."""

    number: int
    item_id: int
    fence: int
    handler: str
    source: int  # the item that was answered first
    answered_at: int


@record
class AnswerSum(NamedTuple):
    """The usable answers of one model. `cost_micros` is what all calls for them have cost."""

    model: str
    answers: int
    oldest_at: int
    newest_at: int
    cost_micros: int

    def plus(self, other: "AnswerSum") -> "AnswerSum":
        oldest, newest = min(self.oldest_at, other.oldest_at), max(self.newest_at, other.newest_at)
        counts = (self.answers + other.answers, oldest, newest, self.cost_micros + other.cost_micros)
        return AnswerSum(self.model, *counts)


class AnswerKeys:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def any(self) -> bool:
        """Whether there is any key at all, of whatever owner."""
        [row] = await self._db.read(one("any_answers"))
        return bool(row["keys"])

    async def find(self, owner: str, keys: Sequence[AnswerKey], search: Search) -> set[int]:
        """The numbers of those of these requests that have an answer."""
        found = await self._db.read(lambda: find_answers(owner, keys, search))
        return {answer.number for answer in found}

    async def sums(self, owner: str) -> list[AnswerSum]:
        """An owner's usable answers by model, those with the most answers first."""
        sums: dict[str, AnswerSum] = {}
        for job_id, _ in await self._jobs(owner):
            first, after = item_range(job_id)
            for part in await self._db.read(one("sum_answers", {"first": first, "after": after})):
                sums[part.model] = sums[part.model].plus(part) if part.model in sums else part
        return sorted(sums.values(), key=lambda each: (-each.answers, each.model))

    async def clear(self, owner: str, age_ms: int | None = None, model: str | None = None) -> int:
        """Deletes an owner's keys: all, those of a model, or those of older answers. Returns how many."""
        cleared = 0
        for job_id, total in await self._jobs(owner):
            for position in range(0, total, CLEARED_ITEMS):
                first = item_id(job_id, position)
                values = {"first": first, "after": first + CLEARED_ITEMS, "age_ms": age_ms, "model": model}
                cleared += len(await self._db.write(one("clear_answers", values)))
        return cleared

    async def _jobs(self, owner: str) -> list[tuple[int, int]]:
        """Every job of an owner, with the number of its items."""
        found: list[tuple[int, int]] = []
        place: dict[str, str | int] = {"owner": owner, "n": JOBS_PAGE, "cursor": 0}
        while page := await self._db.read(one("jobs_after", place)):
            found += [(row["id"], row["total"]) for row in page]
            place["cursor"], _ = found[-1]
        return found


def find_answers(
    owner: str, keys: Sequence[AnswerKey], search: Search, job_id: int | None = None
) -> Script[list[FoundAnswer]]:
    """The newest answer for each of these requests that has one, of any job but this one."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for number, (high, low, _) in enumerate(keys):
        numbers.setdefault((high, low), []).append(number)
    first, after = (0, 0) if job_id is None else item_range(job_id)
    handlers = f"|{'|'.join(search.handlers)}|"
    values = {"owner": owner, "age_ms": search.age_ms, "handlers": handlers, "first": first, "after": after}
    rows: list[FoundAnswer] = yield Ask("find_answers", values, [(same[0], *key) for key, same in numbers.items()])
    places = {same[0]: same for same in numbers.values()}
    return [row._replace(number=number) for row in rows for number in places[row.number]]


ITEM_COLUMNS = ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at")
CHUNK_ITEMS = 2_000
CHUNK_CHARACTERS = 8 << 20
KEY_COLUMNS = ("item_id", *AnswerKey._fields)
REUSED_COLUMNS = (*ITEM_COLUMNS, "finished_at", "progress", "reused_from")
SILENT_MS = 3_600_000  # a submitter whose last items came so long ago was killed
BROKEN_OFF = "its submit broke off, and the job was submitted again"
SQL_DIGEST = "jsonb:"  # how the digest of a job begins that `backstay_submit` made
WAITING_MS = 1 << 53  # a due time that never comes, for items of a job that waits for others; the job's id is added


class AfterItems(StrEnum):
    """Which items of an earlier job become items of a later one."""

    SUCCEEDED = "succeeded"
    ALL = "all"


def waits_at(job_id: int) -> int:
    return WAITING_MS + job_id


@dataclass(frozen=True, slots=True)
class NewJob:
    """The options of a new job, before its items."""

    handler: str
    owner: str
    ref_seed: str
    job_timeout_ms: int
    priority: int = 0
    retry: str | None = None
    delivery: str | None = None
    deadline_ms: int | None = None
    idempotency_key: str | None = None
    label: str | None = None
    budget_micros: int | None = None
    handler_then: str | None = None  # the handler for items that are not done in time
    move_ms: int | None = None
    fallback: str | None = None  # the handler for items that this one finally fails
    after: tuple[int, ...] = ()  # the jobs that it waits for
    takes: AfterItems = AfterItems.SUCCEEDED
    unique_ms: int | None = None  # for how long its idempotency key stands for this job; None: while the job exists
    reuse: Search | None = None  # which answers of earlier jobs its items may get; None: none


@record
class OpenJob(NamedTuple):
    """A job that items are being added to."""

    id: int
    created_at: int
    total: int
    digest: str
    sealed: int
    priority: int
    deadline_at: int | None
    first_key: int  # the order key of its first item
    new: bool
    hinted: bool = False  # a relay takes messages about its items


class Chunk(NamedTuple):
    """Consecutive items; `digest` covers all bodies up to the end of this chunk."""

    position: int
    bodies: Sequence[str]
    digest: str
    last: bool
    # For each: the most that a call can cost, its tokens, and how many of these are output.
    weights: Sequence[tuple[int | None, int, int]] | None = None
    keys: Sequence[str] | None = None  # for each: its unique key; items that exist already are left out
    handlers: Sequence[str] | None = None  # for each: the handler that runs it; None: all have the job's
    answer_keys: Sequence[AnswerKey] | None = None  # for each: the key by which later jobs find its answer
    reuse: Search | None = None  # as for its job

    def handler_of(self, number: int, usual: str) -> str:
        return usual if self.handlers is None else self.handlers[number]


class Submissions:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def open(self, job: NewJob, chunk: Chunk) -> OpenJob:
        plain = chunk.weights is None and job.budget_micros is None and job.handler_then is None and not job.after
        plain = plain and chunk.keys is None and chunk.answer_keys is None and job.unique_ms is None
        if self._db.dialect.chained and plain and chunk.last and len(chunk.bodies) <= FEW_ROWS_MAX:
            return await self._db.single(lambda: _open_small_job(job, chunk, self._db.wakes))
        return await self._db.write(lambda: open_job(job, chunk))

    async def reopen(self, job: NewJob, opened: OpenJob) -> OpenJob:
        """The job as it is now: another submitter with the same idempotency key may have added to it."""
        return opened if job.idempotency_key is None else await self._db.read(lambda: _job_of_key(job))

    async def add_items(self, handler: str, job: OpenJob, chunk: Chunk) -> None:
        await self._db.write(lambda: add_items(handler, job, chunk))

    @reads
    def check_same_values(self, job: NewJob, opened: OpenJob, chunk: Chunk) -> Script[None]:
        """The same key must mean the same items, also in a job that `backstay_submit` made. That one is complete, and
        PostgreSQL writes its JSON in another way."""
        first, end = item_id(opened.id, chunk.position), chunk.position + len(chunk.bodies)
        values = {"job_id": opened.id, "first": first, "after": first + len(chunk.bodies)}
        stored = yield Ask("bodies_between", values)
        bodies = [row["body"] for row in stored if row["handler"] == job.handler and not job.after]
        fits = end == opened.total if chunk.last else end < opened.total
        if not (fits and len(bodies) == len(chunk.bodies) and all(map(same_json, bodies, chunk.bodies))):
            check_same(opened, "")

    @writes
    def add_new_items(self, job: NewJob, opened: OpenJob, chunk: Chunk) -> Script[OpenJob]:
        """Adds those of a chunk's items whose keys are not known yet; returns the job as it is then."""
        return (yield from _add_new_items(job, opened, chunk))

    @writes
    def add_copies(self, copies: Sequence[tuple[int, int, str]]) -> Script[None]:
        """Further custom_ids that get the answers of items: (item, number, custom_id)."""
        yield Ask("add_copies", batch=copies)


def open_job(job: NewJob, chunk: Chunk) -> Script[OpenJob]:
    """Creates the job with its first items in one transaction, or finds the job of its idempotency key."""
    values = {name: getattr(job, name) for name in NewJob.__slots__}
    grows = chunk.keys is not None or chunk.answer_keys is not None  # some of its items may not be new
    begun = chunk._replace(bodies=(), last=False) if grows else chunk
    first = {"total": len(begun.bodies), "digest": begun.digest, "sealed": int(begun.last)}
    waits_for = json.dumps([str(one) for one in job.after]) if job.after else None
    more = {"level_key": level_key(job.priority), "waits_for": waits_for}
    created: list[OpenJob] = []
    while not created:
        if job.unique_ms is not None:
            yield from _release_key(values)
        if job.after and (found := (yield from _find_key(job))):
            return found
        yield from _lock_earlier(job)
        created = yield Ask("create_job", {**values, **first, **more})
        if not created and (found := (yield from _find_key(job))):
            return found
    opened: OpenJob = created[0]
    yield from _link(job, opened, feeds=not chunk.bodies)
    if chunk.keys is not None:
        return (yield from _add_new_items(job, opened, chunk))
    if chunk.answer_keys is not None:
        yield from add_items(job.handler, opened, chunk)
        return opened._replace(total=len(chunk.bodies))
    yield from _load(job.handler, opened, chunk, opened.created_at, waits=bool(job.after))
    if opened.hinted and not job.after:
        yield from _hint(job.owner, job.handler, opened, chunk, opened.created_at)
    return opened


def _release_key(values: Mapping[str, object]) -> Script[None]:
    """The key of a unique job is free again when its period is over, or when the job was cancelled. One whose submitter
    was killed half-way is cancelled here."""
    for row in (yield Ask("stop_broken_off", {**values, "silent_ms": SILENT_MS, "position_bits": POSITION_BITS})):
        yield Ask("write_events", batch=[(f"job:{row['id']}", "cancel_asked", BROKEN_OFF)])
    yield Ask("release_key", values)


def _lock_earlier(job: NewJob) -> Script[None]:
    """The jobs that this one waits for, all of the same owner. Asked before anything is written: in a user's own
    transaction, nobody takes back what was."""
    if not job.after:
        return
    rows = yield Ask("lock_jobs", {"owner": job.owner}, [(before,) for before in job.after])
    found = {row["id"] for row in rows}
    for before in job.after:
        if before not in found:
            raise NotFound(f"no job {before}", hint="a job can wait for the results of your own jobs only")


def _link(job: NewJob, opened: OpenJob, feeds: bool) -> Script[None]:
    """Makes the job wait for others."""
    if job.after:
        values = {"job_id": opened.id, "takes": job.takes, "feeds": int(feeds)}
        yield Ask("link_job", values, list(enumerate(job.after)))


def _open_small_job(job: NewJob, chunk: Chunk, wake: bool) -> Script[OpenJob]:
    """The same for a small job that is complete, in one statement, where the database can do that."""
    values = {name: getattr(job, name) for name in NewJob.__slots__}
    items = len(chunk.bodies)
    hint = hint_few(job.handler, job.priority, items)
    whole = {"total": items, "digest": chunk.digest, "position_bits": POSITION_BITS, "hint": hint, "wake": int(wake)}
    rows = list(enumerate(chunk.bodies))
    created = yield Ask("submit_few", {**values, **whole, "level_key": level_key(job.priority)}, rows)
    if not created:
        return (yield from _job_of_key(job))
    return created[0]  # type: ignore[no-any-return]


def _job_of_key(job: NewJob) -> Script[OpenJob]:
    """The job of this idempotency key."""
    found = yield from _find_key(job)
    if found is None:
        raise NotFound("the job of this idempotency key was deleted just now", hint="submit again")
    return found


def _find_key(job: NewJob) -> Script[OpenJob | None]:
    if job.idempotency_key is None:
        return None
    rows = yield Ask("job_of_key", {"owner": job.owner, "idempotency_key": job.idempotency_key})
    return rows[0] if rows else None


def _add_new_items(job: NewJob, opened: OpenJob, chunk: Chunk) -> Script[OpenJob]:
    """Takes the chunk's keys, in one order for all submitters, and adds the items whose keys were free."""
    first = dict[str, int]()
    for number, key in enumerate(chunk.keys or ()):
        first.setdefault(key, number)
    whose = {"owner": job.owner, "handler": job.handler}
    won = {row["key"] for row in (yield Ask("take_keys", whose, [(key,) for key in sorted(first)]))}
    kept = [key for key in first if key in won]
    bodies = [chunk.bodies[first[key]] for key in kept]
    weights = None if chunk.weights is None else [chunk.weights[first[key]] for key in kept]
    new = Chunk(opened.total, bodies, chunk.digest, last=False, weights=weights)
    yield from add_items(job.handler, opened, new)
    if kept:
        yield Ask("name_keys", whose, [(key, item_id(opened.id, opened.total + n)) for n, key in enumerate(kept)])
    if known := len(chunk.bodies) - len(kept):
        yield Ask("count_known", {"job_id": opened.id, "known": known})
    if chunk.last:
        yield Ask("seal_job", {"job_id": opened.id})
    return opened._replace(total=opened.total + len(kept))


def add_items(handler: str, job: OpenJob, chunk: Chunk, is_fed: bool = False) -> Script[None]:
    """Adds a chunk at the end; refuses if another submitter has added to the job meanwhile. A job that waits for others
    keeps its own items back, but not those that it is fed with."""
    if chunk.position + len(chunk.bodies) > POSITIONS_MAX:
        raise UsageError(f"a job takes at most {POSITIONS_MAX:,} items", hint="split the work into several jobs")
    if chunk.bodies:
        grown = yield Ask(
            "grow_job",
            {"job_id": job.id, "added": len(chunk.bodies), "expected": chunk.position, "digest": chunk.digest},
        )
        if not grown:
            raise NotAllowed(
                f"no more items can be added to job {job.id}",
                hint="the job was stopped, or another submitter is adding items to it",
            )
        [found] = grown
        waits = found["waits_for"] is not None and not is_fed
        reused = yield from _reuse_answers(found["owner"], job, chunk)
        yield from _load(handler, job, chunk, found["now"], waits, reused)
        if found["hinted"] and not waits and len(reused) < len(chunk.bodies):
            yield from _hint(found["owner"], handler, job, chunk, found["now"])
    if chunk.last:
        yield Ask("seal_job", {"job_id": job.id})


def _reuse_answers(owner: str, job: OpenJob, chunk: Chunk) -> Script[dict[int, FoundAnswer]]:
    """Copies answers of earlier jobs to items of a chunk; returns them by the items' numbers in the chunk. Only answers
    that were really copied count: another process may be deleting the earlier job."""
    if chunk.reuse is None or not chunk.answer_keys:
        return {}
    found = yield from find_answers(owner, chunk.answer_keys, chunk.reuse, job.id)
    if not found:
        return {}
    first = item_id(job.id, chunk.position)
    copies = [(first + answer.number, answer.item_id, answer.fence) for answer in found]
    copied = {row["id"] - first for row in (yield Ask("copy_answers", batch=copies))}
    yield Ask("count_reused", {"job_id": job.id, "reused": len(copied)})
    return {answer.number: answer for answer in found if answer.number in copied}


def _load(
    handler: str, job: OpenJob, chunk: Chunk, now: int, waits: bool = False, reused: Mapping[int, FoundAnswer] = {}
) -> Script[None]:
    first = item_id(job.id, chunk.position)
    columns: tuple[str, ...] = ITEM_COLUMNS
    rows = _item_rows(handler, job, chunk, now)
    if waits:
        columns, rows = (*columns, "due_at"), [(*row, waits_at(job.id)) for row in rows]
    if chunk.weights is not None:
        rows = [(*row, *weight) for row, weight in zip(rows, chunk.weights, strict=True)]
        columns = (*columns, "cost_micros", "tokens", "output_tokens")
    if reused:
        rows = [row for number, row in enumerate(rows) if number not in reused]
        yield Load("items", REUSED_COLUMNS, _reused_rows(handler, job, chunk, now, reused))
    if rows:
        yield Load("items", columns, rows)
    if chunk.bodies:
        yield Load("requests", ("item_id", "body"), [(first + n, body) for n, body in enumerate(chunk.bodies)])
    if chunk.answer_keys:
        yield from _load_keys(chunk.answer_keys, first, reused)


def _reused_rows(
    handler: str, job: OpenJob, chunk: Chunk, now: int, reused: Mapping[int, FoundAnswer]
) -> list[tuple[object, ...]]:
    """The rows of items with reused answers. If a fallback gave the answer, it is the item's handler."""
    own = () if chunk.reuse is None else chunk.reuse.handlers
    rows, found = _item_rows(handler, job, chunk, now), []
    for number, answer in reused.items():
        item, job_id, usual, _, *rest = rows[number]
        found.append((item, job_id, answer.handler if answer.handler in own else usual, "succeeded", *rest))
    return [(*row, now, 100, answer.source) for row, answer in zip(found, reused.values(), strict=True)]


def _load_keys(keys: Sequence[AnswerKey], first: int, reused: Mapping[int, FoundAnswer]) -> Script[None]:
    """Stores the keys of new items. A reused answer keeps the time of the first answer."""
    items = range(first, first + len(keys))
    fresh = [(item, *key) for item, key in zip(items, keys, strict=True) if not reused or item - first not in reused]
    if fresh:
        yield Load("answer_keys", KEY_COLUMNS, fresh)
    if reused:
        rows = [(first + number, *keys[number], answer.answered_at) for number, answer in reused.items()]
        yield Load("answer_keys", (*KEY_COLUMNS, "answered_at"), rows)


def _hint(owner: str, handler: str, job: OpenJob, chunk: Chunk, now: int) -> Script[None]:
    first = item_id(job.id, chunk.position)
    numbers = range(len(chunk.bodies))
    for name, alike in groupby(numbers, lambda number: chunk.handler_of(number, handler)):
        items = [first + number for number in alike]
        yield from hint_new(owner, name, job.priority, range(items[0], items[-1] + 1), now)


def _item_rows(handler: str, job: OpenJob, chunk: Chunk, now: int) -> list[tuple[object, ...]]:
    first = item_id(job.id, chunk.position)
    first_key = job.first_key + chunk.position
    return [
        (first + n, job.id, chunk.handler_of(n, handler), "queued", first_key + n, now, now, job.deadline_at)
        for n in range(len(chunk.bodies))
    ]


def same_json(one: str, other: str) -> bool:
    """Whether two JSON texts have the same value: spaces, escapes, the order of members and 1.0 for 1 do not count."""
    try:
        return one == other or bool(_read_exactly(one) == _read_exactly(other))
    except RecursionError:
        return False


def _number(text: str) -> tuple[Decimal]:
    return (Decimal(text),)  # in a tuple, because True is 1 otherwise


def _read_exactly(text: str) -> object:
    return json.loads(text, parse_int=_number, parse_float=_number)


def check_same(job: OpenJob, digest: str) -> None:
    """Raises if the job of an idempotency key has other items."""
    if job.digest != digest:
        raise IdempotencyConflict(f"this idempotency key belongs to job {job.id}, which has different items")
