"""Jobs: the actions of people: pause, resume, cancel, retry, change or settle the money of a job, and delete it.

`Pruning` finds old ended jobs, reads everything that belongs to one, and deletes it, with or without an archive.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotAllowed, NotFound, UsageError
from backstay.core.ids import item_range, job_of, show_item, show_items
from backstay.core.models import Attempt
from backstay.core.states import JOB_ENDED, ItemState, JobState, StopReason
from backstay.store.archives import BEFORE_ALL, LAST_ID, LetterEvent, LetterMessage, Place
from backstay.store.budgets import Payer, book
from backstay.store.databases.database import Database, reads, writes
from backstay.store.files import with_sources
from backstay.store.job_counts import count_flaws
from backstay.store.outbox import hint_queued
from backstay.store.queries import Ask, Script, one, read_row, record
from backstay.store.results import Copy
from backstay.store.settle import widen_keys
from backstay.store.submissions import WAITING_MS

RETRY_ITEMS: Final = 2_000  # by one transaction
PARK_ITEMS: Final = 5_000
PURGE_ITEMS: Final = 2_000

DISOWNED_MAX: Final = 100
NEVER_MS: Final = 1 << 52  # a due time of some 140,000 years from now; a job's own is this plus its id
RETRIED: Final = ("by hand", "by hand; an earlier call may have been processed and paid")
_TABLES: Final = ("item_keys", "answer_keys", "copies", "inbox", "attempts", "requests", "items")


@record
class JobStanding(NamedTuple):
    """The facts that decide whether a person may change a job."""

    state: JobState
    stop_reason: StopReason | None
    archived: int  # items in archives


@record
class FailedItem(NamedTuple):
    """A failed item, and whether another call may pay a second time for the same work."""

    id: int
    fence: int
    repeat: int
    flaw: str | None


class MoneyVerdict(NamedTuple):
    """A person's decision about money of unknown outcome: it was paid, or it was not. `micros`: only this part of it.
    `expected`: the sum that they saw; if the sum has changed since, nothing is done. `shared`: shared budgets get the
    money back as well; an owner cannot decide that for a budget that is shared with others."""

    paid: bool
    who: str
    micros: int | None = None
    expected: int | None = None
    shared: bool = True


class Jobs:
    """Each verb is guarded by owner and state."""

    def __init__(self, database: Database) -> None:
        self._db = database

    @writes
    def pause(self, job_id: int, owner: str) -> Script[None]:
        yield from _act("pause_job", job_id, owner, "paused")

    async def resume(self, job_id: int, owner: str) -> None:
        await self._db.write(lambda: _act("resume_job", job_id, owner, "resumed"))
        await self.unpark(job_id)

    @writes
    def cancel(self, job_id: int, owner: str) -> Script[None]:
        yield from _act("cancel_job", job_id, owner, "cancel_asked")

    async def retry(self, job_id: int, owner: str, item: int | None = None, items_max: int | None = None) -> int:
        """Queues failed items again, chunk by chunk, each once; raises an error that says why if there is nothing to
        retry.

        With `items_max` it stops at the chunk that reaches it.
        """
        retried = 0
        last: int | None = -1
        while last is not None and (items_max is None or retried < items_max):
            n, last = await self._db.write(partial(_retry_items, job_id, owner, item, last, retried))
            retried += n
        if retried == 0:
            await self._db.read(lambda: _why_no_retry(job_id, owner, item))
        return retried

    # The waiting items of a paused job are parked. A claim skips items of paused jobs, but row by row: a million of
    # them at the head of the queue would make every claim slow. So the sweep gives them a due time that never comes,
    # one for each job, and a resume removes it. Parking is only for speed: a claim also skips items that are not parked
    # yet, and the sweep finds items that stayed parked after a crash.

    @reads
    def paused_jobs(self) -> Script[list[int]]:
        return [row["id"] for row in (yield Ask("paused_jobs"))]

    @reads
    def parked_jobs(self) -> Script[list[int]]:
        """The jobs that have parked items, found by one probe of the index for each."""
        jobs: list[int] = []
        while True:
            [found] = yield Ask("next_parked", {"after": parked_at(jobs[-1] if jobs else 0)})
            if found["parked_at"] is None or found["parked_at"] >= WAITING_MS:
                return jobs
            jobs.append(found["parked_at"] - NEVER_MS)

    async def park(self, job_id: int) -> None:
        """Parks the ready items of a paused job."""
        cursor: int | None = None
        while (cursor := await self._db.write(partial(_park, job_id, cursor))) is not None:
            pass

    async def unpark(self, job_id: int) -> None:
        """Makes parked items ready again, unless the job is paused."""
        turns = 0
        while moved := await self._db.write(partial(_unpark, job_id, turns)):
            turns += moved

    # its money

    @writes
    def change_budget(self, job_id: int, owner: str, budget_micros: int | None) -> Script[None]:
        yield Ask("change_budget", {"job_id": job_id, "owner": owner, "budget_micros": budget_micros})

    @writes
    def set_budget(self, job_id: int, owner: str, budget_micros: int) -> Script[None]:
        """Changes the budget of a job that has one. Items that did not fit may fit now."""
        rows = yield Ask("budget_of", {"job_id": job_id, "owner": owner})
        if not rows:
            raise NotFound(f"no job {job_id}")
        if rows[0]["budget_micros"] is None:
            hint = "give a budget when you submit, or set one for its owner or handler: backstay budget set"
            raise NotAllowed(f"job {job_id} has no budget, and the cost of its items may be unknown", hint=hint)
        yield Ask("change_budget", {"job_id": job_id, "owner": owner, "budget_micros": budget_micros})

    @writes
    def settle_unknown(self, job_id: int, owner: str, verdict: MoneyVerdict) -> Script[int]:
        """Books money of unknown outcome as spent, or gives it back to the budget; returns how much it was."""
        rows = yield Ask("unknown_money", {"job_id": job_id, "owner": owner})
        if not rows:
            raise NotFound(f"no job {job_id}")
        seen: int = rows[0]["unknown_micros"]
        if verdict.expected not in (None, seen):
            raise _other_sum(job_id, seen)
        micros = seen if verdict.micros is None else verdict.micros
        if not seen:
            raise NotAllowed(f"job {job_id} has no money of unknown outcome")
        if not 0 < micros <= seen:
            raise UsageError(f"the amount must be above $0 and at most {_dollars(seen)}, not {_dollars(micros)}")
        sums = {"seen": seen, "micros": micros, "booked": micros if verdict.paid else 0}
        settled = yield Ask("settle_unknown", {"job_id": job_id, "owner": owner, **sums})
        if not settled:
            raise _other_sum(job_id, None)
        if verdict.shared:
            payer = Payer(owner, settled[0]["payer"])
            yield from book([(payer, (0, sums["booked"] - micros))], settled[0]["created_at"])
        act = "unknown_booked" if verdict.paid else "unknown_released"
        yield Ask("write_events", batch=[(f"job:{job_id}", act, f"{_dollars(micros)} by {verdict.who}")])
        return micros

    @writes
    def weigh_items(self, weights: Sequence[tuple[int, int | None]]) -> Script[None]:
        """Stores the most that a call of each item may cost: (item, micro-dollars)."""
        yield Ask("weigh_items", batch=weights)

    # Its deletion: first it disappears for every reader, then its rows are deleted step by step. Every read names an
    # owner, and no owner has an empty name, so a job whose owner is set to the empty name is no longer visible.

    @writes
    def disown(self, job_id: int, owner: str) -> Script[int]:
        """Makes the job and its batch disappear; returns how many items are to be deleted with it."""
        gone = yield from disown_job(job_id, owner)
        return int(gone["total"])

    async def disowned_jobs(self) -> list[int]:
        """Jobs without an owner that are not completely deleted yet."""
        return [row["id"] for row in await self._db.read(one("disowned_jobs", {"n": DISOWNED_MAX}))]

    async def purge(self, job_id: int) -> None:
        """Deletes the rest of a job without an owner, chunk by chunk; after an interruption it continues where it
        stopped."""
        while await self.purge_some(job_id):
            pass

    async def purge_some(self, job_id: int, items: int = PURGE_ITEMS) -> bool:
        """Deletes one chunk of a job without an owner. True while there is more."""
        return await self._db.write(lambda: _purge(job_id, items))


def disown_job(job_id: int, owner: str) -> Script[Mapping[str, Any]]:
    """Makes a job and its batch disappear; returns the job's last counters. Raises an error that says why, if that is
    not possible."""
    rows = yield Ask("disown_job", {"job_id": job_id, "owner": owner})
    if rows:
        for files in (yield Ask("purge_batch", {"job_id": job_id})):
            yield Ask("purge_files", batch=[(file,) for file in tuple(files) if file is not None])
        found: Mapping[str, Any] = rows[0]
        return found
    job = yield from _standing(job_id, owner)
    if waiting := (yield Ask("waiting_on", {"job_id": job_id})):
        hint = "wait until that job has started, or cancel it"
        raise NotAllowed(f"job {waiting[0]['job_id']} waits for the results of job {job_id}", hint=hint)
    if job.state in JOB_ENDED:
        hint = "try again when its batch is over"
        raise NotAllowed(f"the results of job {job_id} are being written out", hint=hint)
    raise NotAllowed(f"job {job_id} is {job.state}: only a job that has ended can be deleted", hint="cancel it first")


def _act(statement: str, job_id: int, owner: str, act: str) -> Script[None]:
    if not (yield from change_job(statement, job_id, owner, act)):
        yield from _refuse(job_id, owner, act)


def change_job(statement: str, job_id: int, owner: str, act: str) -> Script[bool]:
    """Returns whether the state of the job allowed it."""
    rows = yield Ask(statement, {"job_id": job_id, "owner": owner})
    if rows:
        yield Ask("write_events", batch=[(f"job:{job_id}", act, None)])
    return bool(rows)


def _refuse(job_id: int, owner: str, act: str) -> Script[None]:
    """Raises the error that says why nothing was changed. A job of another owner counts as not found."""
    job = yield from _standing(job_id, owner)
    state: str = job.state
    done = "cancelled" if act == "cancel_asked" else act
    if job.stop_reason is not None and job.state not in JOB_ENDED:
        state = "being cancelled" if job.stop_reason is StopReason.CANCEL else "being stopped"
    if state in (done, f"being {done}"):
        raise NotAllowed(f"job {job_id} is {state} already")
    if done == "resumed":
        raise NotAllowed(f"job {job_id} is {state}: only a paused job can be resumed")
    raise NotAllowed(f"job {job_id} is {state}: it cannot be {done}")


def _standing(job_id: int, owner: str) -> Script[JobStanding]:
    rows: list[JobStanding] = yield Ask("job_state", {"job_id": job_id, "owner": owner})
    if not rows:
        raise NotFound(f"no job {job_id}")
    return rows[0]


def _retry_items(job_id: int, owner: str, item: int | None, cursor: int, turns: int) -> Script[tuple[int, int | None]]:
    """Queues a chunk of a job's failed items (or the one item) behind the cursor again; returns how many, and the last
    one that was read, if any. Items whose source files are gone are skipped."""
    first, after = item_range(job_id) if item is None else (item, item + 1)
    values = {"job_id": job_id, "owner": owner, "first": max(first, cursor + 1), "after": after, "n": RETRY_ITEMS}
    failed: list[FailedItem] = yield Ask("failed_items", values)
    there = (yield from with_sources(owner, [item.id for item in failed])) if failed else set()
    kept = [item for item in failed if item.id in there]
    batch = [(item.id, item.fence, item.repeat, 0, turns + n) for n, item in enumerate(kept)]
    rows = (yield Ask("retry_items", batch=batch)) if kept else []
    won = {row["id"] for row in rows}
    retried = {item.id: item.repeat for item in kept if item.id in won}
    if retried:
        flaws = count_flaws(item.flaw for item in kept if item.id in won)
        polled = sum(row["state"] == ItemState.PROCESSING for row in rows)
        counts = {"retried": len(retried), "repeated": sum(retried.values()), "polled": polled, "wait_ms": 0}
        yield Ask("reopen_job", {"job_id": job_id, **counts, **flaws})
        yield from widen_keys(job_id, [row["order_key"] for row in rows])
        told = [(f"item:{one}", "retried", RETRIED[again]) for one, again in retried.items()]
        yield Ask("write_events", batch=[*told, (f"job:{job_id}", "retried", show_items(len(retried)))])
        yield from hint_queued(sorted(retried))
    return len(retried), failed[-1].id if failed else None


def _why_no_retry(job_id: int, owner: str, item: int | None) -> Script[None]:
    job = yield from _standing(job_id, owner)
    if item is not None:
        found = yield Ask("item_state", {"item_id": item})
        if not found or job_of(item) != job_id:
            raise NotFound(f"no item {show_item(item)}")
        state, archive = found[0]["state"], found[0]["archive_id"]
        if archive is not None:
            raise archived_error(item, archive)
        if state == ItemState.FAILED and not (yield from with_sources(owner, [item])):
            hint = "upload the file again and submit a new job"
            raise NotAllowed(f"item {show_item(item)} cannot be retried: its source file is gone", hint=hint)
        raise NotAllowed(f"item {show_item(item)} is {state}: only a failed item can be retried")
    if job.archived:
        hint = Sentence("restore them first: `", NextCommand("deadletters archives"), "` lists where they are")
        raise NotAllowed(f"the failed items of job {job_id} are archived", hint=hint)
    cancelled = job.state is JobState.CANCELLED
    raise NotAllowed(
        f"job {job_id} has no failed items to retry" + ("; cancelled items cannot be retried" if cancelled else "")
    )


def archived_error(item: int, archive: int) -> NotAllowed:
    hint = Sentence("restore it first: `", NextCommand(f"deadletters restore {archive}"), "`")
    return NotAllowed(f"item {show_item(item)} is in archive {archive}", hint=hint)


def parked_at(job_id: int) -> int:
    return NEVER_MS + job_id


def _park(job_id: int, cursor: int | None) -> Script[int | None]:
    """Parks a chunk of a paused job's ready items; returns where to continue, or None when all are parked."""
    first, after = item_range(job_id)
    span = {"cursor": first - 1 if cursor is None else cursor, "after": after, "n": PARK_ITEMS}
    rows = yield Ask("park", {"job_id": job_id, "parked_at": parked_at(job_id), **span})
    return max(row["id"] for row in rows) if rows else None


def _unpark(job_id: int, turns: int) -> Script[int]:
    """Makes a chunk of a job's parked items ready again, unless it is paused; earlier chunks have used `turns`."""
    values = {"job_id": job_id, "parked_at": parked_at(job_id), "turns": turns, "n": PARK_ITEMS}
    rows = yield Ask("unpark", values)
    yield from widen_keys(job_id, [row["order_key"] for row in rows])
    return len(rows)


def _other_sum(job_id: int, seen: int | None) -> NotAllowed:
    now = "" if seen is None else f": it is now {_dollars(seen)}"
    hint = "look at the job again, then decide about the new amount"
    return NotAllowed(f"the amount of job {job_id} that may have been spent has changed{now}", hint=hint)


def _dollars(micros: int) -> str:
    dollars, rest = divmod(micros, 1_000_000)
    return f"${dollars:,}.{rest:06}"


def _purge(job_id: int, items: int) -> Script[bool]:
    """Deletes a chunk of items with all that belongs to them, and with the last chunk the job itself. True while there
    is more."""
    if not (yield Ask("disowned_job", {"job_id": job_id})):
        return False
    first, after = item_range(job_id)
    [left] = yield Ask("first_item", {"first": first, "after": after})
    found = left["first"]
    if found is None:
        yield Ask("purge_events", batch=[(f"job:{job_id}",)])
        yield Ask("purge_counts", {"job_id": job_id})
        yield Ask("purge_job", {"job_id": job_id})
        return False
    span = {"first": found, "after": min(found + items, after)}
    for table in _TABLES:
        yield Ask(f"purge_{table}", span)
    yield Ask("purge_events", batch=[(f"item:{item}",) for item in range(span["first"], span["after"])])
    return True


OWNERS_MAX: Final = 10_000  # by one pass


@record
class FinishedJob(NamedTuple):
    """An ended job. The fields from `finished_at` on change if its items or results change."""

    id: int
    owner: str
    total: int
    finished_at: int
    succeeded: int
    failed: int
    archived: int  # items in archives of dead letters
    held: int  # another job waits for it, or its batch is being written

    @property
    def place(self) -> Place:
        return self.finished_at, self.id


@record
class KeptItem(NamedTuple):
    """An item as an archive keeps it, and its request."""

    id: int
    state: ItemState
    handler: str
    fence: int
    attempt_count: int
    error_code: str | None
    flaw: str | None
    finished_at: int | None
    archive_id: int | None  # the archive of dead letters that has its texts
    body: str | None


class ItemStory(NamedTuple):
    """An item with everything that belongs to it."""

    item: KeptItem
    attempts: list[Attempt]
    inbox: list[LetterMessage]
    events: list[LetterEvent]
    copies: list[Copy]

    @property
    def characters(self) -> int:
        return len(self.item.body or "") + sum(len(one.result or "") for one in self.attempts)


@record
class JobArchive(NamedTuple):
    """The file that holds a deleted job."""

    job_id: int
    owner: str
    blob: str
    items: int
    bytes: int
    digest: str
    finished_at: int


class Pruning:
    def __init__(self, database: Database) -> None:
        self._db = database

    @reads
    def owners(self) -> Script[list[str]]:
        """The owners who have ended jobs, found by one probe of the index for each."""
        found = list[str]()
        while len(found) < OWNERS_MAX:
            [row] = yield Ask("owner_after", {"after": found[-1] if found else ""})
            if row["owner"] is None:
                break
            found.append(row["owner"])
        return found

    @reads
    def until(self, owner: str, age_ms: int | None, keep: int | None, quiet_ms: int) -> Script[Place]:
        """Jobs of an owner up to this place, in the order of their ends, are deleted: those that ended more than
        `age_ms` ago, and all but the newest `keep`. Jobs that ended within `quiet_ms` stay."""
        [row] = yield Ask("now")
        until = BEFORE_ALL if age_ms is None else (row["now"] - age_ms, LAST_ID)
        if keep is not None:
            beyond = yield Ask("newest_beyond", {"owner": owner, "keep": keep})
            until = max([until, *((one["finished_at"], one["id"]) for one in beyond)])
        return min(until, (row["now"] - quiet_ms, LAST_ID))

    @reads
    def page(self, owner: str, after: Place, until: Place, n: int) -> Script[list[FinishedJob]]:
        """An owner's ended jobs behind a place and up to another, the oldest first."""
        (finished_at, job_id), (until_at, until_id) = after, until
        span = {"finished_at": finished_at, "job_id": job_id, "until_at": until_at, "until_id": until_id}
        return (yield Ask("finished_page", {"owner": owner, **span, "n": n}))

    @reads
    def items(self, job_id: int, cursor: int, n: int) -> Script[list[ItemStory]]:
        """The next items of a job behind the cursor, with everything that belongs to them."""
        after = item_range(job_id)[1]
        rows: list[KeptItem] = yield Ask("kept_items_page", {"cursor": cursor, "after": after, "n": n})
        found = {row.id: ItemStory(row, [], [], [], []) for row in rows}
        if not found:
            return []
        ids, subjects = [(item,) for item in found], {f"item:{item}": item for item in found}
        attempts: list[Attempt] = yield Ask("attempts_of", batch=ids)
        for attempt in attempts:
            found[attempt.item_id].attempts.append(attempt)
        for message in (yield Ask("inbox_of", batch=ids)):
            found[message["item_id"]].inbox.append(read_row(LetterMessage, message))
        for event in (yield Ask("events_of", batch=[(subject,) for subject in subjects])):
            found[subjects[event["subject"]]].events.append(read_row(LetterEvent, event))
        copies: list[Copy] = yield Ask("copies_of", batch=ids)
        for copy in copies:
            found[copy.item_id].copies.append(copy)
        return list(found.values())

    @reads
    def job_events(self, job_id: int) -> Script[list[LetterEvent]]:
        return [read_row(LetterEvent, row) for row in (yield Ask("events_of", batch=[(f"job:{job_id}",)]))]

    @writes
    def remove(self, job: FinishedJob, archive: JobArchive | None) -> Script[None]:
        """Registers the archive and makes the job disappear, both or neither; its rows are deleted afterwards. A job
        that has changed since it was read stays."""
        gone = yield from disown_job(job.id, job.owner)
        if any(gone[name] != getattr(job, name) for name in ("finished_at", "succeeded", "failed", "archived")):
            raise NotAllowed(f"job {job.id} has changed meanwhile", hint="the next run deletes it")
        if archive is not None:
            yield Ask("add_job_archive", archive._asdict())

    async def archive(self, job_id: int) -> JobArchive | None:
        """The archive of a deleted job."""
        rows: list[JobArchive] = await self._db.read(one("job_archive", {"job_id": job_id}))
        return rows[0] if rows else None
