"""kill -9 of a worker between its claim of what messages name and their acknowledgement: RabbitMQ delivers again."""

from collections import Counter
from pathlib import Path

import pytest

from backstay.core.ids import item_id
from backstay.core.states import ItemState
from backstay.store.outbox import HINT_ITEMS_MAX
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.stories.broker_stage import broker_stage
from tests.stories.stage import by_ref, paid_twice

pytestmark = pytest.mark.slow

CONCURRENCY = 60
ITEMS = 2 * HINT_ITEMS_MAX + 20
KINDS = ("askable", "unaskable")
SOME = 30


async def test_killed_when_the_claim_is_committed_and_nothing_is_sent_nothing_is_paid_twice(
    postgres_url: str, rabbitmq: PrivateRabbitMQ, tmp_path: Path
) -> None:
    async with broker_stage(postgres_url, rabbitmq, tmp_path) as scene:
        stage = scene.stage
        victim = await scene.still_worker("claimed", CONCURRENCY)
        job = await stage.submit("unaskable", range(ITEMS))
        await scene.stands_still(victim, "claimed")
        stage.kill9(victim)
        items = [await stage.store.item_views.get(item_id(job.id, position), "local") for position in range(ITEMS)]
        states = Counter(item.state for item in items)
        assert states[ItemState.SUBMITTING] >= HINT_ITEMS_MAX, "a whole message's items are claimed"
        assert states[ItemState.QUEUED] == ITEMS - states[ItemState.SUBMITTING] > 0
        assert await stage.bill() == []
        await scene.waiting(scene.queue("unaskable"), 3)

        scene.worker(CONCURRENCY)
        assert (await job.wait(timeout_seconds=60)).succeeded == ITEMS
        await scene.check_done(job, ITEMS)
        assert len(await stage.bill()) == ITEMS
        assert paid_twice(await stage.bill()) == []
        await scene.all_used(["unaskable"])


async def test_killed_with_calls_in_flight_and_messages_unacknowledged_only_those_calls_are_made_again(
    postgres_url: str, rabbitmq: PrivateRabbitMQ, tmp_path: Path
) -> None:
    async with broker_stage(postgres_url, rabbitmq, tmp_path) as scene:
        stage = scene.stage
        victim = await scene.still_worker("unacknowledged", CONCURRENCY)
        early = {kind: await stage.submit(kind, range(SOME)) for kind in KINDS}
        for job in early.values():
            assert (await job.wait(timeout_seconds=60)).succeeded == SOME
        await scene.stands_still(victim, "unacknowledged")
        before = {kind: await stage.results(job) for kind, job in early.items()}
        for kind in KINDS:
            await stage.manners(kind, holding=True)
        late = {kind: await stage.submit(kind, range(SOME)) for kind in KINDS}
        for kind in KINDS:
            await stage.in_flight(kind, SOME)
        stage.kill9(victim)
        for kind in KINDS:
            await scene.waiting(scene.queue(kind), 2)
            await stage.manners(kind, holding=False)

        scene.worker(CONCURRENCY)
        for kind in KINDS:
            assert (await late[kind].wait(timeout_seconds=60)).succeeded == SOME
            await scene.check_done(late[kind], SOME)
            assert await stage.results(early[kind]) == before[kind], "what was committed is as it was"
        paid = Counter((charges[0].kind, len(charges)) for charges in by_ref(await stage.bill()).values())
        assert paid == {("askable", 1): 2 * SOME, ("unaskable", 1): SOME, ("unaskable", 2): SOME}
        assert {result.repeats for result in (await stage.results(late["unaskable"])).values()} == {1}
        await scene.all_used(KINDS)
