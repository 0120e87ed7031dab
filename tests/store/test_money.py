"""Budgets and paces in the claim itself: what is set aside, spent, given back and kept, on both databases."""

import asyncio

import pytest

from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.models import CannotAsk, Claimed, Failed, HandedBack, Outcome, Stopped, Submitted, Succeeded, Usage
from backstay.core.money import Period
from backstay.core.pace import Answers, FurtherLimits
from backstay.core.states import StopReason
from backstay.store.items import Want
from backstay.store.job_counts import SUM_MAX
from backstay.store.store import Store
from backstay.store.submissions import Chunk
from tests.store.store_rig import LEASE_MS, Scene, decided, new_job

PROVIDER = "api#1"


async def priced_job(
    scene: Scene, costs: list[int | None], budget: int | None, tokens: int = 10, output_tokens: int = 0
) -> int:
    bodies = [f"{n}" for n in range(len(costs))]
    chunk = Chunk(0, bodies, "digest", True, [(cost, tokens, output_tokens) for cost in costs])
    return (await scene.store.submissions.open(new_job(budget_micros=budget), chunk)).id


async def paced(scene: Scene, items: int = 100, store: Store | None = None) -> list[Claimed]:
    want = Want("echo", items, 0, PROVIDER)
    return (await (store or scene.store).items.claim([want], "w1:1", LEASE_MS)).items


async def money(scene: Scene, job_id: int) -> tuple[int, int, int, bool]:
    job = await scene.job(job_id)
    return job.spent_micros, job.reserved_micros, job.unknown_micros, job.short


def success(cost: int | None) -> Succeeded:
    return Succeeded("1", None if cost is None else Usage(7, 3, cost))


def failed(kind: FailureKind, status: int | None = None) -> Failed:
    return Failed(Failure(ErrorCode.GW_5XX, kind, "went wrong", provider_status=status))


@pytest.fixture(autouse=True)
async def pace(scene: Scene) -> None:
    await scene.store.providers.set_pace(PROVIDER, (None, None), concurrency=10)


async def test_the_worst_case_is_set_aside_with_the_claim(scene: Scene) -> None:
    job = await priced_job(scene, [100, 200, 300], budget=1_000)
    claimed = await paced(scene)
    assert [item.reserved for item in claimed] == [100, 200, 300]
    assert await money(scene, job) == (0, 600, 0, False)
    assert (await scene.job(job)).state == "running"


async def test_what_does_not_fit_under_the_ceiling_is_not_claimed(scene: Scene) -> None:
    job = await priced_job(scene, [100, 100, 100], budget=250)
    assert len(await paced(scene)) == 2
    assert await money(scene, job) == (0, 200, 0, True)
    assert await paced(scene) == []


@pytest.mark.parametrize(
    ("outcome", "spent", "kept", "again"),
    [
        (success(40), 40, 0, 2),
        (success(None), 100, 0, 1),
        (failed(FailureKind.BUSINESS, 400), 0, 0, 2),
        (failed(FailureKind.BUSINESS, 200), 0, 100, 1),
        (failed(FailureKind.UNKNOWN), 0, 100, 1),
        (CannotAsk(), 0, 100, 1),
        (Stopped(sent=True), 0, 100, 1),
        (Stopped(), 0, 0, 2),
        (HandedBack("not sent"), 0, 0, 2),
    ],
    ids=[
        "cheaper",
        "says nothing",
        "refused",
        "nonsense",
        "timed out",
        "worker lost",
        "cut off",
        "cut off before it began",
        "never sent",
    ],
)
async def test_what_comes_of_a_call_settles_what_was_set_aside(
    scene: Scene, outcome: Outcome, spent: int, kept: int, again: int
) -> None:
    job = await priced_job(scene, [100] * 4, budget=260)
    first, second = await paced(scene)
    await scene.settle(first, outcome, retry="none")
    assert await money(scene, job) == (spent, 100, kept, False)
    await scene.settle(second, success(10))
    assert len(await paced(scene)) == again


async def test_a_task_at_the_provider_keeps_its_money_set_aside_until_it_ends(scene: Scene) -> None:
    job = await priced_job(scene, [100], budget=100)
    [item] = await paced(scene)
    await scene.settle(item, Submitted("task-1", ""))
    assert await money(scene, job) == (0, 100, 0, False)
    await scene.site.advance(60)
    [polled] = (await scene.store.items.poll("echo", "", 10, "w2:1", LEASE_MS)).items
    assert polled.reserved == 100
    await scene.settle(polled, success(30))
    assert await money(scene, job) == (30, 0, 0, False)


async def test_a_claim_that_broke_off_gives_back_what_it_set_aside(scene: Scene) -> None:
    job = await priced_job(scene, [100, 100], budget=150)
    await paced(scene)
    await scene.store.items.return_lost_claim("w1:1")
    assert await money(scene, job) == (0, 0, 0, False)
    assert len(await paced(scene)) == 1


async def test_a_claim_that_broke_off_gives_it_back_once_even_if_its_items_end_before_the_next_claim(
    scene: Scene,
) -> None:
    """One job's items end while they wait; a call of another job is under way, and its money stays set aside."""
    await scene.store.budgets.set("ann", "", Period.TOTAL, 1_000)
    cancelled, other = await priced_job(scene, [100], budget=None), await priced_job(scene, [300], budget=None)
    await paced(scene, items=1)
    await scene.store.items.return_lost_claim("w1:1")
    await scene.store.jobs.pause(cancelled, "ann")
    assert len(await paced(scene)) == 1
    await scene.store.jobs.cancel(cancelled, "ann")
    await scene.store.sweeps.end_stopped(cancelled, StopReason.CANCEL)
    [budget] = await scene.store.budgets.all()
    assert (budget.reserved_micros, budget.used_micros) == (300, 0)
    assert await money(scene, cancelled) == (0, 0, 0, False)
    assert await money(scene, other) == (0, 300, 0, False)


async def test_what_a_deadline_ends_under_way_is_kept_as_unknown(scene: Scene) -> None:
    chunk = Chunk(0, ["1"], "d", True, [(100, 1, 0)])
    job = (await scene.store.submissions.open(new_job(budget_micros=100, deadline_ms=1_000), chunk)).id
    await paced(scene)
    await scene.site.advance(2)
    await scene.store.sweeps.expire()
    assert await money(scene, job) == (0, 0, 100, False)


async def test_a_higher_ceiling_lets_a_job_go_on(scene: Scene) -> None:
    job = await priced_job(scene, [100, 100], budget=100)
    [first] = await paced(scene)
    await scene.settle(first, success(100))
    assert await paced(scene) == []
    assert (await scene.job(job)).short
    await scene.store.jobs.change_budget(job, "ann", 200)
    assert len(await paced(scene)) == 1


async def test_an_item_of_unknown_cost_is_never_claimed_under_a_ceiling(scene: Scene) -> None:
    await priced_job(scene, [None], budget=10**9)
    assert await paced(scene) == []


async def test_an_item_that_is_weighed_later_can_be_claimed_under_a_ceiling(scene: Scene) -> None:
    job = await priced_job(scene, [None, 700, None, None], budget=None)
    first = (await paced(scene, 1))[0]
    await scene.settle(first, success(1))
    assert [row[:2] for row in await scene.store.job_views.unsent_items(job, False, -1)] == [
        (first.id + 2, None),
        (first.id + 3, None),
    ]
    unsent = await scene.store.job_views.unsent_items(job, True, -1)
    shown = [(first.id + 1, 700, "1"), (first.id + 2, None, "2"), (first.id + 3, None, "3")]
    assert [row[:3] for row in unsent] == shown
    assert await scene.store.job_views.unsent_items(job, True, first.id + 3) == []
    await scene.store.jobs.weigh_items([(item.id, 100) for item in unsent])
    await scene.store.jobs.change_budget(job, "ann", 250)
    assert [item.reserved for item in await paced(scene)] == [100, 100]


async def test_what_a_ceiling_holds_back_is_not_pending_and_says_what_it_may_cost(scene: Scene) -> None:
    job = await priced_job(scene, [100, 300], budget=350)
    [first] = await paced(scene)
    await scene.settle(first, success(100))
    assert await paced(scene) == []
    assert not await scene.store.item_views.is_unfinished("echo")
    assert await scene.store.job_views.next_cost(job) == 300
    assert (await scene.item(job, 1)).job_short
    await scene.store.jobs.change_budget(job, "ann", 400)
    assert await scene.store.item_views.is_unfinished("echo")
    await paced(scene)
    assert await scene.store.job_views.next_cost(job) is None


async def test_two_workers_at_once_never_set_aside_more_than_the_ceiling(scene: Scene) -> None:
    job = await priced_job(scene, [100] * 200, budget=5_050)
    await scene.store.providers.set_pace(PROVIDER, (None, None), concurrency=1_000)
    await scene.store.providers.judge_pace(PROVIDER, Answers())
    stores = [await scene.site.open_store() for _ in range(4)]
    spent = 0
    for _ in range(30):
        won = await asyncio.gather(*(paced(scene, 7, store) for store in stores))
        for item in [item for claimed in won for item in claimed]:
            await stores[0].items.settle([decided(item, success(80), scene.site.clock.ms)])
            spent += 80
        now = await money(scene, job)
        assert sum(now[:3]) <= 5_050
    assert (await money(scene, job))[0] == spent == 80 * 62


async def test_calls_at_once_are_counted_over_all_workers(scene: Scene) -> None:
    await priced_job(scene, [1] * 30, budget=None)
    first = await paced(scene, 8)
    assert len(first) == 8
    other = await scene.site.open_store()
    assert len(await paced(scene, 8, other)) == 2
    assert await paced(scene, 8) == []
    await scene.store.items.settle([decided(item, success(1), scene.site.clock.ms) for item in first[:3]])
    assert len(await paced(scene, 8)) == 3, "a call makes room when its answer is committed, and not before"


async def test_requests_a_minute_are_shared_by_all_workers(scene: Scene) -> None:
    await scene.store.providers.set_pace(PROVIDER, (60, None), concurrency=100)
    await priced_job(scene, [1] * 30, budget=None)
    other = await scene.site.open_store()
    assert len(await paced(scene)) + len(await paced(scene, store=other)) == 1
    await scene.site.advance(1.02)
    assert len(await paced(scene, store=other)) + len(await paced(scene)) == 1


async def test_a_worker_is_told_when_the_pace_allows_more(scene: Scene) -> None:
    await scene.store.providers.set_pace(PROVIDER, (60, None), concurrency=100)
    await priced_job(scene, [1] * 3, budget=None)
    taken = await scene.store.items.claim([Want("echo", 5, 0, PROVIDER)], "w1:1", LEASE_MS)
    assert taken.again_ms is not None
    await scene.site.advance(taken.again_ms / 1000)
    assert len(await paced(scene)) == 1


async def test_tokens_a_minute_hold_back_what_is_too_much(scene: Scene) -> None:
    await scene.store.providers.set_pace(PROVIDER, (None, 6_000), concurrency=100)
    await priced_job(scene, [1] * 10, budget=None, tokens=40)
    assert len(await paced(scene)) == 2
    await scene.site.advance(0.9)
    assert len(await paced(scene)) == 2


@pytest.mark.parametrize("further", [FurtherLimits(6_000), FurtherLimits(None, 1_200), FurtherLimits(6_000, 1_000)])
async def test_two_workers_together_never_exceed_input_or_output_tokens(scene: Scene, further: FurtherLimits) -> None:
    """A call has 30 tokens in and 10 out."""
    await scene.store.providers.set_pace(PROVIDER, (None, None), concurrency=10_000, further=further)
    await priced_job(scene, [1] * 900, budget=None, tokens=40, output_tokens=10)
    other, calls = await scene.site.open_store(), []
    for _ in range(75):
        found = [*await paced(scene), *await paced(scene, store=other)]
        calls += [scene.site.clock.ms] * len(found)
        await scene.site.advance(1)
    limit = min(
        tokens // of_one
        for tokens, of_one in ((further.input_tokens_per_minute, 30), (further.output_tokens_per_minute, 10))
        if tokens is not None
    )
    in_a_minute = [sum(at <= call < at + 60_000 for call in calls) for at in calls]
    assert limit * 0.6 <= max(in_a_minute) <= limit


async def test_two_workers_together_never_exceed_the_requests_of_a_day(scene: Scene) -> None:
    further = FurtherLimits(requests_per_day=50)
    await scene.store.providers.set_pace(PROVIDER, (None, None), concurrency=10_000, further=further)
    await priced_job(scene, [1] * 300, budget=None)
    other, calls = await scene.site.open_store(), []
    taken = await scene.store.items.claim([Want("echo", 20, 0, PROVIDER)], "w1:1", LEASE_MS)
    calls += [scene.site.clock.ms] * len(taken.items)
    for number in range(120):
        found = await paced(scene, 40, store=other if number % 2 else None)
        calls += [scene.site.clock.ms] * len(found)
        await scene.site.advance(1_800)
    in_a_day = [sum(at <= call < at + 86_400_000 for call in calls) for at in calls]
    assert max(in_a_day) == 50
    assert len(calls) >= 100, "the next day allows as many again"


async def test_a_worker_is_told_when_the_day_allows_more(scene: Scene) -> None:
    further = FurtherLimits(requests_per_day=2)
    await scene.store.providers.set_pace(PROVIDER, (None, None), concurrency=100, further=further)
    await priced_job(scene, [1] * 3, budget=None)
    taken = await scene.store.items.claim([Want("echo", 5, 0, PROVIDER)], "w1:1", LEASE_MS)
    assert (len(taken.items), taken.again_ms is not None) == (2, True)
    await scene.site.advance((taken.again_ms or 0) / 1000 - 1)
    assert await paced(scene) == []
    await scene.site.advance(1)
    assert len(await paced(scene)) == 1


async def test_what_one_worker_saw_is_what_all_keep_to(scene: Scene) -> None:
    await priced_job(scene, [1] * 30, budget=None)
    seen = Answers()
    for _ in range(10):
        seen.add(0.1, throttled=True, pause_ms=5_000)
    await scene.store.providers.judge_pace(PROVIDER, seen)
    assert await paced(scene) == []
    await scene.site.advance(5)
    assert len(await paced(scene)) == 7


async def test_tokens_and_money_add_up_in_the_job(scene: Scene) -> None:
    job = await priced_job(scene, [100, 100], budget=None)
    settlements = [decided(item, success(25), scene.site.clock.ms) for item in await paced(scene)]
    await scene.store.items.settle(settlements)
    seen = await scene.job(job)
    assert (seen.input_tokens, seen.output_tokens, seen.spent_micros, seen.reserved_micros) == (14, 6, 50, 0)
    assert seen.state == "completed"


async def test_a_worker_of_one_job_takes_no_item_of_another(scene: Scene) -> None:
    before, own, after = [await priced_job(scene, [1] * 3, budget=100) for _ in range(3)]
    want = Want("echo", 100, 0, PROVIDER, only_job=own)
    taken = (await scene.store.items.claim([want], "w1:1", LEASE_MS)).items
    assert [item.job_id for item in taken] == [own] * 3
    assert (await scene.store.items.claim([want], "w1:1", LEASE_MS)).items == []
    assert [await money(scene, job) for job in (before, own, after)] == [(0, n, 0, False) for n in (0, 3, 0)]


async def test_a_worker_of_one_job_probes_with_items_of_that_job(scene: Scene) -> None:
    _, own, _ = [await priced_job(scene, [1] * items, budget=100) for items in (40, 3, 40)]
    want = Want("echo", 2, 0, PROVIDER, probes=(0.0, 0.99), only_job=own)
    taken = (await scene.store.items.claim([want], "w1:1", LEASE_MS)).items
    assert [item.job_id for item in taken] == [own] * 2


async def test_the_fullest_budget_and_the_jobs_that_stand_still_are_known(scene: Scene) -> None:
    assert await scene.store.job_views.ceilings() == (0, 0)
    await scene.submit()  # without a budget
    await priced_job(scene, [100, 100], budget=400)
    await priced_job(scene, [100, 100], budget=125)
    claimed = await paced(scene)
    assert await scene.store.job_views.ceilings() == (0.8, 0)
    for item in claimed:
        await scene.settle(item, success(None))
    assert await paced(scene) == []
    assert await scene.store.job_views.ceilings() == (0.8, 1)


async def test_absurd_costs_stop_at_a_bound_and_keep_nobody_from_being_settled(scene: Scene) -> None:
    absurd, good = await priced_job(scene, [100] * 3, budget=None), await priced_job(scene, [100] * 2, budget=250)
    claimed = await paced(scene)
    largest = (1 << 62) - 1  # that a handler can report
    told = {absurd: Succeeded("1", Usage(largest, largest, largest)), good: success(40)}
    now = scene.site.clock.ms
    settlements = [decided(item, told[item.job_id], now) for item in claimed]
    for group in (settlements[:1], settlements[1:2], settlements[2:]):  # by the database's sums, and before them
        assert len((await scene.store.items.settle(group)).applied) == len(group)
    seen = await scene.job(absurd)
    assert seen.spent_micros == seen.input_tokens == seen.output_tokens == SUM_MAX
    assert type(seen.spent_micros) is int, "SQLite makes a floating number of a sum that is too large for it"
    assert await money(scene, good) == (80, 0, 0, False)
    assert (await scene.store.job_views.recent("ann")).spent_micros == SUM_MAX + 80


async def test_what_a_deadline_ended_has_no_money_set_aside_when_it_is_tried_again(scene: Scene) -> None:
    chunk = Chunk(0, ["1"], "d", True, [(100, 1, 0)])
    job = (await scene.store.submissions.open(new_job(budget_micros=300, deadline_ms=1_000), chunk)).id
    await paced(scene)
    await scene.site.advance(2)
    await scene.store.sweeps.expire()
    await scene.store.jobs.retry(job, "ann")
    await scene.store.jobs.cancel(job, "ann")
    await scene.store.sweeps.end_stopped(job, StopReason.CANCEL)
    assert await money(scene, job) == (0, 0, 100, False), "it was not given back twice"
