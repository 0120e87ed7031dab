"""What becomes of messages in the broker's dead queue that a person has replayed: the database decides."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from backstay.core.states import ItemState
from backstay.core.words import one_line
from backstay.messaging.dead_queue import Verdict, reason_kept
from backstay.messaging.messages import Incoming, Outgoing, Work, read_work, send_work
from backstay.messaging.topology import Topology
from backstay.store.dead_letters import Wanted
from backstay.store.replays import By
from backstay.store.store import Store
from backstay.store.views import NamedItem

# What is counted: messages in the first line, items in the second.
MESSAGES: Final = ("seen", "chosen", "poison", "left")
ITEMS: Final = ("replayed", "published", "done", "refused", "unknown")
REASONS_MAX: Final = 20  # different ones that are told of, so that memory does not grow with the queue


class Choice(NamedTuple):
    """Which messages: that name one item, that are dead for a reason; without either, all."""

    item: int | None = None
    reason: str | None = None

    def of(self, message: Incoming, work: object) -> bool:
        if self.reason is not None and self.reason.casefold() not in reason_kept(message).casefold():
            return False
        return self.item is None or (isinstance(work, Work) and self.item in work.items)

    def named(self, work: Work) -> Sequence[int]:
        return work.items if self.item is None else (self.item,)


class DeadMessages:
    """The judge of a replay. `counts` tells what it decided, `reasons` why messages are poison.

    An item that failed is queued afresh, as any replay of dead letters does it; one that is queued is told of again;
    one that has ended, or is being done, needs nothing. Poison stays, and so does what cannot be retried now.
    """

    def __init__(self, store: Store, topology: Topology, choice: Choice, who: str | None) -> None:
        """Without a `who` it only counts, and everything stays."""
        self._store = store
        self._topology = topology
        self._choice = choice
        self._who = who
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    async def __call__(self, window: Sequence[Incoming]) -> Sequence[Verdict]:
        works = [self._chosen(message) for message in window]
        named = {item for work in works if work is not None for item in self._choice.named(work)}
        before = await self._store.views.named_items(named) if named else {}
        after = await self._replay(before)
        verdicts = [
            Verdict(message.body) if work is None else self._verdict(message, work, before, after)
            for message, work in zip(window, works, strict=True)
        ]
        return verdicts if self._who is not None else [Verdict(message.body) for message in window]

    def _chosen(self, message: Incoming) -> Work | None:
        self.counts["seen"] += 1
        work = read_work(message)
        if not self._choice.of(message, work):
            self.counts["left"] += 1
            return None
        self.counts["chosen"] += 1
        if isinstance(work, Work):
            return work
        self.counts["poison"] += 1
        reason = one_line(reason_kept(message), 100) or work.reason
        self.reasons[reason if reason in self.reasons or len(self.reasons) < REASONS_MAX else "other reasons"] += 1
        return None

    async def _replay(self, before: Mapping[int, NamedItem]) -> Mapping[int, NamedItem]:
        """Queues what failed afresh, owner by owner; returns how it stands with those items then."""
        failed: dict[str, list[int]] = {}
        for item, standing in before.items():
            if standing.state is ItemState.FAILED:
                failed.setdefault(standing.owner, []).append(item)
        by = None if self._who is None else By(self._who)
        for owner, items in sorted(failed.items()):
            self.counts["replayed"] += (await self._store.replays.replay_some(owner, Wanted(), items, by)).items
        if by is None or not failed:
            return {}
        await self._store.notify()
        return await self._store.views.named_items(item for items in failed.values() for item in items)

    def _verdict(
        self, message: Incoming, work: Work, before: Mapping[int, NamedItem], after: Mapping[int, NamedItem]
    ) -> Verdict:
        chosen = self._choice.named(work)
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
        """What stays of a message: all of it, nothing, or the same without the items that are settled."""
        if not stay:
            return None
        if len(stay) == len(work.items):
            return message.body
        return send_work(self._topology, replace(work, items=tuple(sorted(stay)))).body

    def _hint(self, work: Work, handler: str, items: Sequence[int]) -> Outgoing:
        return send_work(self._topology, replace(work, handler=handler, items=tuple(items), rest_ms=0))
