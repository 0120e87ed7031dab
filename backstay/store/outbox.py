"""The outbox: messages written in the transaction that they tell of, until a relay has published them."""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from backstay.core.failures import one_line
from backstay.core.ids import item_range, job_of
from backstay.store.database import Database
from backstay.store.queries import Ask, Load, Script, one
from backstay.store.rows import fields_of, record

WORK: Final = "work"  # the sink of hints about items that are ready
WEBHOOKS: Final = "webhooks"  # the sink of what happened to jobs and batches
WORK_READY: Final = "work.ready"
HINT_ITEMS_MAX: Final = 50  # that one message names
LAG_ROWS_MAX: Final = 10_000  # as far as pending messages are counted
PRUNE_ROWS: Final = 5_000  # dropped by one statement
PRUNE_CHUNKS_MAX: Final = 20  # by one call
HINT_AGE_MS: Final = 3_600_000  # what has not left by then was served by the database
PUBLISHED_AGE_MS: Final = 600_000
ERROR_CHARACTERS_MAX: Final = 200
WAIT_STEP_MS: Final = 1_000
REPUBLISH_ITEMS: Final = 5_000  # looked at in one transaction


@record
class Message(NamedTuple):
    """One row that a relay has claimed: nobody else gets it before the lease is over.

    `id` is the same for every copy that is ever published of it. The payload of a hint is JSON: handler, priority, and
    either items (their ids) or first and count; with wait_ms, counted from `created_at`, if they are not due yet.
    """

    id: int
    owner: str
    message_type: str
    aggregate_id: str  # of a hint: its first item's id
    payload: str
    created_at: int
    tries: int  # with this one
    age_ms: int = 0  # since it was written, on the database's clock


@record
class Lag(NamedTuple):
    rows: int  # pending, counted up to LAG_ROWS_MAX
    age_ms: int  # of the oldest of them


class Outbox:
    """What relays do with messages of a sink. Any number of them may do it at once."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def claim(self, sink: str, n: int, lease_ms: int) -> list[Message]:
        """The oldest pending messages that are due, for one relay until its lease is over."""
        rows = await self._db.single(one("claim_messages", {"sink": sink, "n": n, "lease_ms": lease_ms}))
        return sorted(rows, key=_age)

    async def published(self, ids: Sequence[int]) -> None:
        """The broker has confirmed them. Told twice, it is the same."""
        if ids:
            await self._db.single(one("messages_published", batch=[(message,) for message in sorted(ids)]))

    async def failed(self, ids: Sequence[int], error: str, delay_ms: int) -> None:
        """They were not confirmed; they are due again after the delay, or without one in their old place."""
        if ids:
            values = {"error": one_line(error, ERROR_CHARACTERS_MAX), "delay_ms": delay_ms}
            await self._db.single(one("messages_failed", values, [(message,) for message in sorted(ids)]))

    async def lag(self, sink: str) -> Lag:
        [found] = await self._db.read(one("outbox_lag", {"sink": sink, "n": LAG_ROWS_MAX}))
        return found  # type: ignore[no-any-return]

    async def prune(self) -> int:
        """Drops a bounded number of hints that left, or that nobody needs any more; returns how many."""
        published = await self._drop("drop_published", {"age_ms": PUBLISHED_AGE_MS})
        return published + await self._drop("drop_pending", {"sink": WORK, "age_ms": HINT_AGE_MS})

    async def _drop(self, name: str, values: dict[str, Any]) -> int:
        dropped = 0
        for _ in range(PRUNE_CHUNKS_MAX):
            rows = await self._db.single(one(name, {**values, "n": PRUNE_ROWS}))
            dropped += len(rows)
            if len(rows) < PRUNE_ROWS:
                break
        return dropped

    # sinks

    async def open_sink(self, sink: str = WORK) -> None:
        """From now on every submit and every retry writes hints for it."""
        await self._db.write(one("open_sink", {"sink": sink}))

    async def close_sink(self, sink: str = WORK) -> int:
        """No more hints are written, and those that have not left are dropped; returns how many those were."""
        await self._db.write(one("close_sink", {"sink": sink}))
        dropped = 0
        while chunk := await self._drop("drop_pending", {"sink": sink, "age_ms": 0}):
            dropped += chunk
        return dropped

    async def is_open(self, sink: str = WORK) -> bool:
        return bool(await self._db.read(one("open_sinks", {"sink": sink})))

    async def republish(self, after_item: int = 0) -> int:
        """Writes hints anew for every item behind this one that is ready, a page in each transaction; returns how many
        items those were. While the sink is closed none are written."""
        items = 0
        start: int | None = after_item + 1
        while start is not None:
            found, start = await self._db.write(partial(_republish, start))
            items += found
        return items


def _age(message: Message) -> tuple[int, int]:
    return message.created_at, message.id


# hints


@record
class HintedItem(NamedTuple):
    """An item that went back to the queue, as a hint tells of it."""

    id: int
    owner: str
    handler: str
    priority: int
    wait_ms: int | None
    now: int


class Hint(NamedTuple):
    """A message about items that are ready, as it is written."""

    owner: str
    aggregate_type: str
    aggregate_id: str
    message_type: str
    payload: str
    created_at: int
    due_at: int
    sink: str


class _Alike(NamedTuple):
    """What the items of one hint have in common."""

    owner: str
    handler: str
    priority: int
    wait_ms: int | None = None


def hint_new(owner: str, handler: str, priority: int, items: range, now: int) -> Script[None]:
    """Hints for items in a row that are ready now."""
    parts = (items[start : start + HINT_ITEMS_MAX] for start in range(0, len(items), HINT_ITEMS_MAX))
    alike = _Alike(owner, handler, priority)
    yield from _write([_row(alike, part[0], {"first": part[0], "count": len(part)}, now) for part in parts])


def hint_few(handler: str, priority: int, count: int) -> str:
    """The same for a statement that makes the items itself: it adds the first one's id and the last brace."""
    return json.dumps({"handler": handler, "priority": priority, "count": count})[:-1] + ', "first": '


def hint_queued(items: Sequence[int]) -> Script[None]:
    """Hints for items that were just queued again, some to wait before they are ready."""
    found: list[HintedItem] = (yield Ask("hinted_items", batch=[(item,) for item in items])) if items else []
    if found:
        alike = [(_Alike(one.owner, one.handler, one.priority, one.wait_ms), one.id) for one in found]
        yield from _write(_rows(alike, found[0].now))


def _rows(found: Iterable[tuple[_Alike, int]], now: int) -> list[Hint]:
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


def _row(alike: _Alike, first: int, named: dict[str, Any], now: int) -> Hint:
    said = {"handler": alike.handler, "priority": alike.priority, **named}
    if alike.wait_ms is not None:
        said["wait_ms"] = alike.wait_ms
    return Hint(alike.owner, "items", str(first), WORK_READY, json.dumps(said), now, now, WORK)


def _write(rows: Sequence[Hint]) -> Script[None]:
    if rows:
        yield Load("outbox", fields_of(Hint), rows)


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
