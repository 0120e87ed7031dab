"""The judge of a replay of dead messages: it decides about each message by the state of its items in the database."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from backstay.core.callbacks import TaggedCallback
from backstay.core.display import one_line
from backstay.core.ids import read_item
from backstay.core.states import ItemState
from backstay.messaging.dead_queue import Verdict, dead_reason
from backstay.messaging.messages import (
    Incoming,
    OutgoingMessage,
    Poison,
    Work,
    read_callback,
    read_work,
    repeat_callback,
    send_work,
)
from backstay.messaging.topology import Topology
from backstay.store.dead_letters import LetterFilter, ReplayRequest
from backstay.store.item_views import NamedItem
from backstay.store.store import Store

# The names of the counts: of messages in the first line, of items in the second.
MESSAGES: Final = ("seen", "chosen", "callbacks", "poison", "left")
ITEMS: Final = ("replayed", "published", "done", "refused", "unknown")
REASONS_MAX: Final = 20  # different reasons that are reported, so that memory does not grow with the queue


class Choice(NamedTuple):
    """The messages to replay: those that name one item, or are dead for a reason; without either, all."""

    item: int | None = None
    reason: str | None = None

    def includes(self, message: Incoming, said: Work | TaggedCallback | Poison) -> bool:
        if self.reason is not None and self.reason.casefold() not in dead_reason(message).casefold():
            return False
        match said:
            case Work():
                return self.item is None or self.item in said.items
            case TaggedCallback():
                return self.item is None or self.item == read_item(said.item)
            case Poison():
                return self.item is None

    def items_of(self, work: Work) -> Sequence[int]:
        return work.items if self.item is None else (self.item,)


class DeadMessages:
    """The judge of a replay. `counts` has the numbers of its decisions, `reasons` why messages are unreadable.

    A failed item is queued again, as in any replay of dead letters. For a queued item, a new hint is published. An item
    that has ended, or is running, needs nothing. A remote worker's callback goes back to the callback queue, where it
    is judged again. Unreadable messages stay, and so do messages of items that cannot be retried now.
    """

    def __init__(self, store: Store, topology: Topology, choice: Choice, who: str | None) -> None:
        """Without `who` it only counts, and all messages stay."""
        self._store = store
        self._topology = topology
        self._choice = choice
        self._who = who
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    async def __call__(self, window: Sequence[Incoming]) -> Sequence[Verdict]:
        chosen = [self._choose(message) for message in window]
        named = {item for said in chosen if isinstance(said, Work) for item in self._choice.items_of(said)}
        before = await self._store.item_views.by_ids(named) if named else {}
        after = await self._replay(before)
        verdicts = [self._verdict(message, said, before, after) for message, said in zip(window, chosen, strict=True)]
        return verdicts if self._who is not None else [Verdict(message.body) for message in window]

    def _choose(self, message: Incoming) -> Work | TaggedCallback | None:
        """The content to replay; None: the message stays as it is."""
        self.counts["seen"] += 1
        said = _read(message)
        if not self._choice.includes(message, said):
            self.counts["left"] += 1
            return None
        self.counts["chosen"] += 1
        if not isinstance(said, Poison):
            return said
        self.counts["poison"] += 1
        reason = one_line(dead_reason(message), 100) or said.reason
        self.reasons[reason if reason in self.reasons or len(self.reasons) < REASONS_MAX else "other reasons"] += 1
        return None

    async def _replay(self, before: Mapping[int, NamedItem]) -> Mapping[int, NamedItem]:
        """Queues failed items again, owner by owner; returns the states of those items afterwards."""
        failed: dict[str, list[int]] = {}
        for item, standing in before.items():
            if standing.state is ItemState.FAILED:
                failed.setdefault(standing.owner, []).append(item)
        by = None if self._who is None else ReplayRequest(self._who)
        for owner, items in sorted(failed.items()):
            self.counts["replayed"] += (await self._store.replays.replay_some(owner, LetterFilter(), items, by)).items
        if by is None or not failed:
            return {}
        await self._store.notify()
        return await self._store.item_views.by_ids(item for items in failed.values() for item in items)

    def _verdict(
        self,
        message: Incoming,
        said: Work | TaggedCallback | None,
        before: Mapping[int, NamedItem],
        after: Mapping[int, NamedItem],
    ) -> Verdict:
        if said is None:
            return Verdict(message.body)
        if isinstance(said, TaggedCallback):
            self.counts["callbacks"] += 1
            return Verdict(None, [repeat_callback(self._topology, message)])
        return self._of_items(message, said, before, after)

    def _of_items(
        self, message: Incoming, work: Work, before: Mapping[int, NamedItem], after: Mapping[int, NamedItem]
    ) -> Verdict:
        chosen = self._choice.items_of(work)
        stay = [item for item in work.items if item not in chosen]
        queued: dict[str, list[int]] = {}
        for item in chosen:
            standing = before.get(item)
            if standing is None:
                word = "unknown"
            elif standing.state is ItemState.FAILED:
                word = "refused" if item in after and after[item].state is ItemState.FAILED else ""
            elif standing.state is ItemState.QUEUED:
                queued.setdefault(standing.handler, []).append(item)
                word = "published"
            else:
                word = "done"
            if word in ("unknown", "refused"):
                stay.append(item)
            if word:
                self.counts[word] += 1
        return Verdict(self._rest(message, work, stay), [self._hint(work, *named) for named in queued.items()])

    def _rest(self, message: Incoming, work: Work, stay: Sequence[int]) -> bytes | None:
        """The part of a message that stays: all of it, nothing, or the message without the items that are settled."""
        if not stay:
            return None
        if len(stay) == len(work.items):
            return message.body
        return send_work(self._topology, replace(work, items=tuple(sorted(stay)))).body

    def _hint(self, work: Work, handler: str, items: Sequence[int]) -> OutgoingMessage:
        return send_work(self._topology, replace(work, handler=handler, items=tuple(items), rest_ms=0))


def _read(message: Incoming) -> Work | TaggedCallback | Poison:
    work = read_work(message)
    if isinstance(work, Poison) and isinstance(told := read_callback(message), TaggedCallback):
        return told
    return work
