"""`backstay broker replay` as real processes: memory, kill -9, two at once, and what it says."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from backstay.core.ids import item_id, show_item
from backstay.messaging.messages import Topology
from tests.databases import Site
from tests.messaging.command_rig import Desk, Ran
from tests.messaging.dead_rig import REJECTED, dead_work, fill, ids, poison
from tests.messaging.rig import until
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.store.store_rig import WRONG
from tests.store.store_rig import Scene as Shop

FEW, SOME, MANY, VERY_MANY = 300, 1_500, 2_500, 20_000
GROWTH_KB_MAX = 8_000  # 2,500 padded messages in memory would be more than 20 MB, as 20,000 plain ones are
PADDING = "x" * 8_000
ONE = 123  # the number of the message whose item failed


class Counter:
    """A desk, and a shop with one failed item."""

    def __init__(self, desk: Desk, shop: Shop) -> None:
        self.desk = desk
        self.shop = shop
        self.failed = 0

    @property
    def name(self) -> str:
        return show_item(self.failed)

    async def fill(self, n: int, padding: str = "") -> None:
        """So many messages, one of which names the failed item."""
        topology = self.desk.topology
        self.failed = self.failed or item_id(await self.shop.ended(WRONG), 0)
        step = 10_000
        for start in range(0, n, step):
            numbers = range(start, min(start + step, n))
            dead = [dead_work(topology, at, [self.failed if at == ONE else item_id(7_000, at)]) for at in numbers]
            await fill(self.desk.broker_url, topology, dead, headers={**REJECTED, "x-padding": padding})

    async def replay(self, *args: str) -> Ran:
        return await asyncio.to_thread(self.desk.run, "broker", "replay", *args)

    async def dead(self) -> list[int]:
        return ids(await self.desk.bystander.take_all(self.desk.topology.dead))


@pytest.fixture
async def counter(sqlite_site: Site, rabbitmq: PrivateRabbitMQ, tmp_path: Path):
    shop = Shop(sqlite_site)
    await shop.store.open()
    yield Counter(Desk(tmp_path, sqlite_site.url, rabbitmq.url, Topology(rabbitmq.prefix())), shop)
    await shop.store.close()


async def peak_of(counter: Counter, messages: int, padding: str = "") -> int:
    """The most memory that it takes to replay one of so many."""
    await counter.fill(messages, padding)
    ran = await counter.replay("--item", counter.name, "--json")
    assert (ran.code, ran.err) == (0, "")
    said = json.loads(ran.out)
    assert (said["seen"], said["chosen"], said["replayed"] + said["published"]) == (messages, 1, 1)
    assert await counter.desk.bystander.messages(counter.desk.topology.dead) == messages - 1
    await counter.desk.bystander.delete(counter.desk.topology.dead)
    return ran.peak_kb


@pytest.mark.slow
async def test_replaying_one_of_2_500_messages_takes_no_more_memory_than_one_of_300(counter: Counter) -> None:
    assert await peak_of(counter, MANY, PADDING) - await peak_of(counter, FEW, PADDING) < GROWTH_KB_MAX


@pytest.mark.slow
async def test_replaying_one_of_20_000_messages_takes_no_more_memory_than_one_of_300(counter: Counter) -> None:
    assert await peak_of(counter, VERY_MANY) - await peak_of(counter, FEW) < GROWTH_KB_MAX


@pytest.mark.slow
async def test_a_replay_that_is_killed_loses_nothing(counter: Counter) -> None:
    await counter.fill(SOME)
    desk = counter.desk

    async def some_are_aside() -> bool:
        return await desk.bystander.messages(desk.aside) > 100

    for _ in range(2):  # on the way there; then, as often as not, on the way back
        with desk.start("broker", "replay", "--item", counter.name) as running:
            await until(some_are_aside)
            running.send(signal.SIGKILL)
            assert running.wait() == -signal.SIGKILL
    ran = await counter.replay("--item", counter.name, "--json")
    assert ran.code == 0
    left = await counter.dead()
    assert set(left) == set(range(SOME)) - {ONE}
    assert await desk.bystander.messages(desk.aside) == -1
    assert await counter.shop.states(counter.failed >> 28) == ["queued"]


@pytest.mark.slow
async def test_a_second_replay_is_refused_in_one_line(counter: Counter) -> None:
    await counter.fill(SOME)
    desk = counter.desk

    async def some_are_aside() -> bool:
        return await desk.bystander.messages(desk.aside) > 0

    with desk.start("broker", "replay", "--item", counter.name) as running:
        await until(some_are_aside)
        running.send(signal.SIGSTOP)  # it is under way for as long as this takes
        ran = await counter.replay("--all")
        running.send(signal.SIGCONT)
        dead = desk.topology.dead
        said = f"backstay: error: another process replays messages of {dead} or removes old ones. wait until it ends.\n"
        assert (ran.code, ran.out, ran.err) == (2, "", said)
        assert running.wait() == 0
    assert len(await counter.dead()) == SOME - 1


@pytest.mark.slow
async def test_it_says_what_it_did_and_what_stays(counter: Counter) -> None:
    await counter.fill(ONE + 1)
    await fill(counter.desk.broker_url, counter.desk.topology, [poison(counter.desk.topology, 900)])
    dry = await counter.replay("--all", "--dry-run")
    assert dry.out.splitlines() == [
        "125 messages chosen of 125 in the dead queue",
        "  1 item would be queued again",
        "  123 items stay in the dead queue: they are not in the database",
        "  1 message stay in the dead queue: not readable",
        "    1 is not JSON",
    ]
    ran = await counter.replay("--all")
    assert ran.out.splitlines()[1] == "  1 item queued again"
    (row,) = await counter.shop.store.replays.page("ann", None, 10)
    assert row.by
    assert await counter.dead() == [*range(ONE), 900]


@pytest.mark.slow
async def test_what_it_cannot_do_is_said_in_one_line(counter: Counter) -> None:
    which = "backstay: error: no messages are chosen. give --item, --reason or both, or else --all.\n"
    for args in ((), ("--all", "--reason", "x"), ("--all", "--item", "1-1")):
        ran = await counter.replay(*args)
        assert (ran.code, ran.err) == (2, which)
    ran = await counter.replay("--item", "12")
    assert (ran.code, ran.err.splitlines()[0][:42]) == (2, "backstay: error: '12' is not an item id. a")
    away = "amqp://ann:sesame@127.0.0.1:1/"
    ran = await counter.replay("--all", "--broker", away)
    assert ran.code == 8
    assert "cannot be reached" in ran.err
    assert "sesame" not in ran.err
    nothing = await counter.replay("--all")
    assert (nothing.code, nothing.out) == (0, "0 messages chosen of 0 in the dead queue\n")
