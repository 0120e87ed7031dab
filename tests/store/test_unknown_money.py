"""Money whose outcome is unknown: a person books it or gives it back, once, and it is written down who did."""

import asyncio

import pytest

from backstay.core.errors import NotAllowed, NotFound, UsageError
from backstay.core.ids import item_id
from backstay.core.models import CannotAsk, Delivery, Failed, Usage
from backstay.store.jobs import MoneyVerdict
from tests.store.store_rig import BROKEN, Scene
from tests.store.test_money import PROVIDER, money, paced, priced_job, success


@pytest.fixture(autouse=True)
async def pace(scene: Scene) -> None:
    await scene.store.providers.set_pace(PROVIDER, (None, None), concurrency=10)


async def lost(scene: Scene, budget: int = 350) -> int:
    """A job of four calls of 100 each: one was paid, of two nobody knows, and the last does not fit any more."""
    job = await priced_job(scene, [100] * 4, budget)
    first, *others = (await paced(scene))[:3]
    await scene.settle(first, success(100))
    for item in others:
        await scene.settle(item, CannotAsk(), delivery=Delivery.AT_MOST_ONCE)
    return job


async def test_what_was_paid_is_booked_as_spent(scene: Scene) -> None:
    job = await lost(scene)
    assert await money(scene, job) == (100, 0, 200, False)
    assert await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(True, "key 7")) == 200
    assert (await money(scene, job))[:3] == (300, 0, 0)
    [event] = await scene.store.events.oldest(f"job:{job}")
    assert (event.act, event.detail, event.at) == ("unknown_booked", "$0.000200 by key 7", scene.site.clock.ms)


async def test_what_was_not_paid_makes_room_under_the_ceiling(scene: Scene) -> None:
    job = await lost(scene)
    assert await paced(scene) == []
    assert (await scene.job(job)).short
    assert await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(False, "ann")) == 200
    assert await money(scene, job) == (100, 0, 0, False)
    assert len(await paced(scene)) == 1
    [event] = await scene.store.events.oldest(f"job:{job}")
    assert (event.act, event.detail) == ("unknown_released", "$0.000200 by ann")


async def test_a_part_is_settled_and_the_rest_stays(scene: Scene) -> None:
    job = await lost(scene)
    assert await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(True, "ann", 50, 200)) == 50
    assert await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(False, "ann", 30, 150)) == 30
    assert (await money(scene, job))[:3] == (150, 0, 120)


async def test_the_same_verdict_twice_is_one(scene: Scene) -> None:
    job = await lost(scene)
    for micros in (50, None):
        verdict = MoneyVerdict(True, "ann", micros, (await scene.job(job)).unknown_micros)
        await scene.store.jobs.settle_unknown(job, "ann", verdict)
        before = await scene.everything()
        with pytest.raises(NotAllowed, match="that may have been spent has changed"):
            await scene.store.jobs.settle_unknown(job, "ann", verdict)
        assert await scene.everything() == before


async def test_of_two_at_once_one_decides(scene: Scene) -> None:
    job = await lost(scene)
    stores = [await scene.site.open_store() for _ in range(4)]
    verdicts = [MoneyVerdict(paid, "ann", 150, 200) for paid in (True, False, True, False)]
    told = await asyncio.gather(
        *(store.jobs.settle_unknown(job, "ann", one) for store, one in zip(stores, verdicts, strict=True)),
        return_exceptions=True,
    )
    assert told.count(150) == 1
    assert all(isinstance(one, NotAllowed) for one in told if one != 150)
    spent, _, unknown, _ = await money(scene, job)
    assert (spent in (100, 250), unknown) == (True, 50)
    assert len(await scene.store.events.oldest(f"job:{job}")) == 1


@pytest.mark.parametrize("micros", [201, 0, -5, 1 << 61])
async def test_no_more_than_there_is_can_be_settled(scene: Scene, micros: int) -> None:
    job = await lost(scene)
    before = await scene.everything()
    with pytest.raises(UsageError, match="at most"):
        await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(True, "ann", micros))
    assert await scene.everything() == before


async def test_another_owners_job_does_not_exist_and_one_without_such_money_is_said_to_have_none(scene: Scene) -> None:
    job = await lost(scene)
    before = await scene.everything()
    with pytest.raises(NotFound):
        await scene.store.jobs.settle_unknown(job, "bob", MoneyVerdict(True, "bob", None, 200))
    assert await scene.everything() == before
    other = await priced_job(scene, [100], budget=None)
    with pytest.raises(NotAllowed, match="no money of unknown outcome"):
        await scene.store.jobs.settle_unknown(other, "ann", MoneyVerdict(True, "ann"))


async def test_a_job_that_has_ended_can_be_settled_too(scene: Scene) -> None:
    job = await priced_job(scene, [100], budget=100)
    [item] = await paced(scene)
    await scene.settle(item, CannotAsk(), delivery=Delivery.AT_MOST_ONCE)
    assert (await scene.job(job)).state == "failed"
    await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(False, "ann"))
    assert (await money(scene, job))[:3] == (0, 0, 0)


async def test_an_answer_costs_what_all_its_attempts_cost_and_is_unknown_if_one_is(scene: Scene) -> None:
    job = await priced_job(scene, [None] * 4, None)
    for tried in (Usage(50, 5, 20), Usage(50, 5), None):
        [item] = await paced(scene, 1)
        await scene.settle(item, Failed(BROKEN.failure, tried), retry="queue")
        await scene.site.advance(60)
        [again] = await paced(scene, 1)
        assert again.id == item.id
        await scene.settle(again, success(100))
    [once] = await paced(scene)
    await scene.settle(once, success(100))
    rows = await scene.store.results.answers_of([item_id(job, at) for at in range(4)])
    used = [(row.input_tokens, row.output_tokens, row.cost_micros) for row in rows]
    assert used == [(57, 8, 120), (57, 8, None), (7, 3, 100), (7, 3, 100)]
    assert {(row.state, row.result) for row in rows} == {("succeeded", "1")}
