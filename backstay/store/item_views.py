"""The reads of items: one item, pages, many by their ids, their attempts, and what they wait for. Each read is
bounded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from backstay.core.errors import NotFound
from backstay.core.ids import POSITIONS_MAX, item_range, show_item
from backstay.core.states import ItemState, JobState
from backstay.store.databases.database import Database, reads
from backstay.store.job_views import Asked
from backstay.store.jobs import NEVER_MS
from backstay.store.queries import Ask, Script, one, record

ITEMS_LOOKED_MAX: Final = 10_000  # by one page
NAMED_ITEMS: Final = 2_000  # looked up by one statement
TASKS_LOOKED_MAX: Final = 1_000
STRANGERS_MAX: Final = 1_000
_OF_ATTEMPTS: Final = ("message", "first_attempt_at", "attempt_ended_at")


@record
@dataclass(frozen=True, slots=True)
class ItemDetail:
    id: int
    job_id: int
    handler: str
    state: ItemState
    due_at: int | None
    leased_by: str | None
    lease_expires_at: int | None
    reconcile_after: int | None
    fence: int
    attempt_count: int
    rescues: int
    repeats: int
    progress: int
    created_at: int
    queued_at: int
    last_attempt_at: int | None
    finished_at: int | None
    timed_out_at: int | None
    deadline_at: int | None
    error_code: str | None
    provider_task_id: str | None
    account: str | None
    job_state: JobState
    stop_reason: str | None
    job_short: bool
    now: int
    body: str | None
    archive_id: int | None
    calls: int
    flaw: str | None  # what is wrong with its result, besides the state
    waits_for: tuple[str, ...] | None  # the jobs that must end before its job starts
    reused_from: int | None  # the item of an earlier run whose answer it got


@record
class ItemView(NamedTuple):
    """An item as lists show it, without its bodies."""

    id: int
    owner: str
    fence: int
    handler: str
    state: str
    attempt_count: int
    calls: int
    repeats: int
    progress: int
    error_code: str | None
    created_at: int
    queued_at: int
    last_attempt_at: int | None
    finished_at: int | None
    timed_out_at: int | None
    deadline_at: int | None
    due_at: int | None
    provider_task_id: str | None
    archive_id: int | None
    flaw: str | None
    reused_from: int | None  # the item of an earlier run whose answer it got
    message: str | None = None
    first_attempt_at: int | None = None
    attempt_ended_at: int | None = None  # of the last one

    @property
    def started_at(self) -> int | None:
        """When the first call of the item began."""
        return self.last_attempt_at if self.first_attempt_at is None else self.first_attempt_at

    @property
    def updated_at(self) -> int:
        """When the item last changed its state."""
        moments = (self.queued_at, self.last_attempt_at, self.attempt_ended_at, self.finished_at)
        return max(self.created_at, *(at for at in moments if at is not None))

    @property
    def retry_after(self) -> int | None:
        """When the item is tried again, if it waits for that."""
        waits = self.state == ItemState.QUEUED and self.attempt_ended_at is not None
        return self.due_at if waits and self.due_at is not None and self.due_at < NEVER_MS else None


@record
@dataclass(frozen=True, slots=True)
class AttemptView:
    number: int
    outcome: str
    started_at: int
    ended_at: int
    error_code: str | None
    message: str | None
    provider_status: int | None
    result: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_micros: int | None


@record
class InvalidAnswer(NamedTuple):
    """An answer that did not fit, and the message that says why."""

    result: str | None
    message: str | None


@record
class Bodies(NamedTuple):
    payload: str | None
    result: str | None


class ItemFilter(NamedTuple):
    """Positions count from 0; `position_to` is included."""

    state: str | None = None
    error_code: str | None = None
    position_from: int = 0
    position_to: int = POSITIONS_MAX - 1


@record
class NamedItem(NamedTuple):
    """The state of an item that a message names; a message may name items of any owner."""

    id: int
    state: ItemState
    handler: str
    owner: str


@record
class ProviderTasks(NamedTuple):
    account: str
    items: int
    example: int
    task: str | None


@record
class Waiting(NamedTuple):
    """What a job's items wait for while none of them is being sent. Times are the database's."""

    now: int
    resume_at: int | None  # the end of a pause that the provider asked for
    due_at: int | None  # the next try of an item
    lost: int  # items whose worker is gone, and that are looked up
    ask_at: int | None  # when the first of them is looked up
    strangers: int  # due tasks of another account, counted up to a bound


class ItemViews:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def get(self, item_id: int, owner: str) -> ItemDetail:
        rows: list[ItemDetail] = await self._db.read(one("item", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]

    async def row(self, item_id: int, owner: str) -> ItemView:
        rows = await self._db.read(one("item_shown", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]  # type: ignore[no-any-return]

    async def bodies(self, item_id: int, owner: str) -> Bodies:
        rows = await self._db.read(one("item_bodies", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]  # type: ignore[no-any-return]

    async def page(
        self, job_id: int, owner: str, wanted: ItemFilter, after: int | None, n: int
    ) -> tuple[list[ItemView], int | None]:
        """In submit order, and the id after which the next page begins."""
        return await self._db.read(lambda: _page(job_id, owner, wanted, after, n))

    async def many(self, asked: Sequence[Asked]) -> dict[Asked, ItemView]:
        """Items as in lists, each with the error of its last attempt."""
        found: list[ItemView] = await self._db.read(one("items_seen", batch=asked))
        return {(item.id, item.owner): item for item in found}

    async def by_ids(self, ids: Iterable[int]) -> dict[int, NamedItem]:
        """The existing ones of these items, of all owners."""
        named = sorted(set(ids))
        found: dict[int, NamedItem] = {}
        for start in range(0, len(named), NAMED_ITEMS):
            batch = [(item,) for item in named[start : start + NAMED_ITEMS]]
            page: list[NamedItem] = await self._db.read(one("named_items", batch=batch))
            found |= {item.id: item for item in page}
        return found

    async def attempts(self, item_id: int) -> list[AttemptView]:
        return await self._db.read(one("attempts", {"item_id": item_id}))

    async def last_invalid(self, item_id: int) -> InvalidAnswer | None:
        """The last answer that did not fit, if the model was asked again since the item last failed."""
        rows: list[InvalidAnswer] = await self._db.read(one("last_invalid", {"item_id": item_id}))
        return rows[0] if rows else None

    async def count_invalid(self, ids: Iterable[int]) -> dict[int, int]:
        """How many answers of each item did not fit since it last failed."""
        rows = await self._db.read(one("count_invalid", batch=[(item,) for item in ids]))
        return {row["item_id"]: row["answers"] for row in rows}

    async def ahead(self, item_id: int) -> int:
        [found] = await self._db.read(one("ahead", {"item_id": item_id}))
        return int(found["items"])

    async def waiting_since(self, handler: str, owner: str | None = None) -> int | None:
        """When the oldest item that could be started now was queued: of one owner, or of all."""
        name, chosen = ("waiting_since", {}) if owner is None else ("oldest_waiting", {"owner": owner})
        [found] = await self._db.read(one(name, {"handler": handler, **chosen}))
        return found["queued_at"]  # type: ignore[no-any-return]

    @reads
    def job_waits(self, job_id: int, handler: str, account: str, paces: tuple[str, str]) -> Script[Waiting]:
        first, after = item_range(job_id)
        values = {"first": first, "after": after, "handler": handler, "account": account, "n": STRANGERS_MAX}
        paced, paced_then = paces
        [found] = yield Ask("waiting", {**values, "paced": paced, "paced_then": paced_then})
        return found  # type: ignore[no-any-return]

    async def is_unfinished(self, handler: str) -> bool:
        """Whether a handler has items that could be worked on now or soon."""
        return any((await self._db.read(one("unfinished_here", {"handler": handler})))[0])

    async def stuck(self) -> dict[str, int]:
        """How many items of lost workers no worker has taken over, by handler."""
        return {row["handler"]: row["items"] for row in await self._db.read(one("stuck"))}

    async def stuck_of(self, owner: str) -> int:
        """How many of an owner's items no worker has taken over after their worker was lost."""
        [found] = await self._db.read(one("stuck_of", {"owner": owner}))
        return int(found["items"])

    async def due_in_ms(self) -> int | None:
        """How long until the first waiting item is due."""
        [found] = await self._db.read(one("next_due"))
        return None if found["due_at"] is None else max(found["due_at"] - found["now"], 0)

    async def tasks(self, owner: str, handler: str) -> list[ProviderTasks]:
        values = {"owner": owner, "handler": handler, "n": TASKS_LOOKED_MAX}
        return await self._db.read(one("tasks_of", values))


def _page(
    job_id: int, owner: str, wanted: ItemFilter, after: int | None, n: int
) -> Script[tuple[list[ItemView], int | None]]:
    counted = yield Ask("job_counters", {"job_id": job_id, "owner": owner})
    if not counted:
        raise NotFound(f"no job {job_id}")
    first = item_range(job_id)[0]
    last = first + min(counted[0]["total"] - 1, wanted.position_to)
    cursor = max(first + wanted.position_from - 1, -1 if after is None else after)
    if cursor >= last or _has_none(counted[0], wanted.state):
        return [], None
    if wanted.state == ItemState.FAILED and wanted.error_code is None:
        failed: list[ItemView] = yield Ask("failed_page", {"job_id": job_id, "owner": owner, "cursor": cursor, "n": n})
        rows, upto = [item for item in failed if item.id <= last], last if len(failed) < n else failed[-1].id
    else:
        upto = min(cursor + (ITEMS_LOOKED_MAX if wanted.state or wanted.error_code else n), last)
        span = {"cursor": cursor, "upto": upto, "state": wanted.state, "error_code": wanted.error_code}
        rows = yield Ask("items_page", {**span, "owner": owner, "n": n})
        upto = rows[-1].id if len(rows) == n else upto
    return (yield from add_last_errors(rows)), upto if upto < last else None


def _has_none(counters: Mapping[str, int], state: str | None) -> bool:
    """Whether the job's counters show that no item has a state."""
    return state is not None and state in tuple(counters.keys()) and counters[state] == 0


def add_last_errors(items: Sequence[ItemView]) -> Script[list[ItemView]]:
    """The items, completed with the message and the times of their attempts."""
    rows = (yield Ask("messages_of", batch=[(item.id, item.fence) for item in items])) if items else []
    found = {row["item_id"]: {name: row[name] for name in _OF_ATTEMPTS} for row in rows}
    return [item._replace(**found.get(item.id, {})) for item in items]
