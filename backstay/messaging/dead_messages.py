"""The broker's dead queue: its messages, and their replay, about which the database decides."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import DeliveredMessage
from aiormq.channel import Channel
from pamqp.commands import Basic

from backstay.clock import Clock
from backstay.core.callbacks import Told
from backstay.core.display import one_line
from backstay.core.errors import BrokerUnreachable, NotAllowed
from backstay.core.ids import read_item
from backstay.core.states import ItemState
from backstay.messaging.broker import properties_of
from backstay.messaging.connection import reason_of
from backstay.messaging.declaring import QueueDepth, declare, depth_of
from backstay.messaging.delivery import incoming
from backstay.messaging.messages import (
    REASON_HEADER,
    Incoming,
    OutgoingMessage,
    Poison,
    Work,
    callback_again,
    read_callback,
    read_work,
    send_work,
    writable,
)
from backstay.messaging.topology import Topology
from backstay.store.dead_letters import By, LetterFilter
from backstay.store.item_views import NamedItem
from backstay.store.store import Store

WINDOW_MESSAGES: Final = 100  # that are moved at a time
PREFETCH_MESSAGES: Final = 2 * WINDOW_MESSAGES  # in hand at most, whatever the queue holds
ANSWER_SECONDS: Final = 30.0  # for the broker to take or confirm something
IDLE_SECONDS: Final = 3.0  # without a message, although there should be one: somebody else took it
CLEARED_TRIES: Final = 20  # for the broker to notice that the one before us is gone
CLEARED_SECONDS: Final = 0.1
BROKER_REASON_HEADER: Final = "x-first-death-reason"
# The broker would act on these headers when a copy is published, and send it to further queues.
MEANT_FOR_THE_BROKER: Final = ("CC", "BCC")
RENAMED: Final = "x-backstay-was-"
DELIVERY_COUNT_HEADER: Final = "x-delivery-count"  # what a quorum queue says of itself


class Verdict(NamedTuple):
    """What becomes of a dead message: what stays of it, and what is published instead: hints, or a callback."""

    stays: bytes | None
    again: Sequence[OutgoingMessage] = ()


Judge = Callable[[Sequence[Incoming]], Awaitable[Sequence[Verdict]]]
_Letter = tuple[str, str, bytes, Basic.Properties]  # exchange, routing key, body, properties


def reason_kept(message: Incoming) -> str:
    """Why a message is in the dead queue: as Backstay wrote it down, or as the broker did."""
    return str(message.headers.get(REASON_HEADER) or message.headers.get(BROKER_REASON_HEADER) or "")


class DeadQueue:
    """The dead queue of one topology over one connection, for one errand."""

    def __init__(self, connection: AbstractConnection, topology: Topology, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._topology = topology
        self._dead = topology.dead
        self._aside = f"{topology.dead}.aside"
        self._arguments: dict[str, Any] = dict(topology.dead_queue.arguments)
        self._ready: set[str] = set()  # queues that are there for what is published again

    async def replay(self, judge: Judge) -> None:
        """Shows every message to the judge once, and follows its verdict."""
        try:
            async with self._alone():
                if await self._depth(self._dead) is not None:
                    await self._replay(judge)
        except aiormq.ChannelAccessRefused:
            raise  # it is there, and the next try would end the same
        except (aiormq.AMQPError, aiormq.ChannelInvalidStateError, ConnectionError, TimeoutError) as error:
            hint = "nothing is lost: run the same command again"
            raise BrokerUnreachable(
                f"the broker disconnected during the replay: {reason_of(error)}", hint=hint
            ) from error

    async def _replay(self, judge: Judge) -> None:
        await self._declare_aside()
        await self._cleared()
        await self._move_back()
        await self._move(self._dead, self._aside, await self._count(self._dead), judge)
        await self._move_back()
        await self._drop_aside()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """A queue that only one connection can have, and that is gone with it, is the sign of who replays."""
        async with self._channel() as channel:
            try:
                name = f"{self._aside}.lock"
                await channel.queue_declare(name, exclusive=True, auto_delete=True, timeout=ANSWER_SECONDS)
            except aiormq.ChannelLockedResource:
                said = f"another replay of {self._dead} is under way"
                raise NotAllowed(said, hint="wait until it ends") from None
            yield
            await channel.queue_delete(name, timeout=ANSWER_SECONDS)

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[Channel]:
        async with asyncio.timeout(ANSWER_SECONDS):
            made = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            channel = await made.get_underlay_channel()
            assert isinstance(channel, Channel)
        try:
            yield channel
        finally:
            await made.close()

    async def _depth(self, queue: str) -> QueueDepth | None:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await depth_of(self._connection, queue)

    async def _count(self, queue: str) -> int:
        depth = await self._depth(queue)
        return 0 if depth is None else depth.messages

    async def _declare_aside(self) -> None:
        """The queue aside, and an exchange that reaches it and the dead queue alone: others may have bound theirs to
        the exchange of dead messages, and an account may not write to the broker's own."""
        missing = await self._depth(self._aside) is None
        async with self._channel() as channel, asyncio.timeout(ANSWER_SECONDS):
            await channel.exchange_declare(self._aside, exchange_type="direct", durable=True)
            if missing:
                await channel.queue_declare(self._aside, durable=True, arguments=self._arguments)
            for queue in (self._aside, self._dead):
                await channel.queue_bind(queue, self._aside, queue)

    async def _cleared(self) -> None:
        """Waits a little for the consumers of one that was killed to go: what they had in hand comes back with that."""
        for _ in range(CLEARED_TRIES):
            depths = [await self._depth(queue) for queue in (self._dead, self._aside)]
            if not any(depth.consumers for depth in depths if depth is not None):
                return
            await self._clock.sleep(CLEARED_SECONDS)

    async def _move_back(self) -> None:
        while messages := await self._count(self._aside):
            await self._move(self._aside, self._dead, messages)

    async def _drop_aside(self) -> None:
        """Deletes the temporary queue if it is empty. A quorum queue cannot be asked for that, and stays."""
        async with self._channel() as channel, asyncio.timeout(ANSWER_SECONDS):
            await channel.exchange_delete(self._aside)
            if self._arguments.get("x-queue-type") != "quorum":
                await channel.queue_delete(self._aside, if_unused=True, if_empty=True)

    async def _move(self, source: str, target: str, messages: int, judge: Judge | None = None) -> None:
        """Moves so many messages in their order, a window at a time; with a judge, by its verdicts."""
        arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()  # the prefetch is its bound

        async def keep(message: DeliveredMessage) -> None:
            arrived.put_nowait(message)

        if not messages:
            return
        async with self._channel() as channel:
            await channel.basic_qos(prefetch_count=min(PREFETCH_MESSAGES, messages), timeout=ANSWER_SECONDS)
            consumer = await channel.basic_consume(source, keep, timeout=ANSWER_SECONDS)
            moved = 0
            while moved < messages and (window := await _window(arrived, messages - moved)):
                moved += len(window)
                await self._pass_on(channel, window, target, judge)
            await channel.basic_cancel(consumer.consumer_tag or "", timeout=ANSWER_SECONDS)
            # What came too much moves as well: handed back, it would count as a failed delivery in a quorum queue.
            while rest := await _window(arrived, WINDOW_MESSAGES, wait=False):
                await self._pass_on(channel, rest, target, None)

    async def _pass_on(
        self, channel: Channel, window: Sequence[DeliveredMessage], target: str, judge: Judge | None
    ) -> None:
        """Copies first, in one batch with confirms; the originals are acknowledged when all of it was confirmed."""
        shown = [incoming(raw) for raw in window] if judge else []
        verdicts = await judge(shown) if judge else [Verdict(bytes(raw.body)) for raw in window]
        now_ms = self._clock.now_ms()
        letters: list[_Letter] = []
        for raw, verdict in zip(window, verdicts, strict=True):
            letters += [(one.exchange, one.routing_key, one.body, properties_of(one, now_ms)) for one in verdict.again]
            if verdict.stays is not None:
                letters.append((self._aside, target, verdict.stays, kept_properties(raw.header.properties)))
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._make_ready([one for verdict in verdicts for one in verdict.again])
            await asyncio.gather(*(_publish(channel, *letter) for letter in letters))
            await channel.basic_ack(window[-1].delivery_tag or 0, multiple=True)

    async def _make_ready(self, again: Sequence[OutgoingMessage]) -> None:
        """The queue of a handler that had no workers for long may be gone."""
        topology = self._topology
        behind = {queue.name: queue for one in again for queue in topology.behind(one.exchange, one.routing_key)}
        missing = [queue for name, queue in sorted(behind.items()) if name not in self._ready]
        if missing:
            await declare(self._connection, topology.exchanges, missing)
            self._ready.update(behind)


async def _window(
    arrived: "asyncio.Queue[DeliveredMessage]", messages: int, wait: bool = True
) -> list[DeliveredMessage]:
    """What has come, at most a window of it; empty when nothing comes."""
    window: list[DeliveredMessage] = []
    if wait:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                window.append(await arrived.get())
        except TimeoutError:
            return []
    while len(window) < min(messages, WINDOW_MESSAGES) and not arrived.empty():
        window.append(arrived.get_nowait())
    return window


async def _publish(
    channel: Channel, exchange: str, routing_key: str, body: bytes, properties: Basic.Properties
) -> None:
    """Raises unless it was confirmed."""
    await channel.basic_publish(
        body, exchange=exchange, routing_key=routing_key, properties=properties, mandatory=True, wait=False
    )


def kept_properties(properties: Basic.Properties) -> Basic.Properties:
    """A message's properties for its copy. What the broker would act on is kept under another name."""
    headers = writable(properties.headers or {})
    headers.pop(DELIVERY_COUNT_HEADER, None)
    for name in MEANT_FOR_THE_BROKER:
        if name in headers:
            headers[f"{RENAMED}{name.lower()}"] = headers.pop(name)
    if properties.user_id:  # it would be refused as another's
        headers[f"{RENAMED}user-id"], properties.user_id = properties.user_id, None
    if properties.expiration:  # a dead message waits for a person, however long that takes
        headers[f"{RENAMED}expiration"], properties.expiration = properties.expiration, None
    properties.headers = headers or None
    properties.delivery_mode = 2
    return properties


# What is counted: messages in the first line, items in the second.
MESSAGES: Final = ("seen", "chosen", "callbacks", "poison", "left")
ITEMS: Final = ("replayed", "published", "done", "refused", "unknown")
REASONS_MAX: Final = 20  # different ones that are told of, so that memory does not grow with the queue


class Choice(NamedTuple):
    """Which messages: that name one item, that are dead for a reason; without either, all."""

    item: int | None = None
    reason: str | None = None

    def of(self, message: Incoming, said: Work | Told | Poison) -> bool:
        if self.reason is not None and self.reason.casefold() not in reason_kept(message).casefold():
            return False
        match said:
            case Work():
                return self.item is None or self.item in said.items
            case Told():
                return self.item is None or self.item == read_item(said.item)
            case Poison():
                return self.item is None

    def named(self, work: Work) -> Sequence[int]:
        return work.items if self.item is None else (self.item,)


class DeadMessages:
    """The judge of a replay. `counts` tells what it decided, `reasons` why messages are poison.

    A failed item is queued again, as in any replay of dead letters. A queued item is announced again. An item that has
    ended, or is running, needs nothing. A remote worker's callback goes back to the readers of callbacks, who judge it
    again. Unreadable messages stay, and so do messages of items that cannot be retried now.
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
        chosen = [self._chosen(message) for message in window]
        named = {item for said in chosen if isinstance(said, Work) for item in self._choice.named(said)}
        before = await self._store.item_views.named(named) if named else {}
        after = await self._replay(before)
        verdicts = [self._verdict(message, said, before, after) for message, said in zip(window, chosen, strict=True)]
        return verdicts if self._who is not None else [Verdict(message.body) for message in window]

    def _chosen(self, message: Incoming) -> Work | Told | None:
        """What is to be replayed; None: it stays as it is."""
        self.counts["seen"] += 1
        said = _read(message)
        if not self._choice.of(message, said):
            self.counts["left"] += 1
            return None
        self.counts["chosen"] += 1
        if not isinstance(said, Poison):
            return said
        self.counts["poison"] += 1
        reason = one_line(reason_kept(message), 100) or said.reason
        self.reasons[reason if reason in self.reasons or len(self.reasons) < REASONS_MAX else "other reasons"] += 1
        return None

    async def _replay(self, before: Mapping[int, NamedItem]) -> Mapping[int, NamedItem]:
        """Queues failed items again, owner by owner; returns the states of those items afterwards."""
        failed: dict[str, list[int]] = {}
        for item, standing in before.items():
            if standing.state is ItemState.FAILED:
                failed.setdefault(standing.owner, []).append(item)
        by = None if self._who is None else By(self._who)
        for owner, items in sorted(failed.items()):
            self.counts["replayed"] += (await self._store.replays.replay_some(owner, LetterFilter(), items, by)).items
        if by is None or not failed:
            return {}
        await self._store.notify()
        return await self._store.item_views.named(item for items in failed.values() for item in items)

    def _verdict(
        self,
        message: Incoming,
        said: Work | Told | None,
        before: Mapping[int, NamedItem],
        after: Mapping[int, NamedItem],
    ) -> Verdict:
        if said is None:
            return Verdict(message.body)
        if isinstance(said, Told):
            self.counts["callbacks"] += 1
            return Verdict(None, [callback_again(self._topology, message)])
        return self._of_items(message, said, before, after)

    def _of_items(
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

    def _hint(self, work: Work, handler: str, items: Sequence[int]) -> OutgoingMessage:
        return send_work(self._topology, replace(work, handler=handler, items=tuple(items), rest_ms=0))


def _read(message: Incoming) -> Work | Told | Poison:
    work = read_work(message)
    if isinstance(work, Poison) and isinstance(told := read_callback(message), Told):
        return told
    return work
