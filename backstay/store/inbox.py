"""The inbox: messages of remote workers, stored before they are used, so that early, repeated and late ones are not
lost."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from backstay.core.callbacks import Callback, Kind, StoredCallback, digest_of, name_task, result_of
from backstay.core.errors import NotAllowed, NotFound
from backstay.core.ids import job_of, show_item
from backstay.core.models import Attempt, AttemptOutcome
from backstay.core.states import TERMINAL, ItemState
from backstay.store.budgets import Payer, book
from backstay.store.databases.database import Database
from backstay.store.jobs import archived_error
from backstay.store.queries import Ask, Script, one, record
from backstay.store.settle import add_late, set_late_flaw, write_attempts

MESSAGES_MAX: Final = 100  # about one item
BODY_MAX: Final = 64 << 20  # characters read at once
LATE_MAX: Final = 5  # shown of one item
LAST_ID: Final = (1 << 63) - 1


class ReceivedMessage(NamedTuple):
    late: bool  # the item had ended, or its deadline had passed
    repeated: bool  # the same message came before


@record
class Sender(NamedTuple):
    """The job whose items were sent out."""

    seed: str
    old_tags: bool  # the job is older than the seeds of tags, and its id was never used by another job


@record
class CalledBack(NamedTuple):
    """The item that a message is about."""

    state: ItemState
    too_late: bool  # its deadline has passed
    owner: str


@record
class AcceptedItem(NamedTuple):
    """An item whose late result was accepted."""

    id: int
    job_id: int
    fence: int
    attempt_count: int
    last_attempt_at: int | None
    now: int


record(StoredCallback)


@record
class LateResult(NamedTuple):
    number: int
    item_id: int
    received_at: int
    accepted_at: int | None
    accepted_by: str | None
    item_state: str
    deadline_at: int | None
    body: str | None  # only for a single result, not in lists


class InboxMessages:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def sender(self, job_id: int) -> Sender | None:
        rows: list[Sender] = await self._db.read(one("callback_job", {"job_id": job_id}))
        return rows[0] if rows else None

    async def receive(self, item_id: int, fence: int, callback: Callback) -> ReceivedMessage:
        return await self._db.write(lambda: _receive(item_id, fence, callback))

    async def finals(self, items: Sequence[int]) -> list[StoredCallback]:
        """The final messages about these items that came in time, in order of arrival."""
        return await self._db.read(one("finals", batch=[(item,) for item in items]))

    async def bodies(self, said: Sequence[StoredCallback]) -> dict[int, str]:
        """The texts of some messages, by their numbers: as many as fit into memory at once."""
        wanted: list[tuple[int]] = []
        characters = 0
        for each in said:
            characters += each.length
            if wanted and characters > BODY_MAX:
                break
            wanted.append((each.number,))
        rows = await self._db.read(one("inbox_bodies", batch=wanted)) if wanted else []
        return {row["id"]: row["body"] for row in rows}

    async def keep_late(self, results: Sequence["LateSuccess"]) -> int:
        """Keeps results that came after their items had timed out, and books their costs. Returns how many."""
        return len(await self._db.write(lambda: keep_late(results)))

    async def late(self, owner: str, before: int | None, n: int) -> list[LateResult]:
        values = {"owner": owner, "before": LAST_ID if before is None else before, "n": n}
        return await self._db.read(one("late_page", values))

    async def late_result(self, number: int, owner: str) -> LateResult:
        rows = await self._db.read(one("late_result", {"number": number, "owner": owner}))
        if not rows:
            raise _late_result_not_found(number)
        return rows[0]  # type: ignore[no-any-return]

    async def accept(self, number: int, owner: str, by: str) -> LateResult:
        """Accepts a late result, for a person. A repeated call changes nothing."""
        await self._db.write(lambda: _accept(number, owner, by))
        return await self.late_result(number, owner)

    async def late_of(self, item_id: int, owner: str) -> list[LateResult]:
        values = {"item_id": item_id, "owner": owner, "n": LATE_MAX}
        return await self._db.read(one("late_of", values))


class LateSuccess(NamedTuple):
    """A result that came after its item had ended. `reserved` was booked as unknown when the item timed out."""

    attempt: Attempt
    result: str
    reserved: int
    handler: str

    @property
    def cost(self) -> int:
        return self.reserved if self.attempt.cost_micros is None else self.attempt.cost_micros


def keep_late(results: Sequence[LateSuccess]) -> Script[list[int]]:
    """Returns the items whose results were kept."""
    kept = yield from add_late([(one.attempt.item_id, one.attempt.fence, one.result) for one in results])
    known = [one for one in results if one.attempt.item_id in set(kept)]
    yield from set_late_flaw(kept)
    if known:
        yield Ask("show_late", batch=[(one.attempt.item_id, one.result) for one in known])
    yield from write_attempts([one.attempt._replace(outcome=AttemptOutcome.LATE, result=None) for one in known])
    if known:
        rows = yield Ask("know_cost", batch=_costs(known))
        owners = {row["id"]: row["owner"] for row in rows}
        paid = ((Payer(owners[job_of(one.attempt.item_id)], one.handler), one.cost - one.reserved) for one in known)
        yield from book((payer, (0, change)) for payer, change in paid)
    return kept


@record
class LateCost(NamedTuple):
    """The actual cost of a job's late calls; `known` is the part that was booked as unknown."""

    job_id: int
    known: int
    spent: int
    input_tokens: int
    output_tokens: int


def _costs(results: Sequence[LateSuccess]) -> list[LateCost]:
    """A sum for each job, in order."""
    sums: dict[int, LateCost] = {}
    for late in results:
        attempt, job_id = late.attempt, job_of(late.attempt.item_id)
        so_far = sums.get(job_id, LateCost(job_id, 0, 0, 0, 0))
        sums[job_id] = LateCost(
            job_id,
            so_far.known + late.reserved,
            so_far.spent + late.cost,
            so_far.input_tokens + (attempt.input_tokens or 0),
            so_far.output_tokens + (attempt.output_tokens or 0),
        )
    return [sums[job_id] for job_id in sorted(sums)]


def _receive(item_id: int, fence: int, callback: Callback) -> Script[ReceivedMessage]:
    found = yield Ask("callback_item", {"item_id": item_id})
    if not found:
        raise NotFound(f"no item {show_item(item_id)}")
    item: CalledBack = found[0]
    late = item.state in TERMINAL or item.too_late
    [counted] = yield Ask("count_inbox", {"item_id": item_id})
    values = {
        "owner": item.owner,
        "item_id": item_id,
        "fence": fence,
        "kind": callback.kind.value,
        "is_late": int(late),
    }
    if counted["messages"] >= MESSAGES_MAX:
        raise NotAllowed(f"item {show_item(item_id)} has {MESSAGES_MAX} messages already, which is the limit")
    added = yield Ask("add_inbox", {**values, "body": callback.body, "digest": digest_of(callback, fence)})
    if added and late and callback.kind is Kind.SUCCEEDED:
        yield from set_late_flaw([item_id])
    if added and not late:
        if callback.progress is not None:
            task = name_task(item_id, fence)
            yield Ask("show_progress", {"item_id": item_id, "progress": callback.progress, "task": task})
        if callback.kind is not Kind.PROGRESS:
            yield Ask("hurry_item", {"item_id": item_id})
    return ReceivedMessage(late, not added)


def _accept(number: int, owner: str, by: str) -> Script[None]:
    found = yield Ask("late_result", {"number": number, "owner": owner})
    if not found:
        raise _late_result_not_found(number)
    late: LateResult = found[0]
    if late.accepted_at is not None:
        return
    rows = yield Ask("accept_item", {"item_id": late.item_id})
    if not rows:
        item = show_item(late.item_id)
        [stands] = yield Ask("item_state", {"item_id": late.item_id})
        if stands["archive_id"] is not None:
            raise archived_error(late.item_id, stands["archive_id"])
        raise NotAllowed(f"item {item} is {late.item_state}: only a failed item takes a late result")
    accepted: AcceptedItem = rows[0]
    told = (None, None, None, result_of(late.body or ""), None, None, None)
    times = (accepted.last_attempt_at or accepted.now, accepted.now)
    attempt = Attempt(accepted.id, accepted.fence, accepted.attempt_count, AttemptOutcome.SUCCEEDED, *times, *told)
    yield from write_attempts([attempt])
    yield Ask("accept_in_job", {"job_id": accepted.job_id})
    yield Ask("write_events", batch=[(f"item:{accepted.id}", "late_accepted", f"late result accepted by {by}")])
    yield Ask("accept_inbox", {"number": number, "accepted_by": by})


def _late_result_not_found(number: int) -> NotFound:
    return NotFound(f"no late result {number}")
