"""The work relay when a real broker has lost something: one queue, or everything."""

import pytest

from backstay.core.ids import item_id
from backstay.messaging.messages import Work, read_work
from backstay.messaging.topology import Topology
from backstay.run.outbox_relay import ROW_DELAY_MS, UNCONFIRMED
from tests.messaging.relay_rig import PATIENT, Office
from tests.messaging.rig import Scene, ready, until
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.sites import Site
from tests.store.scene import Scene as Shop

WAITING = """'{"handler": "echo", "priority": 0, "first": 1, "count": 1, "wait_ms": 1000000000000000}'"""


@pytest.fixture
async def office(leaping_site: Site, rabbitmq: PrivateRabbitMQ) -> Office:
    return Office(leaping_site, await leaping_site.open_store(), rabbitmq.url, Topology(rabbitmq.prefix()))


async def test_a_message_that_is_not_taken_waits_for_itself_and_its_row_says_why(office: Office) -> None:
    scene = Scene(office.url, office.topology, PATIENT)
    async with scene.broker() as broker:
        await ready(broker)
        longest, _, _ = office.topology.way("echo", 10**9)
        await office.bystander.delete(longest)
        await office.add(1, 1, WAITING)
        await office.add(2, 20)
        now = office.site.clock.now_ms()
        async with office.relaying(broker):
            await until(lambda: _left(office, 1))
    row = (
        await office.site.rows("SELECT id, retry_count, error_message, due_at FROM outbox WHERE status = 'pending'")
    )[0]
    assert row[:3] == (1, 1, UNCONFIRMED)
    assert row[3] >= now + ROW_DELAY_MS
    assert len(await office.delivered()) == 19


async def test_a_wiped_broker_is_told_again_of_everything_that_is_ready(office: Office) -> None:
    shop = Shop(office.site)
    await shop.store.open()
    await office.store.outbox.open_sink()
    job = await shop.submit(120)
    scene = Scene(office.url, office.topology, PATIENT)
    async with scene.broker(wiped=office.store.outbox.republish) as broker, office.relaying(broker):
        await office.all_left()
        assert len(await office.delivered()) == 3
        await office.bystander.delete(office.topology.work_queue("echo").name)
        await office.bystander.delete_exchange(office.topology.work)

        async def three_are_there() -> bool:
            return await office.bystander.messages(office.topology.work_queue("echo").name) == 3

        await until(three_are_there)
    await shop.store.close()
    works = [work for work in map(read_work, await office.delivered()) if isinstance(work, Work)]
    assert sorted(item for work in works for item in work.items) == [item_id(job, at) for at in range(120)]


async def _left(office: Office, rows: int) -> bool:
    return await office.pending() == rows
