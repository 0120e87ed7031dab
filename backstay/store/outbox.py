"""The outbox: messages written in the same transaction as the change they report, until a relay has published them.

`ItemEventsDatabase` writes an event for every change of an item's state, if the setting `item_events` asks for it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from backstay.clock import new_id
from backstay.core.errors import UsageError
from backstay.core.failures import one_line
from backstay.core.ids import item_range, job_of, show_item
from backstay.core.states import ItemState
from backstay.store.databases.database import Database, Front
from backstay.store.queries import Ask, Load, Script, fields_of, one, record

WORK: Final = "work"  # the sink of hints about items that are ready
WEBHOOKS: Final = "webhooks"  # the sink of events about jobs, batches and items, and of users' messages
MESSAGES: Final = "messages"  # the sink of users' messages and of events about items for a broker
USER_EVENT: Final = "user."  # begins the names of users' messages; their topic follows
ITEM_EVENT: Final = "item."  # begins the names of events about items; their new state follows
ITEM_FAILED: Final = "item.failed"
EVENT_ITEMS_MAX: Final = 100  # in one event
NOTICES_READ: Final = 5_000  # by one look
NOTICES_TOLD: Final = 2_000  # reported by one transaction
NOTICE_WAIT_MS: Final = 5_000  # how long a failed item waits for others of its job
TOPIC: Final = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
TOPIC_CHARACTERS_MAX: Final = 100
MESSAGE_BYTES_MAX: Final = 65_536
WORK_READY: Final = "work.ready"
HINT_ITEMS_MAX: Final = 50  # per message
LAG_ROWS_MAX: Final = 10_000  # pending messages are counted up to this
PRUNE_ROWS: Final = 5_000  # deleted by one statement
PRUNE_CHUNKS_MAX: Final = 20  # by one call
HINT_AGE_MS: Final = 3_600_000  # by then the database has served what was not published
MESSAGE_AGE_MS: Final = 30 * 86_400_000  # an unpublished message of a user's is deleted then: no broker came
PUBLISHED_AGE_MS: Final = 600_000
ERROR_CHARACTERS_MAX: Final = 200
WAIT_STEP_MS: Final = 1_000
REPUBLISH_ITEMS: Final = 5_000  # read in one transaction
_CUSTOM_ID: Final = re.compile(r'\{"custom_id": ?("(?:[^"\\]|\\.)*")')


@record
class Message(NamedTuple):
    """One row that a relay has claimed: no other relay gets it before the lease ends.

    `id` is the same for every copy that is ever published of it. The payload of a hint is JSON: handler, priority, and
    either items (their ids) or first and count; with wait_ms, counted from `created_at`, if they are not due yet.
    """

    id: int
    owner: str
    message_type: str
    aggregate_id: str  # of a hint: its first item's id; of a user's message: the id that its receivers see
    payload: str
    created_at: int
    tries: int  # including this one
    age_ms: int = 0  # since it was written, on the database's clock


@record
class Lag(NamedTuple):
    rows: int  # pending, counted up to LAG_ROWS_MAX
    age_ms: int  # of the oldest of them


class Outbox:
    """Publishes, claims and marks messages. Any number of relays may run at once."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._fronts: dict[str, Front] = {}  # by sink

    async def publish(self, owner: str, topic: str, message: str) -> tuple[str, ...]:
        """Writes a user's message, a JSON text, for each sink that takes it; returns their names."""
        if not isinstance(topic, str) or len(topic) > TOPIC_CHARACTERS_MAX or not re.fullmatch(TOPIC, topic):
            shown = one_line(str(topic), TOPIC_CHARACTERS_MAX)
            hint = f"use up to {TOPIC_CHARACTERS_MAX} letters, digits, - and _, with dots between: orders.created"
            raise UsageError(f"{shown!r} is not a valid topic", hint=hint)
        if len(message) > MESSAGE_BYTES_MAX:
            hint = "put the data elsewhere, and publish its address"
            raise UsageError(f"the message has {len(message):,} bytes; the limit is {MESSAGE_BYTES_MAX:,}", hint=hint)
        values = {"owner": owner, "id": new_id(), "event": USER_EVENT + topic, "body": message}
        rows = await self._db.single(one("publish_message", values))
        return tuple(sorted(row["sink"] for row in rows))

    async def claim(self, sink: str, n: int, lease_ms: int) -> list[Message]:
        """The oldest pending messages that are due, for one relay until its lease is over."""
        values = {"sink": sink, "n": n, "lease_ms": lease_ms}
        front = self._fronts.setdefault(sink, Front(self._db))
        rows = await self._db.single(
            lambda: front.look_back(lambda back_ms: Ask("claim_messages", {**values, "back_ms": back_ms}), n)
        )
        return sorted(rows, key=_age)

    async def mark_published(self, ids: Sequence[int]) -> None:
        """Marks messages as confirmed by the broker. A repeated call changes nothing."""
        if ids:
            await self._db.single(one("messages_published", batch=[(message,) for message in sorted(ids)]))

    async def mark_failed(self, ids: Sequence[int], error: str, delay_ms: int) -> None:
        """Returns unconfirmed messages: they are due again after the delay, or without a delay in their old place."""
        if ids:
            values = {"error": one_line(error, ERROR_CHARACTERS_MAX), "delay_ms": delay_ms}
            await self._db.single(one("messages_failed", values, [(message,) for message in sorted(ids)]))

    async def lag(self, sink: str) -> Lag:
        [found] = await self._db.read(one("outbox_lag", {"sink": sink, "n": LAG_ROWS_MAX}))
        return found  # type: ignore[no-any-return]

    async def prune(self) -> int:
        """Deletes a bounded number of messages that were published or are no longer needed; returns how many."""
        dropped = 0
        for sink, age_ms, more in ((WORK, HINT_AGE_MS, ()), (MESSAGES, MESSAGE_AGE_MS, ("drop_old_notices",))):
            dropped += await self._drop({"sink": sink, "age_ms": PUBLISHED_AGE_MS}, "drop_published")
            dropped += await self._drop({"sink": sink, "age_ms": age_ms}, "drop_pending", *more)
        return dropped

    async def tell_failed(self) -> int:
        """Writes events about items that have failed; returns how many events."""
        return await tell_failed(self._db)

    async def _drop(self, values: dict[str, Any], *names: str) -> int:
        def script() -> Script[list[int]]:
            counts = []
            for name in names:
                counts.append(len((yield Ask(name, {**values, "n": PRUNE_ROWS}))))
            return counts

        dropped = 0
        for _ in range(PRUNE_CHUNKS_MAX):
            counts = await self._db.single(script)
            dropped += sum(counts)
            if max(counts) < PRUNE_ROWS:
                break
        return dropped

    # sinks

    async def open_sink(self, sink: str = WORK) -> None:
        """Opens the sink: from now on every submit and every retry writes hints."""
        await self._db.write(one("open_sink", {"sink": sink}))

    async def close_sink(self, sink: str = WORK) -> int:
        """Closes the sink: no more hints are written, and unpublished ones are deleted; returns how many."""
        await self._db.write(one("close_sink", {"sink": sink}))
        dropped = 0
        while chunk := await self._drop({"sink": sink, "age_ms": 0}, "drop_pending"):
            dropped += chunk
        return dropped

    async def is_open(self, sink: str = WORK) -> bool:
        return bool(await self._db.read(one("open_sinks", {"sink": sink})))

    async def republish(self, after_item: int = 0) -> int:
        """Writes hints again for every ready item after this one, one page per transaction; returns how many items.
        While the sink is closed, none are written."""
        items = 0
        start: int | None = after_item + 1
        while start is not None:
            found, start = await self._db.write(partial(_republish, start))
            items += found
        return items


def _age(message: Message) -> tuple[int, int]:
    return message.created_at, message.id


# events about items


class ItemEvent(NamedTuple):
    """One event about some items of a job: fields that they share, and an object for each item."""

    job_id: int
    name: str
    items: Sequence[Mapping[str, Any]]
    shared: Mapping[str, Any] = {}


@record
class FailureNotice(NamedTuple):
    """A failed item that no event has reported yet."""

    id: int
    job_id: int
    failed_at: int
    now: int


@record
class NotedFailure(NamedTuple):
    """How an item failed, as it was then: it may have been retried since."""

    item_id: int
    job_id: int
    handler: str
    attempt_count: int
    calls: int
    error_code: str | None
    flaw: str | None
    failed_at: int
    message: str | None
    provider_status: int | None
    key: str | None  # the key that its submitter gave it
    head: str | None  # the beginning of its request

    def event_data(self) -> dict[str, Any]:
        return {
            "id": show_item(self.item_id),
            "custom_id": custom_id_of(self.head or ""),
            "key": self.key,
            "handler": self.handler,
            "attempts": self.attempt_count,
            "calls": self.calls,
            "error_code": self.error_code,
            "flaw": self.flaw,
            "message": None if self.message is None else one_line(self.message),
            "provider_status": self.provider_status,
            "failed_at": self.failed_at,
        }


def custom_id_of(head: str) -> str | None:
    """The custom_id that a request begins with, if it has one."""
    found = _CUSTOM_ID.match(head)
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:
        return None


def due_notices(notices: Sequence[FailureNotice]) -> list[int]:
    """The notices to report now, the oldest first: of each job enough for full events, and the rest when the oldest has
    waited long enough."""
    jobs: dict[int, list[FailureNotice]] = {}
    for notice in notices:
        jobs.setdefault(notice.job_id, []).append(notice)
    due: list[int] = []
    for mine in jobs.values():
        waited = max(notice.now - notice.failed_at for notice in mine) >= NOTICE_WAIT_MS
        due += [one.id for one in (mine if waited else mine[: len(mine) - len(mine) % EVENT_ITEMS_MAX])]
    return due[:NOTICES_TOLD]


async def tell_failed(database: Database) -> int:
    """Collects failed items into events, in one transaction: any number of processes may do it."""
    due = due_notices(await database.read(one("failure_notices", {"n": NOTICES_READ})))
    return await database.write(lambda: _tell_failed(due)) if due else 0


def _tell_failed(due: Sequence[int]) -> Script[int]:
    taken = yield Ask("take_notices", batch=[(notice,) for notice in due])
    found: list[NotedFailure] = yield Ask("noted_failures", batch=[tuple(row) for row in taken])
    return (yield from tell_items(chunk_items(((it.job_id, ITEM_FAILED, ()), it.event_data()) for it in found)))


def chunk_items(
    found: Iterable[tuple[tuple[int, str, tuple[tuple[str, Any], ...]], Mapping[str, Any]]],
) -> list[ItemEvent]:
    """Items with the same job, event and shared fields become events, each about a bounded number of them."""
    groups: dict[tuple[int, str, tuple[tuple[str, Any], ...]], list[Mapping[str, Any]]] = {}
    for alike, item in found:
        groups.setdefault(alike, []).append(item)
    return [
        ItemEvent(job_id, name, items[start : start + EVENT_ITEMS_MAX], dict(shared))
        for (job_id, name, shared), items in groups.items()
        for start in range(0, len(items), EVENT_ITEMS_MAX)
    ]


def tell_items(events: Sequence[ItemEvent]) -> Script[int]:
    """Writes events for every receiver: a broker's sink, if it is open, and webhooks of the job's owner that name the
    event. All copies of an event have one id. Returns how many events were written."""
    wanted = sorted({(event.job_id, event.name) for event in events})
    rows = (yield Ask("event_takers", batch=wanted)) if wanted else []
    takers: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        takers.setdefault((row["job_id"], row["event"]), []).append(row)
    messages, told = [], 0
    for event in events:
        mine = takers.get((event.job_id, event.name), ())
        told += bool(mine)
        event_id = new_id()
        for job in mine:
            about = {"id": str(event.job_id), "owner": job["owner"], "handler": job["handler"], **event.shared}
            body = json.dumps({**about, "items": event.items}, separators=(",", ":"))
            messages.append(
                NewMessage(job["owner"], "items", event_id, event.name, body, job["now"], job["now"], job["sink"])
            )
    yield from _write(messages)
    return told


# hints


@record
class HintedItem(NamedTuple):
    """An item that went back to the queue, for a hint."""

    id: int
    owner: str
    handler: str
    priority: int
    wait_ms: int | None
    now: int


class NewMessage(NamedTuple):
    """A message as it is written: a hint about ready items, or an event."""

    owner: str
    aggregate_type: str
    aggregate_id: str
    message_type: str
    payload: str
    created_at: int
    due_at: int
    sink: str


class _Alike(NamedTuple):
    """The common fields of the items of one hint."""

    owner: str
    handler: str
    priority: int
    wait_ms: int | None = None


def hint_new(owner: str, handler: str, priority: int, items: range, now: int) -> Script[None]:
    """Hints for consecutive items that are ready now."""
    parts = (items[start : start + HINT_ITEMS_MAX] for start in range(0, len(items), HINT_ITEMS_MAX))
    alike = _Alike(owner, handler, priority)
    yield from _write([_row(alike, part[0], {"first": part[0], "count": len(part)}, now) for part in parts])


def hint_few(handler: str, priority: int, count: int) -> str:
    """The same for a statement that makes the items itself: it adds the first one's id and the last brace."""
    return json.dumps({"handler": handler, "priority": priority, "count": count})[:-1] + ', "first": '


def hint_queued(items: Sequence[int]) -> Script[None]:
    """Hints for items that were just queued again; some of them must wait before they are ready."""
    found: list[HintedItem] = (yield Ask("hinted_items", batch=[(item,) for item in items])) if items else []
    if found:
        alike = [(_Alike(one.owner, one.handler, one.priority, one.wait_ms), one.id) for one in found]
        yield from _write(_rows(alike, found[0].now))


def _rows(found: Iterable[tuple[_Alike, int]], now: int) -> list[NewMessage]:
    """Items whose waits end within the same second share a hint, which comes when the last of them is due."""
    groups: dict[_Alike, list[int]] = {}
    for alike, item in found:
        wait = alike.wait_ms
        rounded = None if wait is None or wait <= 0 else -(-wait // WAIT_STEP_MS) * WAIT_STEP_MS
        groups.setdefault(alike._replace(wait_ms=rounded), []).append(item)
    return [
        _row(alike, items[start], {"items": items[start : start + HINT_ITEMS_MAX]}, now)
        for alike, items in groups.items()
        for start in range(0, len(items), HINT_ITEMS_MAX)
    ]


def _row(alike: _Alike, first: int, named: dict[str, Any], now: int) -> NewMessage:
    payload = {"handler": alike.handler, "priority": alike.priority, **named}
    if alike.wait_ms is not None:
        payload["wait_ms"] = alike.wait_ms
    return NewMessage(alike.owner, "items", str(first), WORK_READY, json.dumps(payload), now, now, WORK)


def _write(rows: Sequence[NewMessage]) -> Script[None]:
    if rows:
        yield Load("outbox", fields_of(NewMessage), rows)


def _republish(start: int) -> Script[tuple[int, int | None]]:
    """Hints for a page of one job's items from an id on; returns how many items, and where the next page begins."""
    jobs = yield Ask("next_open_job", {"job_id": job_of(start)})
    if not jobs:
        return 0, None
    [job] = jobs
    first, after = item_range(job["id"])
    found = yield Ask("ready_items", {"first": max(start, first), "after": after, "n": REPUBLISH_ITEMS})
    if found:
        alike = [(_Alike(job["owner"], row["handler"], job["priority"]), row["id"]) for row in found]
        yield from _write(_rows(alike, found[0]["now"]))
    return len(found), found[-1]["id"] + 1 if len(found) == REPUBLISH_ITEMS else after


# The setting item_events: writes an event for every change of an item's state, in the transaction of the change.

T = TypeVar("T")
Shared = tuple[tuple[str, Any], ...]


class ItemChange(NamedTuple):
    """The change that a statement makes to the items that it returns. A state of None is in its values or its rows."""

    reason: str
    was: ItemState | None = None
    state: ItemState | None = None


_CLAIMED: Final = ItemChange("claimed", ItemState.QUEUED, ItemState.SUBMITTING)
CHANGES: Final[Mapping[str, ItemChange]] = {
    "claim": _CLAIMED,
    "claim_known": _CLAIMED,
    "claim_named": _CLAIMED,
    "claim_picked": _CLAIMED,
    "claim_fitting": _CLAIMED,
    "settle_items": ItemChange("settled"),
    "settle_ended": ItemChange("settled"),
    "settle_few": ItemChange("settled"),
    "settle_few_apart": ItemChange("settled"),
    "rescue": ItemChange("rescued", ItemState.SUBMITTING, ItemState.SUBMITTING),
    "return_lost_claim": ItemChange("released", ItemState.SUBMITTING, ItemState.QUEUED),
    "end_queued": ItemChange("cancelled", ItemState.QUEUED),
    "retry_items": ItemChange("retried", ItemState.FAILED),
    "copy_answers": ItemChange("reused", ItemState.QUEUED, ItemState.SUCCEEDED),
    "accept_item": ItemChange("accepted", ItemState.FAILED, ItemState.SUCCEEDED),
}


def changed_items(asked: Ask, rows: list[Any]) -> Iterator[tuple[tuple[int, str, Shared], Mapping[str, Any]]]:
    """Each changed item with its job, its event, and what it shares with others."""
    change = CHANGES[asked.name]
    was, code = change.was or asked.values["was"], asked.values.get("error_code")
    for row in rows:
        state = change.state or (asked.values["state"] if change.reason == "settled" else _field(row, "state"))
        if state == ItemState.FAILED or (state == was and change.reason == "settled"):
            continue  # a failure has its own event; a task that is still under way has not changed
        shared = (("from", str(was)), ("reason", change.reason), ("error_code", code))
        item = _field(row, "id")
        yield (job_of(item), f"{ITEM_EVENT}{state}", shared), {"id": show_item(item)}


def _field(row: Any, name: str) -> Any:
    """A field of a record, or of a row that is read by name."""
    return getattr(row, name) if hasattr(row, "_fields") else row[name]


def with_item_events(script: Script[T]) -> Script[T]:
    """The same script; at its end the events about the items that it changed are written."""
    changed: list[tuple[tuple[int, str, Shared], Mapping[str, Any]]] = []
    answer: list[Any] | None = None
    while True:
        try:
            asked: Ask | Load = script.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            yield from tell_items(chunk_items(changed))
            return end.value  # type: ignore[no-any-return]
        answer = yield asked
        if isinstance(asked, Ask) and asked.name in CHANGES:
            changed += changed_items(asked, answer)


class ItemEventsDatabase:
    """A database whose scripts write events about the items that they change."""

    def __init__(self, database: Database) -> None:
        self._inner = database
        self.dialect = database.dialect
        self.clock = database.clock
        self.listens = database.listens
        self.wakes = database.wakes
        self.open = database.open
        self.close = database.close
        self.read = database.read
        self.notify = database.notify
        self.listen = database.listen

    async def write(self, make: Callable[[], Script[T]]) -> T:
        return await self._inner.write(lambda: with_item_events(make()))

    async def single(self, make: Callable[[], Script[T]]) -> T:
        """The change and its events must commit together, so it needs a transaction."""
        return await self.write(make)
