"""Hints for a worker: messages held until the items they name were in a committed claim, then acknowledged.

What cannot be used goes to the dead queue with its reason; what came too early goes back to wait for the rest. Either
is acknowledged only when the broker has confirmed the copy, so nothing is ever dropped or looped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from backstay.clock import wait_for_event
from backstay.core.events import MessageSetAside, Trouble
from backstay.core.hand import Hand
from backstay.core.ids import show_item
from backstay.messaging.broker import Broker
from backstay.messaging.delivery import Delivery, Subscription
from backstay.messaging.messages import Outgoing, Poison, Work, read_work, send_work, set_aside
from backstay.messaging.topology import PRIORITY_MAX

PREFETCH_MAX: Final = 100  # messages of one handler in hand, of up to 50 items each
TEND_SECONDS: Final = 1.0

# Which of these items there are.
Known = Callable[[Sequence[int]], Awaitable[Collection[int]]]


class Consumer:
    """One life: start, stop. It is the worker's `Hints`."""

    def __init__(
        self,
        broker: Broker,
        handlers: Callable[[], Iterable[str]],
        concurrency: int,
        known: Known | None = None,
    ) -> None:
        self._broker = broker
        self._means = broker.means
        self._handlers = handlers
        self._prefetch = min(max(concurrency, 1), PREFETCH_MAX)
        self._known = known
        self._consumed: set[str] = set()
        self._hands: dict[int, Hand[Delivery]] = {priority: Hand() for priority in range(PRIORITY_MAX, -1, -1)}
        self._wake: Callable[[], None] = _nothing
        self._missed: set[int] = set()  # items in hand that a claim did not find
        self._missing: list[Delivery] = []  # none of whose items was found
        self._over: list[Delivery] = []  # to be acknowledged
        self._moves: list[tuple[Delivery, Outgoing, str]] = []  # to be published elsewhere, then acknowledged
        self._something_over, self._something_moves = asyncio.Event(), asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        broker.when_changed(self._changed)

    def start(self) -> None:
        self._subscribe()
        spawn = self._means.tasks.spawn
        self._loops = [spawn(self._acknowledge()), spawn(self._move())]

    async def stop(self) -> None:
        """What is in hand is delivered again, to others."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._lost()

    # what the worker sees

    @property
    def alive(self) -> bool:
        return self._broker.alive

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def take(self, handler: str, n: int) -> list[int]:
        """The highest priority first; an item may be named twice, and is given once."""
        items: dict[int, None] = {}
        for hand in self._hands.values():
            if len(items) < n and len(hand):
                items.update(dict.fromkeys(hand.take(handler, n)))
        return list(items)[:n]

    def missed(self, ids: Iterable[int]) -> None:
        """A claim did not win these. They ended, or others have them; or there are no such items."""
        if self._known is not None:
            self._missed.update(ids)

    def done(self, ids: Iterable[int]) -> None:
        ids = list(ids)
        over = [delivery for hand in self._hands.values() if len(hand) for delivery in hand.done(ids)]
        if self._missed:
            over = self._not_missing(over)
        self._over.extend(over)
        self._something_over.set()

    def _not_missing(self, over: list[Delivery]) -> list[Delivery]:
        """Puts aside those of which no claim found a single item: they have to be looked up."""
        found: list[Delivery] = []
        for delivery in over:
            work = read_work(delivery.message)
            items = work.items if isinstance(work, Work) else ()
            (self._missing if self._missed.issuperset(items) else found).append(delivery)
            self._missed.difference_update(items)
        if not any(len(hand) for hand in self._hands.values()):
            self._missed.clear()
        return found

    # what the broker brings

    def _subscribe(self) -> None:
        """A lane may open while the worker runs."""
        for handler in self._handlers():
            if handler not in self._consumed:
                self._consumed.add(handler)
                queue = self._broker.topology.work_queue(handler)
                arrived = partial(self._arrived, handler, queue.name)
                self._broker.consume(Subscription(queue, self._prefetch, arrived, self._lost))

    def _arrived(self, handler: str, queue: str, delivery: Delivery) -> None:
        message, topology = delivery.message, self._broker.topology
        work = read_work(message)
        if isinstance(work, Work) and work.handler != handler:
            work = Poison(f"is for the handler {work.handler[:60]!r}, not {handler[:60]!r}")
        if isinstance(work, Poison):
            self._move_to(delivery, set_aside(topology, message, work.reason), work.reason)
        elif work.rest_ms:
            self._move_to(delivery, send_work(topology, work, work.rest_ms), "")
        else:
            hand = self._hands[min(max(work.priority, 0), PRIORITY_MAX)]
            hand.put(delivery, handler, work.items, self._means.clock.monotonic())
            self._wake()

    def _move_to(self, delivery: Delivery, outgoing: Outgoing, reason: str) -> None:
        self._moves.append((delivery, outgoing, reason))
        self._something_moves.set()

    def _lost(self) -> None:
        """The broker delivers again what was in hand; it could not be acknowledged any more."""
        for hand in self._hands.values():
            hand.clear()
        self._missed.clear()

    def _changed(self) -> None:
        self._wake()

    # what goes back

    async def _acknowledge(self) -> None:
        while True:
            await wait_for_event(self._something_over, TEND_SECONDS)
            self._something_over.clear()
            now = self._means.clock.monotonic()
            overdue = [delivery for hand in self._hands.values() for delivery in hand.overdue(now)]
            over, self._over = [*self._over, *overdue], []
            for delivery in over:
                await delivery.ack()
            if self._missing:
                await self._look_up()
            self._subscribe()

    async def _look_up(self) -> None:
        """Messages none of whose items could be claimed: the copy of one that was served, or about nothing."""
        missing, self._missing = self._missing, []
        items = {delivery: read_work(delivery.message) for delivery in missing}
        wanted = sorted({item for work in items.values() if isinstance(work, Work) for item in work.items})
        try:
            known = frozenset(await self._known(wanted)) if self._known is not None else frozenset(wanted)
        except Exception as error:  # nobody can tell, and the database knows its items without us
            self._means.emit(Trouble("look-up of hinted items", f"{type(error).__name__}: {error}"))
            self._over.extend(missing)
            return
        for delivery, work in items.items():
            unknown = [item for item in work.items if item not in known] if isinstance(work, Work) else []
            if unknown:
                reason = f"there is no item {show_item(unknown[0])}"
                self._move_to(delivery, set_aside(self._broker.topology, delivery.message, reason), reason)
            else:
                await delivery.ack()

    async def _move(self) -> None:
        while True:
            await wait_for_event(self._something_moves, TEND_SECONDS)
            self._something_moves.clear()
            moves = [move for move in self._moves if move[0].open]
            self._moves = []
            if not moves:
                continue
            # One message may be here twice, and the driver tells them apart by their ids.
            unlike = list({outgoing.message_id or str(at): at for at, (_, outgoing, _) in enumerate(moves)}.values())
            confirmed = await self._broker.publish_many([moves[at][1] for at in unlike])
            gone = {at for at, sent in zip(unlike, confirmed, strict=True) if sent}
            for at in sorted(gone):
                delivery, outgoing, reason = moves[at]
                await delivery.ack()
                if reason:
                    self._means.emit(MessageSetAside(outgoing.routing_key or outgoing.exchange, reason))
            self._moves.extend(move for at, move in enumerate(moves) if at not in gone)


def _nothing() -> None:
    return None
