"""Failed items of all jobs of an owner: groups by error, pages, selection by a filter, and replays."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from backstay.clock import DAY_MS
from backstay.core.ids import item_id, job_of, show_item, show_items
from backstay.core.states import ItemState
from backstay.store.databases.database import Database
from backstay.store.files import with_sources
from backstay.store.item_views import ItemView, add_last_errors
from backstay.store.job_counts import count_flaws
from backstay.store.jobs import FailedItem
from backstay.store.outbox import hint_queued
from backstay.store.queries import Ask, Script, one, record
from backstay.store.settle import widen_keys

JOBS_MAX: Final = 100  # read by one page
LOOKED_MAX: Final = 20_000  # failed items that one page reads
GROUPED_MAX: Final = 10_000
CHUNK_ITEMS: Final = 2_000
DEAD_LOOKED_MAX: Final = 50_000  # failed items of all owners
UNKNOWN_COUNTED_MAX: Final = 1_000
GROUPED_FIRST: Final = 250  # failed items: a page must be as fast with many as with few
LAST_JOB: Final = (1 << 35) - 1


class LetterFilter(NamedTuple):
    """A filter of failed items: by job, error code, minimum age of the failure, and flaw."""

    job_id: int | None = None
    error_code: str | None = None
    age_ms: int = 0
    flaw: str | None = None


@record
class LetterGroup(NamedTuple):
    error_code: str
    items: int
    oldest: int
    newest: int
    first_at: int
    last_at: int


@record
class FailingJob(NamedTuple):
    """A job that has failed items, and how many of them are not in an archive."""

    id: int
    total: int
    letters: int


class Groups(NamedTuple):
    """`items`: the failed, unarchived items of the jobs that were read; the groups cover the first of them."""

    groups: list[LetterGroup]
    jobs: int
    items: int
    complete: bool


class DeadGroups(NamedTuple):
    """Permanently failed items, by error, and their cost, as far as it is known."""

    found: Groups
    costs: dict[str, int]


class DeadLetters:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def groups(self, owner: str, job_id: int | None) -> Groups:
        found, _ = await self._db.read(lambda: groups_of(owner, job_id, GROUPED_MAX))
        return found

    async def page(
        self, owner: str, wanted: LetterFilter, before: int | None, n: int
    ) -> tuple[list[ItemView], int | None]:
        """The last items of the newest jobs first, and the id before which the next page begins."""
        rows, end = await self._db.read(lambda: letters_page(owner, wanted, before, n, replayable=False))
        return await self._db.read(lambda: add_last_errors(rows)), end

    async def count_since(self, owner: str, counted_max: int, age_ms: int = DAY_MS) -> int:
        """How many of the owner's items failed in that time, counted up to a bound."""
        looked = max(DEAD_LOOKED_MAX, counted_max)  # a bound above the rows that are read could never be reached
        values = {"owner": owner, "age_ms": age_ms, "looked": looked, "n": counted_max}
        return await self._count("dead_since", values)

    async def count_unknown(self, owner: str) -> int:
        """How many of the owner's failed items may have been processed and paid, counted up to a bound."""
        values = {"owner": owner, "looked": DEAD_LOOKED_MAX, "n": UNKNOWN_COUNTED_MAX}
        return await self._count("unknown_of", values)

    async def _count(self, name: str, values: Mapping[str, object]) -> int:
        [found] = await self._db.read(one(name, values))
        return int(found["items"])

    async def costly_groups(self, owner: str, job_id: int | None, n: int = GROUPED_FIRST) -> DeadGroups:
        """For the owner's failed items, up to a bound."""
        return await self._db.read(lambda: _dead_groups(owner, job_id, n))


def _dead_groups(owner: str, job_id: int | None, n: int) -> Script[DeadGroups]:
    found, jobs = yield from groups_of(owner, job_id, n)
    costs = (yield Ask("dead_costs", {"n": n}, jobs)) if jobs else []
    known = {row["error_code"]: row["cost_micros"] for row in costs if row["cost_micros"] is not None}
    return DeadGroups(found, known)


def _failing_jobs(owner: str, job_id: int | None, upto: int, replayable: bool) -> Script[list[FailingJob]]:
    span = {"upto": upto if job_id is None else min(job_id, upto), "downto": job_id or 0}
    return (yield Ask("failing_jobs", {"owner": owner, **span, "replayable": int(replayable), "n": JOBS_MAX}))


def groups_of(owner: str, job_id: int | None, n: int) -> Script[tuple[Groups, list[tuple[int]]]]:
    """The groups of the first items, up to a maximum, and the jobs that were read."""
    jobs = yield from _failing_jobs(owner, job_id, LAST_JOB, False)
    items, batch = sum(job.letters for job in jobs), [(job.id,) for job in jobs]
    groups = (yield Ask("failure_groups", {"n": n}, batch)) if jobs else []
    complete = items <= n and len(jobs) < JOBS_MAX
    return Groups(groups, len(jobs), items, complete), batch


def letters_page(
    owner: str, wanted: LetterFilter, before: int | None, n: int, replayable: bool
) -> Script[tuple[list[ItemView], int | None]]:
    """Job by job, until the page is full or the read limit is reached."""
    upto = LAST_JOB if before is None else job_of(before - 1)
    jobs = yield from _failing_jobs(owner, wanted.job_id, upto, replayable)
    items: list[ItemView] = []
    left = LOOKED_MAX
    for job in jobs:
        end = item_id(job.id, 0) + job.total
        end = end if before is None else min(end, before)
        if left <= 0:
            return items, end
        place = {"job_id": job.id, "before": end, "looked": left}
        chosen = {"error_code": wanted.error_code, "age_ms": wanted.age_ms, "flaw": wanted.flaw}
        items += yield Ask("failed_window", {**place, **chosen, "owner": owner, "n": n - len(items)})
        if len(items) == n:
            return items, items[-1].id
        if job.letters > left:
            [seen] = yield Ask("failed_looked", place)
            if seen["looked"] == left:
                return items, seen["last"]
        left -= job.letters
    return items, item_id(jobs[-1].id, 0) if len(jobs) == JOBS_MAX else None


def chosen_items(owner: str, wanted: LetterFilter, ids: Sequence[int]) -> Script[list[FailedItem]]:
    """The items, of these, that the owner may retry."""
    items: list[FailedItem] = yield Ask(
        "failed_items_of", {"owner": owner, **wanted._asdict()}, [(one,) for one in ids]
    )
    there = (yield from with_sources(owner, [item.id for item in items])) if items else set()
    return [item for item in items if item.id in there]


REPLAY_ITEMS_MAX: Final = 100_000  # per call; for more, call again
SPREAD_MS_MAX: Final = 7 * DAY_MS  # over which the items of slow replays come back
RATE_MIN: Final = 0.01  # items a second
RATE_MAX: Final = 10_000.0
NAMED_MAX: Final = 20  # items that are listed by id
REPLAYS_LOOKED_MAX: Final = 100  # of an owner's last replays, to find the one to continue
LAST_ID: Final = (1 << 63) - 1

_PAID: Final = "; an earlier call may have been processed and paid"


class ReplayRequest(NamedTuple):
    """The person who replays, and how many items per second come back; without a rate, all at once. `expected`: how
    many were counted before."""

    who: str
    rate: float | None = None
    expected: int | None = None


class Replayed(NamedTuple):
    """With `more`, items may be left: the same call again continues. `number` is the replay's id; a replay without
    items has none."""

    items: int
    more: bool
    number: int | None = None


@record
class ReplayRow(NamedTuple):
    id: int
    by: str
    at: int
    filter: str  # as JSON
    items: int
    rate: float | None
    until_at: int | None  # when the last of them so far is due
    expected: int | None  # how many items it should have; it has fewer while it runs, or if it was interrupted


class _Order(NamedTuple):
    owner: str
    wanted: LetterFilter
    by: ReplayRequest
    filter: str


class Replays:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, owner: str, before: int | None, n: int) -> list[ReplayRow]:
        """An owner's replays, the newest first."""
        values = {"owner": owner, "before": LAST_ID if before is None else before, "n": n}
        return await self._db.read(one("replays_page", values))

    async def replay(self, owner: str, wanted: LetterFilter, by: ReplayRequest | None) -> Replayed:
        """Queues the items of a filter again, chunk by chunk, each item once; without `by` it only counts them."""
        order = None if by is None else _Order(owner, wanted, by, filter_text(wanted))
        done = await self._replay(owner, wanted, order)
        if done.number is not None and by is not None and by.expected is not None:
            await self._db.write(one("end_replay", {"replay_id": done.number}))
        return done

    async def _replay(self, owner: str, wanted: LetterFilter, order: "_Order | None") -> Replayed:
        so_far, before = Replayed(0, more=False), None
        while so_far.items < REPLAY_ITEMS_MAX:
            page = partial(letters_page, owner, wanted, before, CHUNK_ITEMS, replayable=True)
            items, before = await self._db.read(page)
            so_far = await self._chunk(owner, wanted, [item.id for item in items], order, so_far)
            if before is None or so_far.more:
                return so_far
        return so_far._replace(more=True)

    async def replay_some(
        self, owner: str, wanted: LetterFilter, ids: Sequence[int], by: ReplayRequest | None
    ) -> Replayed:
        """The same for some named items; those of another owner, or that did not fail, are skipped."""
        named = sorted(set(ids))
        order = None if by is None else _Order(owner, wanted, by, filter_text(wanted, named))
        so_far = Replayed(0, more=False)
        for start in range(0, len(named), CHUNK_ITEMS):
            so_far = await self._chunk(owner, wanted, named[start : start + CHUNK_ITEMS], order, so_far)
            if so_far.more:
                break
        return so_far

    async def _chunk(
        self, owner: str, wanted: LetterFilter, ids: Sequence[int], order: _Order | None, so_far: Replayed
    ) -> Replayed:
        if not ids:
            return so_far
        if order is None:
            found = await self._db.read(lambda: chosen_items(owner, wanted, ids))
            return so_far._replace(items=so_far.items + len(found))
        return await self._db.write(lambda: _replay(order, ids, so_far))


def filter_text(wanted: LetterFilter, named: Sequence[int] | None = None) -> str:
    """The selection as JSON; for many named items, the first of them and their number."""
    chosen: dict[str, object] = {}
    if wanted.job_id is not None:
        chosen["job"] = str(wanted.job_id)
    if wanted.error_code is not None:
        chosen["code"] = str(wanted.error_code)
    if wanted.flaw:
        chosen["flaw"] = str(wanted.flaw)
    if wanted.age_ms:
        chosen["older_than_seconds"] = wanted.age_ms / 1000
    if named is not None:
        chosen |= {"ids": [show_item(item) for item in named[:NAMED_MAX]], "named": len(named)}
    return json.dumps(chosen)


def _replay(order: _Order, ids: Sequence[int], so_far: Replayed) -> Script[Replayed]:
    """One chunk: the fence gives each item to only one of two replays. With a rate, items are queued behind those that
    the same filter has queued before, for any user, so that the rate holds over several calls."""
    chosen = yield from chosen_items(order.owner, order.wanted, ids)
    start, step = yield from _pace(order)
    room = len(chosen) if not step else max(int((SPREAD_MS_MAX - start) / step), 0)
    going = {item.id: item for item in chosen[:room]}
    waits = {item: start + int(n * step) for n, item in enumerate(going)}
    batch = [
        (item.id, item.fence, item.repeat, waits[item.id], so_far.items + n) for n, item in enumerate(going.values())
    ]
    rows = (yield Ask("retry_items", batch=batch)) if batch else []
    keys = {row["id"]: row["order_key"] for row in rows}
    polled = {row["id"] for row in rows if row["state"] == ItemState.PROCESSING}
    if not keys:
        return so_far._replace(more=len(chosen) > room)
    retried = sorted(keys)
    yield from _reopen(keys, going, waits, polled)
    number = so_far.number or (yield Ask("add_replay", _row(order)))[0]["id"]
    tail = start + int(len(batch) * step)
    yield Ask("count_replay", {"replay_id": number, "items": len(retried), "tail_ms": tail})
    detail = f"replay {number} by {order.by.who}"
    events = [(f"item:{item}", "replayed", detail + (_PAID if going[item].repeat else "")) for item in retried]
    jobs = Counter(map(job_of, retried))
    events += [(f"job:{job_id}", "replayed", f"{show_items(items)}, {detail}") for job_id, items in jobs.items()]
    yield Ask("write_events", batch=events)
    yield from hint_queued(retried)
    return Replayed(so_far.items + len(retried), len(chosen) > room, number)


def _pace(order: _Order) -> Script[tuple[int, float]]:
    """After how many milliseconds the first item may come back, and how many are between two items."""
    if order.by.rate is None:
        return 0, 0.0
    values = {"owner": order.owner, "filter": order.filter, "looked": REPLAYS_LOOKED_MAX}
    [found] = yield Ask("replay_tail", values)
    return max(int(found["tail_ms"] or 0), 0), 1000 / order.by.rate


def _row(order: _Order) -> dict[str, object]:
    return {
        "owner": order.owner,
        "who": order.by.who,
        "filter": order.filter,
        "rate": order.by.rate,
        "expected": order.by.expected,
    }


def _reopen(
    keys: Mapping[int, int], going: Mapping[int, FailedItem], waits: Mapping[int, int], polled: Collection[int]
) -> Script[None]:
    """Reopens the jobs, with enough time for the last of their items. `keys` are the places of the items in the queue;
    `polled` items are not in it, because their tasks at the provider continue."""
    jobs: dict[int, list[int]] = {}
    for item in keys:
        jobs.setdefault(job_of(item), []).append(item)
    for job_id, mine in sorted(jobs.items()):
        counts = {"retried": len(mine), "repeated": sum(going[item].repeat for item in mine)}
        counts["polled"] = sum(item in polled for item in mine)
        counts |= count_flaws(going[item].flaw for item in mine)
        yield Ask("reopen_job", {"job_id": job_id, **counts, "wait_ms": max(waits[item] for item in mine)})
        yield from widen_keys(job_id, [keys[item] for item in mine])
