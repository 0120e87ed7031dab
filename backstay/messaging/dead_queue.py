"""The broker's dead queue: a replay that shows its messages to a judge, and the deletion of the oldest messages.

Its bounds are not arguments of the queue: a broker refuses other arguments for an existing queue, and it does not
report the messages that it drops.

The judge of a replay, `DeadMessages`, decides about each message by the state of its items in the database.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import DeliveredMessage
from aiormq.channel import Channel
from pamqp.commands import Basic

from backstay.clock import Clock, wait_for_event
from backstay.core.callbacks import TaggedCallback
from backstay.core.display import one_line
from backstay.core.errors import BrokerUnreachable, NotAllowed
from backstay.core.ids import read_item
from backstay.core.states import ItemState
from backstay.messaging.broker import properties_of
from backstay.messaging.connection import reason_of
from backstay.messaging.messages import (
    REASON_HEADER,
    Incoming,
    OutgoingMessage,
    Poison,
    Topology,
    Work,
    read_callback,
    read_work,
    repeat_callback,
    send_work,
    writable_headers,
)
from backstay.messaging.queues import QueueDepth, declare, depth_of, read_incoming
from backstay.store.dead_letters import LetterFilter, ReplayRequest
from backstay.store.item_views import NamedItem
from backstay.store.store import Store

WINDOW_MESSAGES: Final = 100  # moved at a time
PREFETCH_MESSAGES: Final = 2 * WINDOW_MESSAGES  # held at most, however long the queue is
ANSWER_SECONDS: Final = 30.0  # for the broker to take or confirm something
IDLE_SECONDS: Final = 3.0  # without a message, although there should be one: another consumer took it
CLEARED_TRIES: Final = 20  # until the broker notices that the replay before this one is gone
CLEARED_SECONDS: Final = 0.1
BROKER_REASON_HEADER: Final = "x-first-death-reason"
# The broker would act on these headers when a copy is published, and send it to further queues.
MEANT_FOR_THE_BROKER: Final = ("CC", "BCC")
RENAMED: Final = "x-backstay-was-"
DELIVERY_COUNT_HEADER: Final = "x-delivery-count"  # set by a quorum queue
DEATHS_HEADER: Final = "x-death"  # the broker's own record of what it set aside, and when
UNDATED_MAX: Final = 10_000  # messages without a time that one look may pass
CLOCKS_MS_MAX: Final = 86_400_000  # clocks may differ by this; a later time is not valid


class Verdict(NamedTuple):
    """The decision about a dead message: the body that stays, and the messages to publish: hints, or a callback."""

    stays: bytes | None
    again: Sequence[OutgoingMessage] = ()


Judge = Callable[[Sequence[Incoming]], Awaitable[Sequence[Verdict]]]
_Letter = tuple[str, str, bytes, Basic.Properties]  # exchange, routing key, body, properties


def dead_reason(message: Incoming) -> str:
    """Why a message is in the dead queue: as Backstay or the broker wrote it into its headers."""
    return str(message.headers.get(REASON_HEADER) or message.headers.get(BROKER_REASON_HEADER) or "")


class DeadQueue:
    """The dead queue of one topology over one connection, for one replay or deletion."""

    def __init__(self, connection: AbstractConnection, topology: Topology, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._topology = topology
        self._dead = topology.dead
        self._aside = f"{topology.dead}.aside"
        self._arguments: dict[str, Any] = dict(topology.dead_queue.arguments)
        self._ready: set[str] = set()  # queues that exist, for messages that are published again

    async def replay(self, judge: Judge) -> None:
        """Shows every message to the judge once, and follows its verdict."""
        try:
            async with self._alone():
                if await self._depth(self._dead) is not None:
                    await self._replay(judge)
        except aiormq.ChannelAccessRefused:
            raise  # the next try would fail as well
        except (aiormq.AMQPError, aiormq.ChannelInvalidStateError, ConnectionError, TimeoutError) as error:
            hint = "nothing is lost: run the same command again"
            raise BrokerUnreachable(
                f"the broker disconnected during the replay: {reason_of(error)}", hint=hint
            ) from error

    async def _replay(self, judge: Judge) -> None:
        await self._declare_aside()
        await self._wait_until_cleared()
        await self._move_back()
        await self._move(self._dead, self._aside, await self._count(self._dead), judge)
        await self._move_back()
        await self._drop_aside()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Only one process at a time replays or deletes. The lock is an exclusive queue: only one connection can
        declare it, and it disappears with that connection."""
        async with self._channel() as channel:
            try:
                name = f"{self._aside}.lock"
                await channel.queue_declare(name, exclusive=True, auto_delete=True, timeout=ANSWER_SECONDS)
            except aiormq.ChannelLockedResource:
                message = f"another process replays messages of {self._dead} or removes old ones"
                raise NotAllowed(message, hint="wait until it ends") from None
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
        """Declares the temporary queue, and an exchange that reaches only it and the dead queue. The exchange of dead
        messages may have bindings of users, and an account may not write to the broker's default exchange."""
        missing = await self._depth(self._aside) is None
        async with self._channel() as channel, asyncio.timeout(ANSWER_SECONDS):
            await channel.exchange_declare(self._aside, exchange_type="direct", durable=True)
            if missing:
                await channel.queue_declare(self._aside, durable=True, arguments=self._arguments)
            for queue in (self._aside, self._dead):
                await channel.queue_bind(queue, self._aside, queue)

    async def _wait_until_cleared(self) -> None:
        """Waits a little until the consumers of a killed replay are gone: then the messages that they held come
        back."""
        for _ in range(CLEARED_TRIES):
            depths = [await self._depth(queue) for queue in (self._dead, self._aside)]
            if not any(depth.consumers for depth in depths if depth is not None):
                return
            await self._clock.sleep(CLEARED_SECONDS)

    async def _move_back(self) -> None:
        while messages := await self._count(self._aside):
            await self._move(self._aside, self._dead, messages)

    async def _drop_aside(self) -> None:
        """Deletes the temporary queue if it is empty. A quorum queue does not support that, and stays."""
        async with self._channel() as channel, asyncio.timeout(ANSWER_SECONDS):
            await channel.exchange_delete(self._aside)
            if self._arguments.get("x-queue-type") != "quorum":
                await channel.queue_delete(self._aside, if_unused=True, if_empty=True)

    async def _move(self, source: str, target: str, messages: int, judge: Judge | None = None) -> None:
        """Moves this number of messages in their order, a window at a time; with a judge, by its verdicts."""
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
            # Extra messages are moved as well: if they were returned, a quorum queue would count a failed delivery.
            while rest := await _window(arrived, WINDOW_MESSAGES, wait=False):
                await self._pass_on(channel, rest, target, None)

    async def _pass_on(
        self, channel: Channel, window: Sequence[DeliveredMessage], target: str, judge: Judge | None
    ) -> None:
        """Publishes copies, in one batch with confirms; the originals are acknowledged when all copies are
        confirmed."""
        shown = [read_incoming(raw) for raw in window] if judge else []
        verdicts = await judge(shown) if judge else [Verdict(bytes(raw.body)) for raw in window]
        now_ms = self._clock.now_ms()
        letters: list[_Letter] = []
        for raw, verdict in zip(window, verdicts, strict=True):
            letters += [(one.exchange, one.routing_key, one.body, properties_of(one, now_ms)) for one in verdict.again]
            if verdict.stays is not None:
                letters.append((self._aside, target, verdict.stays, copy_properties(raw.header.properties)))
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._make_ready([one for verdict in verdicts for one in verdict.again])
            await asyncio.gather(*(_publish(channel, *letter) for letter in letters))
            await channel.basic_ack(window[-1].delivery_tag or 0, multiple=True)

    async def _make_ready(self, again: Sequence[OutgoingMessage]) -> None:
        """Declares missing queues: the queue of a handler without workers is gone after some time."""
        topology = self._topology
        behind = {queue.name: queue for one in again for queue in topology.behind(one.exchange, one.routing_key)}
        missing = [queue for name, queue in sorted(behind.items()) if name not in self._ready]
        if missing:
            await declare(self._connection, topology.exchanges, missing)
            self._ready.update(behind)

    async def drop_oldest(self, messages: int) -> int:
        """Drops this number of messages, the oldest first; returns how many it dropped."""
        dropped = 0
        async with self._alone(), self._channel() as channel:
            while (wanted := min(WINDOW_MESSAGES, messages - dropped)) > 0:
                if tags := await self._take(channel, wanted):
                    await channel.basic_ack(tags[-1], multiple=True)
                    dropped += len(tags)
                if len(tags) < wanted:
                    break  # another consumer took the rest
        return dropped

    async def drop_expired(self, age_ms: int) -> int:
        """Drops the messages at the head that are older than `age_ms`; returns how many it dropped. A message without a
        time counts as older than the messages behind it. The other messages go back to their places."""
        now_ms, dropped = self._clock.now_ms(), 0
        undated: list[int] = []
        async with self._alone(), self._channel() as channel:
            while len(undated) < UNDATED_MAX:
                raw = await channel.basic_get(self._dead, timeout=ANSWER_SECONDS)
                if isinstance(raw.delivery, Basic.GetEmpty):
                    break
                undated.append(raw.delivery_tag or 0)
                died_at = died_at_ms(raw.header.properties, now_ms)
                if died_at is not None and died_at >= now_ms - age_ms:
                    break
                if died_at is not None:
                    await channel.basic_ack(undated[-1], multiple=True)
                    dropped += len(undated)
                    undated.clear()
        return dropped

    async def _take(self, channel: Channel, messages: int) -> list[int]:
        """The delivery tags of the oldest messages. No more are taken: if one were returned, a quorum queue would count
        a failed delivery."""
        tags: list[int] = []
        all_taken = asyncio.Event()

        async def take(raw: DeliveredMessage) -> None:
            tags.append(raw.delivery_tag or 0)
            if len(tags) == messages:
                all_taken.set()

        await channel.basic_qos(prefetch_count=messages, timeout=ANSWER_SECONDS)
        consumer = await channel.basic_consume(self._dead, take, timeout=ANSWER_SECONDS)
        await wait_for_event(all_taken, IDLE_SECONDS)
        await channel.basic_cancel(consumer.consumer_tag or "", timeout=ANSWER_SECONDS)
        return sorted(tags)


async def _window(
    arrived: "asyncio.Queue[DeliveredMessage]", messages: int, wait: bool = True
) -> list[DeliveredMessage]:
    """The messages that have come, up to a window; empty if none comes."""
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


def copy_properties(properties: Basic.Properties) -> Basic.Properties:
    """A message's properties for its copy. Properties that the broker would act on are kept under another name."""
    headers = writable_headers(properties.headers or {})
    headers.pop(DELIVERY_COUNT_HEADER, None)
    for name in MEANT_FOR_THE_BROKER:
        if name in headers:
            headers[f"{RENAMED}{name.lower()}"] = headers.pop(name)
    if properties.user_id:  # the broker refuses the name of another user
        headers[f"{RENAMED}user-id"], properties.user_id = properties.user_id, None
    if properties.expiration:  # a dead message must not expire: it waits for a person
        headers[f"{RENAMED}expiration"], properties.expiration = properties.expiration, None
    properties.headers = headers or None
    properties.delivery_mode = 2
    return properties


def died_at_ms(properties: Basic.Properties, now_ms: int) -> int | None:
    """When a message was set aside: by Backstay, which dates the copy, or by the broker. None: unknown."""
    deaths = (properties.headers or {}).get(DEATHS_HEADER)
    times = [death.get("time") for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
    dates = [time for time in (properties.timestamp, *times) if isinstance(time, datetime)]
    stamps = [int(date.replace(tzinfo=date.tzinfo or UTC).timestamp() * 1000) for date in dates]
    return max((stamp for stamp in stamps if stamp <= now_ms + CLOCKS_MS_MAX), default=None)


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
