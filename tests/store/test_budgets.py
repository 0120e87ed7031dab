"""Budgets that jobs share, in the claim itself: set aside, spent, given back, renewed; on both databases."""

import asyncio

import pytest

from backstay.core.errors import NotFound, UsageError
from backstay.core.models import CannotAsk, Claimed, HandedBack, Succeeded, Usage
from backstay.core.money import MICROS_MAX, Budget, Period
from backstay.store.items import Want
from backstay.store.jobs import MoneyVerdict
from backstay.store.store import Store
from backstay.store.submissions import Chunk
from tests.store.store_rig import LEASE_MS, Scene, decided, new_job


async def job_of(scene: Scene, items: int, cost: int | None, owner: str = "ann", handler: str = "echo") -> int:
    await scene.store.providers.set_pace(f"handler:{handler}", (None, None), concurrency=10_000)
    chunk = Chunk(0, [f"{n}" for n in range(items)], "digest", True, [(cost, 0, 0)] * items)
    return (await scene.store.submissions.open(new_job(owner=owner, handler=handler), chunk)).id


async def claim(scene: Scene, handler: str = "echo", store: Store | None = None, worker: str = "w1:1") -> list[Claimed]:
    want = Want(handler, 100, 0, f"handler:{handler}")
    return (await (store or scene.store).items.claim([want], worker, LEASE_MS)).items


async def only(scene: Scene) -> Budget:
    [budget] = await scene.store.budgets.all()
    return budget


def paid(cost: int | None) -> Succeeded:
    return Succeeded("1", None if cost is None else Usage(0, 0, cost))


async def test_jobs_of_one_owner_share_a_budget_and_others_do_not(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.TOTAL, 250)
    for handler in ("echo", "copy"):
        await job_of(scene, 2, 100, handler=handler)
    bobs = await job_of(scene, 5, 100, owner="bob")
    claimed = [*await claim(scene), *await claim(scene, "copy")]
    assert sum(item.job_id == bobs for item in claimed) == 5
    assert len(claimed) == 7
    assert (await only(scene)).reserved_micros == 200


async def test_items_behind_many_that_do_not_fit_are_claimed_at_once(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.TOTAL, 50)
    for _ in range(12):
        await job_of(scene, 1, 100)
    bobs = await job_of(scene, 1, 100, owner="bob")
    taken = await scene.store.items.claim([Want("echo", 5, 0, "handler:echo")], "w1:1", LEASE_MS)
    assert [item.job_id for item in taken.items] == [bobs], "it looks at five items at a time"


async def test_a_job_that_does_not_fit_goes_on_when_money_comes_back(scene: Scene) -> None:
    await scene.store.budgets.set("", "echo", Period.TOTAL, 100)
    first, second = await job_of(scene, 1, 100), await job_of(scene, 1, 60)
    [item] = await claim(scene)
    assert item.job_id == first
    assert await claim(scene) == []
    assert await scene.site.rows(f"SELECT short FROM jobs WHERE id = {second}") == [(1,)]
    assert not (await scene.job(second)).short, "the call under way may give money back"
    await scene.settle(item, paid(30))
    assert (await only(scene)).left_micros == 70
    assert [item.job_id for item in await claim(scene)] == [second]


@pytest.mark.parametrize(
    ("outcome", "left"), [(paid(40), 60), (paid(None), 0), (HandedBack("not sent"), 100), (CannotAsk(), 0)]
)
async def test_what_comes_of_a_call_is_booked(
    scene: Scene, outcome: Succeeded | HandedBack | CannotAsk, left: int
) -> None:
    await scene.store.budgets.set("", "", Period.MONTH, 100)
    await job_of(scene, 1, 100)
    [item] = await claim(scene)
    await scene.settle(item, outcome)
    budget = await only(scene)
    assert (budget.reserved_micros, budget.left_micros) == (0, left)


async def test_a_new_month_starts_anew_without_anyone_doing_anything(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.DAY, 100)
    job = await job_of(scene, 2, 100)
    [item] = await claim(scene)
    await scene.settle(item, paid(100))
    assert await claim(scene) == []
    assert (await scene.job(job)).short
    await scene.site.advance(86_400)
    assert len(await claim(scene)) == 1


async def test_a_higher_limit_lets_jobs_go_on_and_removing_it_as_well(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.TOTAL, 50)
    await job_of(scene, 3, 100)
    assert await claim(scene) == []
    assert (await scene.store.budgets.set("ann", "", Period.TOTAL, 100)).limit_micros == 100
    assert len(await claim(scene)) == 1
    assert await claim(scene) == []
    await scene.store.budgets.remove("ann", "", Period.TOTAL)
    assert len(await claim(scene)) == 2
    with pytest.raises(NotFound, match="no such budget"):
        await scene.store.budgets.remove("ann", "", Period.TOTAL)


async def test_a_budget_set_while_calls_are_under_way_counts_them(scene: Scene) -> None:
    await job_of(scene, 2, 100)
    items = await claim(scene)
    assert (await scene.store.budgets.set("ann", "", Period.TOTAL, 150)).left_micros == -50
    await scene.settle(items[0], paid(100))
    assert (await only(scene)).left_micros == -50
    await scene.settle(items[1], paid(10))
    assert (await only(scene)).left_micros == 40


async def test_unknown_money_that_was_not_spent_comes_back_to_a_total(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.TOTAL, 100)
    job = await job_of(scene, 1, 100)
    [item] = await claim(scene)
    await scene.settle(item, CannotAsk(), delivery="at_most_once")
    assert (await only(scene)).left_micros == 0
    await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(False, "ann"))
    assert (await only(scene)).left_micros == 100


@pytest.mark.parametrize("period", list(Period))
@pytest.mark.parametrize("shared", [True, False])
async def test_only_an_operator_gives_unknown_money_back_to_a_shared_budget(
    scene: Scene, period: Period, shared: bool
) -> None:
    await scene.store.budgets.set("ann", "", period, 100)
    job = await job_of(scene, 1, 100)
    [item] = await claim(scene)
    await scene.settle(item, CannotAsk(), delivery="at_most_once")
    await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(False, "ann", shared=shared))
    assert (await only(scene)).left_micros == (100 if shared else 0)


async def test_a_claim_whose_answer_never_came_gives_its_money_back(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.TOTAL, 100)
    await job_of(scene, 1, 100)
    assert len(await claim(scene)) == 1
    await scene.store.items.return_lost_claim("w1:1")
    assert (await only(scene)).left_micros == 100
    assert len(await claim(scene)) == 1


async def test_many_workers_at_once_never_set_aside_more_than_the_limit(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.TOTAL, 1_000)
    for handler in ("echo", "copy", "scan"):
        await job_of(scene, 40, 30, handler=handler)
    stores = [Store(scene.site.database()) for _ in range(4)]
    for store in stores:
        await store.open()
    try:

        async def work(number: int) -> list[Claimed]:
            handler = ("echo", "copy", "scan")[number % 3]
            taken: list[Claimed] = []
            for turn in range(6):
                some = await claim(scene, handler, stores[number % 4], f"w{number}:{turn}")
                taken += some
                if some:
                    done = [decided(item, paid(5), scene.site.clock.ms) for item in some[:2]]
                    await stores[number % 4].items.settle(done)
                budget = await only(scene)
                assert budget.left_micros >= 0, "set aside and spent are within the limit at every moment"
            return taken

        taken = await asyncio.gather(*(work(number) for number in range(6)))
        rest = [await claim(scene, handler, stores[0], "last:1") for handler in ("echo", "copy", "scan")]
    finally:
        for store in stores:
            await store.close()
    budget = await only(scene)
    held = sum(map(len, (*taken, *rest)))
    assert held > 33, "money that came back was used again"
    assert 0 <= budget.left_micros < 30, "and nothing more fits"


async def test_an_item_that_was_submitted_without_a_cost_has_the_handlers(scene: Scene) -> None:
    await scene.store.budgets.set("ann", "", Period.TOTAL, 250)
    await scene.store.providers.set_pace("handler:echo", (None, None), concurrency=100)
    await scene.submit(items=5)
    want = Want("echo", 100, 0, "handler:echo", cost_micros=100)
    assert len((await scene.store.items.claim([want], "w1:1", LEASE_MS)).items) == 2


async def test_an_item_that_is_to_be_weighed_first_is_named_and_not_claimed(scene: Scene) -> None:
    await scene.store.providers.set_pace("handler:echo", (None, None), concurrency=100)
    await scene.submit(items=2)
    want = Want("echo", 100, 0, "handler:echo", weighs=True)
    taken = await scene.store.items.claim([want], "w1:1", LEASE_MS)
    assert (len(taken.items), [name for name, _ in taken.unweighed]) == (0, ["echo", "echo"])
    await scene.store.items.weigh([(item, 70, 3) for _, item in taken.unweighed])
    claimed = (await scene.store.items.claim([want], "w1:2", LEASE_MS)).items
    assert [item.reserved for item in claimed] == [70, 70]


@pytest.mark.parametrize("limit", [-1, MICROS_MAX + 1])
async def test_a_limit_that_is_no_amount_is_refused_and_nothing_is_written(scene: Scene, limit: int) -> None:
    with pytest.raises(UsageError, match="a budget must be from 0"):
        await scene.store.budgets.set("ann", "", Period.TOTAL, limit)
    assert await scene.store.budgets.all() == []


MIXED = ("echo", "copy")


async def mixed_job(scene: Scene, cost: int = 100, **terms: object) -> int:
    """A job whose first item is for `echo`, its own handler, and whose second is for `copy`."""
    for handler in MIXED:
        await scene.store.providers.set_pace(f"handler:{handler}", (None, None), concurrency=100)
    chunk = Chunk(0, ["1", "2"], "digest", True, [(cost, 0, 0)] * 2, handlers=MIXED)
    return (await scene.store.submissions.open(new_job(owner="ann", handler="echo", **terms), chunk)).id


async def test_an_item_counts_in_the_budget_of_its_own_handler(scene: Scene) -> None:
    await scene.store.budgets.set("", "copy", Period.TOTAL, 1_000)
    await mixed_job(scene)
    [echo], [copy] = await claim(scene), await claim(scene, "copy")
    assert (await only(scene)).reserved_micros == 100, "of the two, only that of copy"
    await scene.settle(echo, paid(70))
    assert (await only(scene)).used_micros == 0
    await scene.settle(copy, paid(30))
    assert ((await only(scene)).reserved_micros, (await only(scene)).used_micros) == (0, 30)


async def test_a_full_budget_of_one_handler_does_not_hold_the_jobs_other_items(scene: Scene) -> None:
    await scene.store.budgets.set("", "copy", Period.TOTAL, 50)
    job = await mixed_job(scene)
    assert await claim(scene, "copy") == []
    assert (await scene.job(job)).short
    [echo] = await claim(scene)
    assert echo.job_id == job
    assert (await scene.job(job)).short, "a claim for another handler does not change that"
    await scene.settle(echo, paid(1))
    assert (await scene.job(job)).held_by_budget, "nor does its money; now nothing else is left to do"
    assert await claim(scene, "copy") == []
    await scene.store.budgets.set("", "copy", Period.TOTAL, 100)
    assert len(await claim(scene, "copy")) == 1


@pytest.mark.parametrize("end", ["disowned", "out of time"])
async def test_money_of_a_call_that_never_ended_counts_under_its_own_handler(scene: Scene, end: str) -> None:
    await scene.store.budgets.set("", "copy", Period.TOTAL, 1_000)
    await mixed_job(scene, deadline_ms=60_000)
    await claim(scene, worker="w1:1")
    await claim(scene, "copy", worker="w2:1")
    if end == "disowned":
        await scene.store.items.return_lost_claim("w1:1")
        assert (await only(scene)).reserved_micros == 100, "the call of echo is none of its business"
        await scene.store.items.return_lost_claim("w2:1")
        assert ((await only(scene)).reserved_micros, (await only(scene)).used_micros) == (0, 0)
        return
    await scene.site.advance(61)
    await scene.store.sweeps.expire()
    assert ((await only(scene)).reserved_micros, (await only(scene)).used_micros) == (0, 100)


async def test_a_new_budget_of_a_handler_counts_its_calls_under_way_and_no_others(scene: Scene) -> None:
    await mixed_job(scene)
    await claim(scene)
    assert (await scene.store.budgets.set("ann", "copy", Period.TOTAL, 500)).reserved_micros == 0
    await claim(scene, "copy")
    await scene.store.budgets.remove("ann", "copy", Period.TOTAL)
    assert (await scene.store.budgets.set("ann", "copy", Period.TOTAL, 500)).reserved_micros == 100
    assert (await scene.store.budgets.set("bob", "copy", Period.TOTAL, 500)).reserved_micros == 0


async def test_a_budget_of_a_host_covers_all_handlers_that_send_there(scene: Scene) -> None:
    there, elsewhere = ("call@api.x.ai#11", "batch@api.x.ai#22"), ("call@api.x.ai:81#11", "call@my.api.x.ai#11", "echo")
    for name in (*there, *elsewhere):
        await scene.store.providers.save_endpoint(name, "{}")
        await job_of(scene, 2, 100, handler=name)
    assert len(await claim(scene, there[0])) == 2
    made = await scene.store.budgets.set("", "@api.x.ai", Period.MONTH, 350)
    assert made.reserved_micros == 200, "what was under way counts"
    assert [len(await claim(scene, name)) for name in (there[1], *elsewhere)] == [1, 2, 2, 2]
    assert (await only(scene)).reserved_micros == 300
    assert await claim(scene, there[1]) == []


async def test_unknown_money_of_a_mixed_job_comes_back_to_no_handler(scene: Scene) -> None:
    """It is not known whose call it was: a budget must not be exceeded, so it stays counted."""
    await scene.store.providers.save_endpoint("echo", '{"api": "openai", "beside": ["…"]}')
    for handler in ("", "copy"):
        await scene.store.budgets.set("", handler, Period.TOTAL, 1_000)
    job = await mixed_job(scene)
    [copy] = await claim(scene, "copy")
    await scene.settle(copy, CannotAsk(), delivery="at_most_once")
    await scene.store.jobs.settle_unknown(job, "ann", MoneyVerdict(False, "ann"))
    assert {budget.handler: budget.used_micros for budget in await scene.store.budgets.all()} == {"": 0, "copy": 100}
