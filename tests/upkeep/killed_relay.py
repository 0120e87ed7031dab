"""Tells of failed items and is killed at the worst moment: killed_relay.py URL PLACE untold|told|sent"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from backstay import wiring
from backstay.clock import Clock
from backstay.core.signing import Signer
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.webhook_relay import Relay
from backstay.observe.bus import Bus
from backstay.store import outbox
from backstay.store.queries import Script
from backstay.store.webhooks import DeliveryResult, DueDelivery, Webhooks


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, place: str, moment: str) -> None:
    store = await wiring.open_store(url)
    write, spread = outbox._tell_failed, Webhooks.create_deliveries

    def write_and_die(due: Sequence[int]) -> Script[int]:
        yield from write(due)  # all is written, nothing is committed
        die()
        return 0

    async def die_instead(self: Webhooks) -> int:
        if (await store.outbox.lag(outbox.WEBHOOKS)).rows:
            die()  # the events are committed, and no delivery is made of them
        return await spread(self)

    async def die_first(self: Webhooks, due: DueDelivery, result: DeliveryResult) -> bool:
        die()  # the receiver has it, and that is not marked
        return False

    if moment == "untold":
        outbox._tell_failed = write_and_die
    elif moment == "told":
        Webhooks.create_deliveries = die_instead  # type: ignore[method-assign]
    else:
        Webhooks.settle = die_first  # type: ignore[method-assign]
    relay = Relay(store.webhooks, Outgoing(place), Signer("key" * 20), Clock(), Bus())
    relay.start()
    await asyncio.sleep(60)


asyncio.run(main(*sys.argv[1:]))
