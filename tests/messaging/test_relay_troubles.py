"""The work relay when a real broker has lost something: one queue, or everything."""

import asyncio
from dataclasses import replace

import pytest

from backstay.core.errors import DatabaseUnreachable
from backstay.core.ids import item_id
from backstay.messaging.broker_session import REPUBLISH_MS, Republishing
from backstay.messaging.messages import WAIT_STEPS_MS, Topology, Work, read_work
from backstay.messaging.outbox_relay import ROW_DELAY_MS, UNCONFIRMED
from tests.databases import Site
from tests.messaging.relay_rig import PATIENT, Office
from tests.messaging.rig import Scene, ready, until
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.store.store_rig import Scene as Shop

WAITING = """'{"handler": "echo", "priority": 0, "first": 1, "count": 1, "wait_ms": 1000000000000000}'"""


@pytest.fixture
async def office(leaping_site: Site, rabbitmq: PrivateRabbitMQ) -> Office:
    return Office(leaping_site, await leaping_site.open_store(), rabbitmq.url, Topology(rabbitmq.prefix()))


async def test_a_message_that_is_not_taken_waits_for_itself_and_its_row_says_why(office: Office) -> None:
    scene = Scene(office.url, office.topology, PATIENT)
    async with scene.broker() as broker:
        await ready(broker)
        full = {"x-max-length": 0, "x-overflow": "reject-publish"}
        await office.bystander.replace(replace(office.topology.wait_queue(WAIT_STEPS_MS[-1]), arguments=full))
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


async def test_of_many_who_notice_a_wipe_one_writes_the_hints_anew(office: Office) -> None:
    shop = Shop(office.site)
    await shop.store.open()
    await office.store.outbox.open_sink()
    await shop.submit(120)
    many = [Republishing(shop.store) for _ in range(5)]
    await asyncio.gather(*(republish() for republish in many))
    assert await office.pending() == 2 * 3
    await office.site.advance(REPUBLISH_MS / 1000 + 1)
    await many[0]()
    assert await office.pending() == 3 * 3
    await shop.store.close()


async def test_who_breaks_off_in_writing_hints_anew_goes_on_with_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(office.site)
    await shop.store.open()
    await office.store.outbox.open_sink()
    await shop.submit(120)
    republish = Republishing(shop.store)
    with monkeypatch.context() as patched:
        patched.setattr(shop.store.outbox, "republish", _unreachable)
        with pytest.raises(DatabaseUnreachable):
            await republish()
    await republish()
    assert await office.pending() == 2 * 3
    await shop.store.close()


async def _unreachable() -> int:
    raise DatabaseUnreachable("it is away")


async def _left(office: Office, rows: int) -> bool:
    return await office.pending() == rows
