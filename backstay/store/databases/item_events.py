"""The setting `item_events`: writes an event for every change of an item's state, in the transaction of the change.

The verbs do not know of it. It sees the statements that they yield, and the items that came back. At the end of a
script it writes a few rows to the outbox, each about many items. `item.failed` tells of failures, with or without it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from backstay.core.ids import job_of, show_item
from backstay.core.states import ItemState
from backstay.store.databases.database import Database
from backstay.store.outbox import ITEM_EVENT, chunk_items, tell_items
from backstay.store.queries import Ask, Load, Script

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
