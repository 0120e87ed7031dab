"""Users' own messages: they leave for RabbitMQ and for webhooks after the commit, exactly those that were committed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay.app import Backstay
from backstay.core.errors import UsageError
from backstay.core.signing import Signer
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.connection import connect_once
from backstay.messaging.messages import Incoming, Queue, Topology, message_key
from backstay.messaging.outbox_relay import BATCH_USER_MESSAGES, relaying_all
from backstay.messaging.queues import declare
from backstay.messaging.webhook_relay import Relay
from backstay.store.outbox import MESSAGE_AGE_MS, MESSAGE_BYTES_MAX, MESSAGES, WEBHOOKS
from backstay.store.webhooks import SPREAD_CHARACTERS, WEBHOOKS_MAX
from tests.databases import Site
from tests.messaging.rig import Bystander, Scene, ready, until
from tests.server.receiver import Receiver, receiving
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.transactions.conftest import rows
from tests.transactions.drivers import Guest, application

PENDING = "SELECT count(*) FROM outbox WHERE status = 'pending'"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


async def bind(url: str, topology: Topology, name: str, key: str) -> str:
    """A queue of the user's own."""
    queue = Queue(f"{topology.prefix}.{name}", topology.messages, key)
    async with connect_once(url) as connection:
        await declare(connection, topology.exchanges, [*topology.fixed_queues, queue])
    return queue.name


@asynccontextmanager
async def relayed(app: Backstay, url: str, topology: Topology) -> AsyncIterator[None]:
    """While the block runs, what is published leaves; at its end all has left."""
    client = await app.open()
    async with Scene(url, topology).broker() as broker, relaying_all(app, client, await ready(broker)):
        yield
        await until(lambda: _none_pending(app))


async def _none_pending(app: Backstay) -> bool:
    return await rows(app.url, PENDING.replace("WHERE", f"WHERE sink = '{MESSAGES}' AND")) == [(0,)]


def shown(messages: list[Incoming]) -> list[tuple[str, str, Any]]:
    return [(one.routing_key, one.type, json.loads(one.body)) for one in messages]


async def test_a_message_is_in_the_outbox_exactly_when_the_user_commits(guest: Guest) -> None:
    async with application(guest.url) as app:
        await (await app.open()).store.outbox.open_sink(MESSAGES)
    for end, pending in ((guest.rollback, 0), (guest.commit, 1)):
        await guest.begin()
        await guest.execute("INSERT INTO orders VALUES (1)")
        assert await guest.publish("orders.created", {"id": 1}) == (MESSAGES,)
        assert await rows(guest.url, PENDING) == [(0,)]
        await end()
        assert await rows(guest.url, PENDING) == [(pending,)]


@pytest.mark.slow
async def test_committed_messages_reach_rabbitmq_and_webhooks_and_no_others(
    guest: Guest, rabbitmq: PrivateRabbitMQ, receiver: Receiver
) -> None:
    topology = Topology(rabbitmq.prefix())
    mine = await bind(rabbitmq.url, topology, "mine", "local.orders.#")
    async with application(guest.url) as app:
        client = await app.open()
        await client.store.webhooks.add("wh_1", "local", receiver.url, ("user.orders.created",))
        outgoing = Outgoing(receiver.place)
        relay = Relay(client.store.webhooks, outgoing, Signer("key" * 20), client.clock, app.bus)
        async with relayed(app, rabbitmq.url, topology):
            await guest.begin()
            await guest.execute("INSERT INTO orders VALUES (1)")
            assert await guest.publish("orders.created", {"id": 1}) == (MESSAGES, WEBHOOKS)
            await guest.publish("orders.paid", [1, "ü", None])
            if guest.url.startswith("postgres"):  # in SQLite the relay waits until the user's transaction is over
                assert await relay.run_once() == 0
            assert await rows(guest.url, PENDING) == [(0,)]
            await guest.commit()
            await guest.begin()
            await guest.publish("orders.created", {"id": 2})
            await guest.rollback()
        assert await relay.run_once() == 1
        await outgoing.close()
    delivered = await Bystander(rabbitmq.url).take_all(mine)
    assert shown(delivered) == [
        ("local.orders.created", "orders.created", {"id": 1}),
        ("local.orders.paid", "orders.paid", [1, "ü", None]),
    ]
    [visit] = receiver.visits
    told = json.loads(visit.body)
    assert (told["type"], told["data"]) == ("user.orders.created", {"id": 1})
    assert told["id"] == f"evt_{delivered[0].message_id}"  # one id over both ways
    assert delivered[0].headers["x-backstay-owner"] == "local"


@pytest.mark.slow
async def test_no_owner_gets_the_messages_of_another(shop: str, rabbitmq: PrivateRabbitMQ, receiver: Receiver) -> None:
    topology = Topology(rabbitmq.prefix())
    anns = await bind(rabbitmq.url, topology, "ann", "ann.#")
    async with application(shop, owner="ann") as ann, application(shop, owner="ann.orders") as eve:
        client = await ann.open()
        for owner in ("ann", "ann.orders", "bob"):
            await client.store.webhooks.add(f"wh_{owner}", owner, receiver.url, ("user.orders.created", "user.created"))
        async with relayed(ann, rabbitmq.url, topology):
            await ann.publish("orders.created", "ann's")
            await eve.publish("created", "eve's")
        while await client.store.webhooks.create_deliveries():
            pass
    assert shown(await Bystander(rabbitmq.url).take_all(anns)) == [("ann.orders.created", "orders.created", "ann's")]
    told = await rows(shop, "SELECT webhook_id, owner, event_type FROM deliveries ORDER BY id")
    assert told == [
        ("wh_ann", "ann", "user.orders.created"),
        ("wh_ann.orders", "ann.orders", "user.created"),
    ]


@pytest.mark.slow
async def test_messages_that_no_queue_wants_are_kept_and_hold_up_nobody(shop: str, rabbitmq: PrivateRabbitMQ) -> None:
    topology = Topology(rabbitmq.prefix())
    mine = await bind(rabbitmq.url, topology, "mine", "local.wanted")
    many = BATCH_USER_MESSAGES + 20
    async with application(shop) as app:
        client = await app.open()
        await client.store.outbox.open_sink(MESSAGES)
        for number in range(many):
            await app.publish("unwanted", number)
        await app.publish("wanted", "here")
        async with relayed(app, rabbitmq.url, topology):
            pass
    bystander = Bystander(rabbitmq.url)
    assert shown(await bystander.take_all(mine)) == [("local.wanted", "wanted", "here")]
    kept = await bystander.take_all(topology.unrouted)
    assert [body for *_, body in shown(kept)] == list(range(many))


async def test_without_a_broker_and_a_webhook_nothing_is_written(site: Site) -> None:
    store = await site.open_store()
    assert await store.outbox.publish("ann", "orders.created", "1") == ()
    await store.webhooks.add("wh_1", "bob", "https://example.com", ("user.orders.created",))
    assert await store.outbox.publish("ann", "orders.created", "1") == ()
    assert await site.one("SELECT count(*) FROM outbox") == 0
    assert await store.outbox.publish("bob", "orders.created", "1") == (WEBHOOKS,)


async def test_messages_are_forgotten_some_time_after_they_left_or_could_not(site: Site) -> None:
    store = await site.open_store()
    await store.outbox.open_sink(MESSAGES)
    for _ in range(2):
        await store.outbox.publish("ann", "orders.created", "1")
    [first, _] = await store.outbox.claim(MESSAGES, 10, 1_000)
    await store.outbox.mark_published([first.id])
    assert await store.outbox.prune() == 0
    await site.advance(3_600)
    assert await store.outbox.prune() == 1
    await site.advance(MESSAGE_AGE_MS / 1000)
    assert await store.outbox.prune() == 1


async def test_one_pass_writes_a_bounded_amount_for_webhooks(site: Site) -> None:
    store = await site.open_store()
    for number in range(WEBHOOKS_MAX):
        await store.webhooks.add(f"wh_{number:02}", "ann", "https://example.com", ("user.big",))
    for _ in range(4):
        await store.outbox.publish("ann", "big", json.dumps("x" * (MESSAGE_BYTES_MAX - 2)))
    passes = []
    while found := await store.webhooks.create_deliveries():
        passes.append(found)
    assert passes == [2, 2]  # of 200 that a pass may read: these are large
    sizes = "SELECT count(*), sum(length(body)) FROM deliveries"
    [(deliveries, characters)] = await site.rows(sizes)
    assert deliveries == 4 * WEBHOOKS_MAX
    assert characters / 2 < SPREAD_CHARACTERS + (MESSAGE_BYTES_MAX + 200) * WEBHOOKS_MAX


@pytest.mark.parametrize(
    ("topic", "message", "why"),
    [
        ("", 1, "'' is not a valid topic"),
        ("a..b", 1, "not a valid topic"),
        ("a.b.", 1, "not a valid topic"),
        ("a b", 1, "not a valid topic"),
        ("a\n", 1, "not a valid topic"),
        ("*", 1, "not a valid topic"),
        ("a" * 101, 1, "not a valid topic"),
        (7, 1, "not a valid topic"),
        ("a", object(), "the message is not JSON"),
        ("a", float("nan"), "the message is not JSON"),
        ("a", "x" * MESSAGE_BYTES_MAX, "the message has 65,538 bytes; the limit is 65,536"),
    ],
)
async def test_a_bad_topic_or_message_is_refused(sqlite_file_url: str, topic: Any, message: Any, why: str) -> None:
    async with application(sqlite_file_url) as app:
        await (await app.open()).store.outbox.open_sink(MESSAGES)
        with pytest.raises(UsageError, match=why):
            await app.publish(topic, message)
        assert await rows(sqlite_file_url, PENDING) == [(0,)]


@pytest.mark.parametrize("owner", ["a.b", "a%2Eb", "ü" * 100, "*", "#", "a b"])
def test_an_owner_is_one_word_of_a_routing_key(owner: str) -> None:
    word, _, topic = message_key(owner, "orders.created").partition(".")
    assert topic == "orders.created"
    assert word not in ("*", "#", "a")
    assert len(message_key(owner, "x" * 100).encode()) <= 255
    assert message_key("a.b", "x") != message_key("a%2Eb", "x")
