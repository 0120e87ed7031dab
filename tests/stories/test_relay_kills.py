"""Two relays, one killed -9 between publish and mark, and a whole worker that gets all they have published."""

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Leaping, Site, fresh_database
from tests.messaging.dead_rig import ids
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.stories.broker_stage import broker_stage
from tests.stories.stage import until

pytestmark = pytest.mark.slow

database_url = fresh_database("postgres", later="sqlite")

JOBS, ITEMS = 12, 5
PENDING = "SELECT id FROM outbox WHERE status = 'pending' AND sink = 'work' ORDER BY id"
# As time does, in two minutes.
END_LEASES = "UPDATE outbox SET due_at = created_at WHERE status = 'pending' AND sink = 'work'"


async def test_what_a_relay_published_and_did_not_mark_comes_again_under_its_id_and_is_done_once(
    database_url: str, rabbitmq: PrivateRabbitMQ, tmp_path: Path
) -> None:
    rows = Site(database_url, Leaping()).rows

    def pending(wanted: list[Any]) -> Callable[[], Awaitable[bool]]:
        async def met() -> bool:
            return list(await rows(PENDING)) == wanted

        return met

    async with broker_stage(database_url, rabbitmq, tmp_path) as scene:
        stage, victim = scene.stage, await scene.still_relay("published")
        tap = await scene.bystander.tap(scene.topology, "unaskable")
        jobs = [await stage.submit("unaskable", range(ITEMS))]
        await scene.stands_still(victim, "published")
        unmarked = await rows(PENDING)
        jobs += [await stage.submit("unaskable", range(ITEMS)) for _ in range(JOBS)]
        scene.worker(len(jobs) * ITEMS)
        scene.relay()
        jobs += [await stage.submit("unaskable", range(ITEMS)) for _ in range(JOBS)]
        for job in jobs:
            await job.wait(timeout_seconds=60)
        await until(pending(unmarked), "the other relay has published all that the still one does not hold")
        stage.kill9(victim)
        first = await scene.bystander.take_all(tap)
        assert unmarked[0][0] in ids(first), "published, not marked, and nobody else may have it"
        await rows(END_LEASES)
        await until(pending([]), "the other relays have published them again")
        await scene.all_used(["unaskable"])
        again = await scene.bystander.take_all(tap)
        assert len(set(ids(first))) == len(first)
        assert sorted(ids(again)) == [row[0] for row in unmarked], "no other row is published twice"
        assert {*ids(first), *ids(again)} == {row[0] for row in await rows("SELECT id FROM outbox")}
        bodies = {(message.message_id, message.body) for message in (*first, *again)}
        assert len(bodies) == len({*ids(first), *ids(again)}) >= len(jobs), "all copies of a message are alike"
        for job in jobs:
            await scene.check_done(job, ITEMS)
        paid = Counter(charge.client_ref for charge in await stage.bill())
        assert (len(paid), set(paid.values())) == (len(jobs) * ITEMS, {1})
