"""Replay out of a real broker's dead queue: what stays, in which order, and that nothing is ever lost."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pamqp.commands import Basic

from backstay.clock import DAY_MS, Clock
from backstay.core.errors import BrokerUnreachable, NotAllowed
from backstay.messaging.broker_session import AGE_LOOKS
from backstay.messaging.connection import connect_once
from backstay.messaging.dead_queue import (
    PREFETCH_MESSAGES,
    WINDOW_MESSAGES,
    DeadQueue,
    Verdict,
    dead_reason,
    died_at_ms,
)
from backstay.messaging.messages import DELIVERY_LIMIT, Incoming, OutgoingMessage, Topology
from backstay.messaging.queues import open_channel
from tests.messaging.dead_rig import dead_work, fill, ids, keep_all, poison, replay
from tests.messaging.rig import Bystander
from tests.servers.rabbitmq import PrivateRabbitMQ

MANY = 3 * PREFETCH_MESSAGES + 7


class Scene:
    def __init__(self, url: str, topology: Topology) -> None:
        self.url = url
        self.topology = topology
        self.aside = f"{topology.dead}.aside"
        self.bystander = Bystander(url)
        self.seen: list[int] = []

    async def fill(self, n: int, **changed: object) -> None:
        await fill(self.url, self.topology, [dead_work(self.topology, at, [at]) for at in range(n)], **changed)

    async def dead(self) -> list[Incoming]:
        return await self.bystander.take_all(self.topology.dead)

    async def but_one(self, window: Sequence[Incoming]) -> Sequence[Verdict]:
        """Takes number 5 out."""
        self.seen += ids(window)
        return [Verdict(None if message.message_id == "5" else message.body) for message in window]

    async def replay(self, judge=keep_all) -> None:
        await replay(self.url, self.topology, judge)


@pytest.fixture(params=["classic", "quorum"])
def scene(rabbitmq: PrivateRabbitMQ, request: pytest.FixtureRequest) -> Scene:
    return Scene(rabbitmq.url, Topology(rabbitmq.prefix(), request.param))


@pytest.fixture
def classic(rabbitmq: PrivateRabbitMQ) -> Scene:
    return Scene(rabbitmq.url, Topology(rabbitmq.prefix()))


async def test_one_is_taken_out_and_all_others_are_there_in_their_order(scene: Scene) -> None:
    await scene.fill(MANY)
    await scene.replay(scene.but_one)
    assert scene.seen == list(range(MANY))
    assert ids(await scene.dead()) == [number for number in range(MANY) if number != 5]
    assert await scene.bystander.messages(scene.aside) == (-1 if scene.topology.kind == "classic" else 0)


async def test_a_message_that_stays_is_the_same_to_the_last_property(scene: Scene) -> None:
    sent = [poison(scene.topology, 1), dead_work(scene.topology, 2, [3])]
    await fill(scene.url, scene.topology, sent)
    await scene.replay()
    kept = await scene.dead()
    told = [{name: value for name, value in one.headers.items() if name != "x-delivery-count"} for one in kept]
    assert [(one.body, one.message_id, one.type, said) for one, said in zip(kept, told, strict=True)] == [
        (one.body, one.message_id, one.type, one.headers) for one in sent
    ]
    assert [dead_reason(one) for one in kept] == ["is not JSON", "rejected"]


async def test_what_the_broker_would_act_on_is_kept_under_another_name(classic: Scene) -> None:
    elsewhere = classic.topology.callbacks
    await fill(classic.url, classic.topology, [dead_work(classic.topology, 1, [1])])
    await fill(
        classic.url, classic.topology, [dead_work(classic.topology, 2, [2])], user_id="guest", expiration="600000"
    )
    carbon = dead_work(classic.topology, 3, [3], headers={"CC": [elsewhere]})
    await fill(classic.url, classic.topology, [carbon])
    assert await classic.bystander.messages(elsewhere) == 1
    await classic.replay()
    assert await classic.bystander.messages(elsewhere) == 1
    _, owned, copied = await classic.dead()
    assert owned.headers["x-backstay-was-user-id"] == "guest"
    assert owned.headers["x-backstay-was-expiration"] == "600000"
    assert copied.headers == {"x-backstay-was-cc": [elsewhere]}


async def test_without_a_dead_queue_there_is_nothing_to_replay(classic: Scene) -> None:
    await classic.replay(classic.but_one)
    assert classic.seen == []
    assert await classic.bystander.messages(classic.aside) == -1


async def test_what_is_published_instead_gets_its_queue_if_that_is_gone(scene: Scene) -> None:
    await scene.fill(2)
    queue = scene.topology.work_queue("echo")

    async def tell_again(window: Sequence[Incoming]) -> Sequence[Verdict]:
        again = [OutgoingMessage(queue.exchange, queue.routing_key, one.body, one.message_id, "work") for one in window]
        return [Verdict(None, [one]) for one in again]

    await scene.replay(tell_again)
    assert await scene.dead() == []
    assert ids(await scene.bystander.take_all(queue.name)) == [0, 1]


async def test_what_comes_in_meanwhile_is_left_for_the_next_replay(classic: Scene) -> None:
    await classic.fill(3)

    async def more_comes(window: Sequence[Incoming]) -> Sequence[Verdict]:
        classic.seen += ids(window)
        await fill(classic.url, classic.topology, [dead_work(classic.topology, 100 + ids(window)[0], [1])])
        return [Verdict(message.body) for message in window]

    await classic.replay(more_comes)
    assert classic.seen == [0, 1, 2]
    kept = ids(await classic.dead())
    assert [number for number in kept if number < 100] == [0, 1, 2]
    assert len([number for number in kept if number >= 100]) >= 1


async def test_a_second_replay_at_once_is_refused_in_one_line(scene: Scene) -> None:
    await scene.fill(1)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(window: Sequence[Incoming]) -> Sequence[Verdict]:
        began.set()
        await go_on.wait()
        return await keep_all(window)

    first = asyncio.create_task(scene.replay(slow))
    await began.wait()
    with pytest.raises(NotAllowed, match=rf"another process replays messages of {scene.topology.dead} or"):
        await scene.replay()
    go_on.set()
    await first
    await scene.replay()
    assert ids(await scene.dead()) == [0]


async def test_what_another_replay_left_aside_is_moved_back_first(scene: Scene) -> None:
    await scene.fill(WINDOW_MESSAGES + 50)

    async def broken(window: Sequence[Incoming]) -> Sequence[Verdict]:
        if ids(window)[0] >= WINDOW_MESSAGES // 2:
            raise RuntimeError("a crash")
        return await keep_all(window)

    with pytest.raises(RuntimeError):
        await scene.replay(broken)
    await scene.replay(scene.but_one)
    assert set(scene.seen) == set(range(WINDOW_MESSAGES + 50))
    assert sorted(ids(await scene.dead())) == [n for n in range(WINDOW_MESSAGES + 50) if n != 5]
    assert await scene.bystander.messages(scene.aside) in (-1, 0)


async def test_a_broker_that_goes_away_in_mid_replay_is_told_of_and_nothing_is_lost(classic: Scene) -> None:
    await classic.fill(MANY)
    async with connect_once(classic.url) as connection:

        async def cut(window: Sequence[Incoming]) -> Sequence[Verdict]:
            if ids(window)[-1] >= WINDOW_MESSAGES:
                await connection.close()
            return await keep_all(window)

        with pytest.raises(BrokerUnreachable, match="the broker disconnected during the replay") as told:
            await DeadQueue(connection, classic.topology, Clock()).replay(cut)
    assert told.value.hint == "nothing is lost: run the same command again"
    await classic.replay()
    assert set(ids(await classic.dead())) == set(range(MANY))


async def test_whoever_else_is_bound_to_dead_messages_does_not_get_them_again(classic: Scene) -> None:
    async with connect_once(classic.url) as connection:
        channel = await open_channel(connection)
        await classic.fill(1)
        mine = f"{classic.topology.prefix}.alerts"
        await channel.queue_declare(mine, durable=True)
        await channel.queue_bind(mine, classic.topology.dead, "")
        await classic.replay()
    assert await classic.bystander.messages(mine) == 0
    assert ids(await classic.dead()) == [0]


# bounds


async def drop(scene: Scene, how: str, bound: int) -> int:
    async with connect_once(scene.url) as connection:
        dropped: int = await getattr(DeadQueue(connection, scene.topology, Clock()), how)(bound)
        return dropped


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def test_the_oldest_are_dropped_and_the_newest_stay_in_their_order(scene: Scene) -> None:
    await scene.fill(MANY)
    assert await drop(scene, "drop_oldest", MANY - 5) == MANY - 5
    kept = await scene.dead()
    assert ids(kept) == list(range(MANY - 5, MANY))
    assert not any("x-delivery-count" in message.headers for message in kept)


@pytest.mark.slow
async def test_no_more_are_dropped_than_there_are(classic: Scene) -> None:
    await classic.fill(3)
    assert await drop(classic, "drop_oldest", 5) == 3


async def test_what_is_too_old_is_dropped_and_the_first_younger_one_ends_the_look(scene: Scene) -> None:
    for number, days in enumerate([20, 15, 13, 15, 0]):
        await fill(scene.url, scene.topology, [dead_work(scene.topology, number, [1])], timestamp=days_ago(days))
    assert await drop(scene, "drop_expired", 14 * DAY_MS) == 2
    assert ids(await scene.dead()) == [2, 3, 4]


@pytest.mark.parametrize("undated", [None, days_ago(-400)], ids=["none", "in the future"])
async def test_messages_without_a_time_keep_no_old_one_and_are_older_than_what_is_behind_them(
    classic: Scene, undated: datetime | None
) -> None:
    times = [undated, days_ago(15), undated, days_ago(15), undated, days_ago(1), undated]
    for number, time in enumerate(times):
        await fill(classic.url, classic.topology, [dead_work(classic.topology, number, [1])], timestamp=time)
    assert await drop(classic, "drop_expired", 14 * DAY_MS) == 4
    assert ids(await classic.dead()) == [4, 5, 6]


async def test_what_the_broker_set_aside_is_as_old_as_the_broker_says(classic: Scene) -> None:
    """Its own time is when it was published first."""
    deaths = [[{"time": days_ago(15)}], [{"time": days_ago(2)}, {"time": days_ago(90)}]]
    for number, death in enumerate(deaths):
        dead = dead_work(classic.topology, number, [1], headers={"x-death": death})
        await fill(classic.url, classic.topology, [dead], timestamp=days_ago(100))
    assert await drop(classic, "drop_expired", 14 * DAY_MS) == 1
    assert ids(await classic.dead()) == [1]


@pytest.mark.parametrize("deaths", ["never", [7], [{"time": "never"}], {}])
def test_a_record_of_deaths_that_says_nothing_is_no_time(deaths: Any) -> None:
    assert died_at_ms(Basic.Properties(headers={"x-death": deaths}), 0) is None


@pytest.mark.slow
async def test_a_message_that_was_looked_at_a_hundred_times_is_still_there(scene: Scene) -> None:
    """A quorum queue drops what was delivered and handed back too often."""
    await scene.fill(1)
    async with connect_once(scene.url) as connection:
        queue = DeadQueue(connection, scene.topology, Clock())
        assert [await queue.drop_expired(DAY_MS) for _ in range(AGE_LOOKS)] == [0] * AGE_LOOKS
    assert ids(await scene.dead()) == [0]
    assert 2 * AGE_LOOKS < DELIVERY_LIMIT


@pytest.mark.parametrize("how", ["drop_oldest", "drop_expired"])
async def test_nothing_is_dropped_during_a_replay(classic: Scene, how: str) -> None:
    await classic.fill(3, timestamp=days_ago(15))

    async def meanwhile(window: Sequence[Incoming]) -> Sequence[Verdict]:
        with pytest.raises(NotAllowed):
            await drop(classic, how, 1)
        return [Verdict(message.body) for message in window]

    await classic.replay(meanwhile)
    assert ids(await classic.dead()) == [0, 1, 2]
