"""A careless post for hints: it loses some, brings some twice, some late and some too soon, and is closed at times."""

import json
from collections.abc import Callable
from random import Random

from backstay.clock import Clock
from backstay.store.outbox import WORK, Message
from backstay.store.store import Store
from backstay.testing import InlineSQLite
from tests.engine.carrier import Carrier

LOOK_SECONDS = 0.2
LEASE_MS = 2_000
LATE_SECONDS_MAX = 5.0
CLOSED = 0.05  # the chance, at each look, that a worker's counter is closed until the next one


class Post:
    """Takes hints out of the outbox as a relay does, and puts each into the hands of one worker."""

    def __init__(self, seed: str, database: InlineSQLite, clock: Clock, reached: Callable[[str], None]) -> None:
        self._rng = Random(f"post {seed}")
        self._clock = clock
        self._reached = reached
        self._store = Store(database)
        self._counters: list[Carrier] = []
        self._late: list[tuple[float, Message]] = []
        database.connection.execute(f"INSERT INTO sinks VALUES ('{WORK}', 0)")

    def counter(self) -> Carrier:
        """Where one worker takes its hints; of a worker that is dead they are lost."""
        self._counters.append(Carrier(self._clock.monotonic))
        return self._counters[-1]

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            for counter in self._counters:
                counter.tend()
                if counter.alive == (self._rng.random() < CLOSED):
                    counter.turn(not counter.alive)
            messages = await self._store.outbox.claim(WORK, 10, LEASE_MS)
            for message in messages:
                self._handle(message)
            # Of some it forgets that they have left, and brings them again.
            await self._store.outbox.mark_published([message.id for message in messages if self._rng.random() < 0.8])
            now = self._clock.monotonic()
            for due in [late for late in self._late if late[0] <= now]:
                self._late.remove(due)
                self._bring(due[1])

    def _handle(self, message: Message) -> None:
        chance = self._rng.random()
        if chance < 0.15:
            self._reached("a hint was lost")
        elif chance < 0.4:
            self._reached("a hint came late")
            self._late.append((self._clock.monotonic() + self._rng.uniform(0, LATE_SECONDS_MAX), message))
        elif chance < 0.6:
            self._reached("a hint came twice")
            self._bring(message)
            self._bring(message)
        else:
            self._bring(message)

    def _bring(self, message: Message) -> None:
        """At once, even when its items have to wait yet: whoever claims is told so by the database."""
        open_ones = [counter for counter in self._counters if counter.alive]
        if open_ones:
            said = json.loads(message.payload)
            items = said.get("items") or range(said["first"], said["first"] + said["count"])
            self._rng.choice(open_ones).send(said["handler"], items)
