"""Rates and money of users' own handlers, kept by all workers together."""

import asyncio
import json
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from backstay.client import Options
from backstay.core.errors import NotAllowed, OutcomeUnknown, Permanent, Skip, Throttled, Transient, UsageError
from backstay.core.ids import item_id
from backstay.core.money import Period
from backstay.core.pace import start_ceiling
from backstay.engine.engine import OWN_CALLS_MAX
from backstay.engine.worker import Worker
from backstay.handlers.handler import Context
from backstay.store import items
from backstay.store.item_views import read_item_story, read_job_story
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider
from tests.engine.rig import Rig


async def calls_per_tick(rig: Rig, provider: Provider, n: int, seconds: float) -> list[int]:
    made = []
    for _ in range(n):
        before = provider.calls
        await rig.tick()
        made.append(provider.calls - before)
        await rig.site.advance(seconds)
    return made


async def test_a_rate_holds_across_ticks_and_nearly_all_of_it_is_used(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), rate="10/min")
    await rig.submit(list(range(40)))
    made = await calls_per_tick(rig, provider, 40, 3.0)
    for start in range(len(made) - 20):
        assert sum(made[start : start + 20]) <= 10, "in any minute"
    assert sum(made) >= 12


async def test_two_ticks_at_once_share_one_rate(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), rate="5/min")
    await rig.submit(list(range(40)))
    await asyncio.gather(rig.tick(), rig.tick())
    assert provider.calls == 1, "a burst is one call, and no time has passed"


async def test_a_budget_is_kept_with_a_number_as_cost(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), cost=0.002)
    job = await rig.submit(list(range(10)), budget_micros=7_000)
    await rig.tick()
    await rig.tick()
    view = await job.show()
    assert (provider.calls, view.spent_micros, view.held_by_budget) == (3, 6_000, True)


async def test_a_job_goes_on_when_its_budget_is_raised(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), cost=0.002)
    job = await rig.submit(list(range(4)), budget_micros=5_000)
    await rig.tick()
    await rig.tick()
    assert (provider.calls, (await job.show()).held_by_budget) == (2, True)
    for bad in (0, -1, True, 1.5, "9000", float("nan"), 1 << 62):
        with pytest.raises(UsageError, match="budget_micros must be a whole number"):
            await job.set_budget(bad)
    await job.set_budget(9_000)
    await rig.tick()
    assert (provider.calls, (await job.show()).state) == (4, "completed")
    without = await rig.submit([1])
    with pytest.raises(NotAllowed, match="has no budget"):
        await without.set_budget(9_000)


async def test_a_cost_may_depend_on_the_payload_and_what_is_reported_wins(make_rig: MakeRig) -> None:
    rig = await make_rig()

    async def convert(pages: int, context: Context) -> int:
        if pages == 3:
            context.usage(cost=0.005)
        return pages

    rig.app.handler("convert", cost=lambda pages: 0.01 * pages)(convert)
    job = await rig.submit([1, 2, 3], "convert", budget_micros=1_000_000)
    await rig.tick()
    assert [(await rig.attempts(job, n))[0].cost_micros for n in range(3)] == [10_000, 20_000, 5_000]
    assert (await job.show()).spent_micros == 35_000


async def test_a_reported_cost_counts_however_the_handler_ends(make_rig: MakeRig) -> None:
    rig = await make_rig()
    ends = [None, Skip("nothing in it"), Permanent("no"), Transient("busy"), OutcomeUnknown("lost"), KeyError("bug")]

    async def convert(number: int, context: Context) -> int:
        context.usage(input_tokens=7, cost=0.005)
        if (end := ends[number]) is not None:
            raise end
        return number

    rig.app.handler("convert", cost=0.01, retry="none")(convert)
    job = await rig.submit(list(range(len(ends))), "convert", budget_micros=1_000_000)
    await rig.tick()
    told = [(await rig.attempts(job, number))[-1] for number in range(len(ends))]
    assert [(one.input_tokens, one.cost_micros) for one in told] == [(7, 5_000)] * len(ends)
    view = await job.show()
    assert (view.skipped, view.spent_micros, view.unknown_micros) == (1, 5_000 * len(ends), 0)
    assert view.input_tokens == 7 * len(ends)


async def test_a_bug_after_the_call_keeps_the_money_as_unknown(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), cost=0.001, retry="none")
    provider.script = [KeyError("answer"), Permanent("not found"), HttpError(404)]
    job = await rig.submit(["bug", "said so", "refused"], budget_micros=10_000)
    await rig.tick()
    view = await job.show()
    assert (view.spent_micros, view.unknown_micros, view.reserved_micros) == (0, 2_000, 0)


async def test_an_item_whose_cost_nobody_can_tell_is_refused_at_submit(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), cost=lambda pages: -1 if pages == 2 else 0.01)
    with pytest.raises(UsageError, match="the cost of an item must be a number of dollars from 0, not -1"):
        await rig.submit([1, 2, 3])
    assert await rig.store.job_views.page("ann") == []
    assert provider.calls == 0


@dataclass
class Scan:
    pages: int


@pytest.mark.parametrize("given", [Scan(3), {"pages": 3}], ids=["an object", "JSON"])
async def test_a_cost_function_gets_what_the_handler_gets(make_sqlite_rig: MakeRig, given: object) -> None:
    """At submit and in the worker, whatever the submitter gave."""
    rig = await make_sqlite_rig()

    @rig.app.handler(cost=lambda scan: 0.01 * scan.pages)
    async def convert(scan: Scan) -> int:
        return scan.pages

    job = await rig.submit([given], "convert", budget_micros=50_000)
    await rig.tick()
    view = await job.show()
    assert (view.succeeded, view.spent_micros) == (1, 30_000)


async def test_one_bad_item_among_good_ones_is_named_and_nothing_is_written(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider(), cost=lambda item: item)
    for given in ([0.1, 0.2, -1], iter([0.1, 0.2, -1])):
        with pytest.raises(UsageError, match="item 2: the cost of an item must be a number of dollars from 0, not -1"):
            await rig.submit(given)
    assert await rig.site.one("SELECT count(*) FROM jobs") == 0


async def test_items_that_came_without_the_code_are_weighed_and_a_bad_one_fails_alone(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), cost=lambda pages: 0.01 / pages)
    client = await rig.app.open()
    job = await client.submit("call", [1, 0, 2], Options(), json.dumps, lambda: None)
    await rig.store.budgets.set("ann", "", Period.MONTH, 1_000_000)
    await rig.tick()
    await rig.tick()
    results = await rig.results(job)
    assert [result.state for result in results] == ["succeeded", "failed", "succeeded"]
    assert "the cost or the tokens of this item cannot be computed" in str(results[1].message)
    assert provider.calls == 2, "what cannot be weighed is never sent"
    assert (await job.show()).spent_micros == 15_000


async def test_a_cost_function_that_exits_or_gives_no_number_fails_its_item_alone(make_rig: MakeRig) -> None:
    def cost(pages: int) -> float:
        if pages == 0:
            sys.exit(3)
        return Decimal("nan") if pages == 1 else 0.01  # type: ignore[return-value]

    rig = await make_rig()
    provider = rig.serves(Provider(), cost=cost)
    client = await rig.app.open()
    job = await client.submit("call", [5, 0, 1, 5], Options(), json.dumps, lambda: None)
    await rig.tick()
    await rig.tick()
    assert [result.state for result in await rig.results(job)] == ["succeeded", "failed", "failed", "succeeded"]
    assert provider.calls == 2


async def test_a_budget_of_the_month_stops_one_owner_and_no_other(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), cost=0.01)
    await rig.store.budgets.set("ann", "", Period.MONTH, 25_000)
    anns = await rig.submit(list(range(10)))
    client = await rig.app.open()
    client.owner = "bob"
    bobs = await rig.submit(list(range(10)))
    client.owner = "ann"
    await rig.tick()
    await rig.tick()
    assert provider.calls == 12
    assert (await rig.store.job_views.get(bobs.id, "bob")).state == "completed"
    view = await anns.show()
    assert (view.succeeded, view.held_by_budget) == (2, True)
    budget = await rig.store.budgets.of_job(anns.id, "ann")
    assert budget is not None
    assert budget.period is Period.MONTH


@pytest.mark.parametrize("by", ["tick", "worker"])
async def test_many_jobs_that_a_budget_holds_do_not_delay_another_owner(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(items, "PICKS_MAX", 1)  # so that few jobs are more than one claim looks at
    rig = await make_rig()
    rig.serves(Provider(), cost=0.01)
    await rig.store.budgets.set("ann", "", Period.MONTH, 5_000)
    for _ in range(60):
        await rig.submit([1])
    client = await rig.app.open()
    client.owner = "bob"
    bobs = await rig.submit([1])
    if by == "tick":
        await rig.tick()
    else:
        worker = Worker(rig.engine(10), idle_seconds=60)
        await worker.start()
        try:
            await bobs.wait(timeout_seconds=5)
        finally:
            await worker.stop(0)
    assert (await bobs.show()).succeeded == 1


async def test_refusals_for_too_many_calls_bring_the_calls_at_once_down(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_concurrency=50)
    provider = rig.serves(Provider(), rate="100000/min", retry="queue")
    provider.script = [HttpError(429) for _ in range(10_000)]
    await rig.submit(list(range(300)))
    for _ in range(6):
        await rig.tick()
        await rig.site.advance(1)
    pace = (await rig.store.providers.paces())["handler:call"]
    assert pace.ceiling < 100
    provider.script = []
    for _ in range(30):
        await rig.tick()
        await rig.site.advance(10)
    assert (await rig.store.providers.paces())["handler:call"].ceiling > pace.ceiling


async def test_calls_that_went_well_beside_refused_ones_do_not_raise_the_ceiling(make_sqlite_rig: MakeRig) -> None:
    rig, others_refused = await make_sqlite_rig(), asyncio.Event()

    async def call(number: int) -> int:
        if number % 2:
            raise Throttled("too many at once", retry_after_seconds=600)
        await others_refused.wait()
        return number

    rig.app.handler("call", cost=0)(call)
    job = await rig.submit(list(range(20)))
    worker = Worker(rig.engine(20), idle_seconds=60)
    await worker.start()

    async def ceiling() -> int:
        await worker.engine.gate.keep_pace()
        return (await rig.store.providers.paces())["handler:call"].ceiling

    async def came_down() -> bool:
        return await ceiling() < start_ceiling(OWN_CALLS_MAX)

    async def ended() -> bool:
        return (await job.show()).succeeded == 10

    try:
        await rig.until(came_down)
        lowered = await ceiling()
        others_refused.set()
        await rig.until(ended)
        assert await ceiling() <= lowered
    finally:
        await worker.stop(0)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"rate": "100"}, "'100' is not a rate"),
        ({"rate": 100}, "100 is not a rate"),
        *(
            ({"rate": rate}, "is not a rate")
            for rate in ("\u0661/min", "\uff11/s", "1.5/s", "-1/s", "1/fortnight", "5 / MIN")
        ),
        ({"cost": -0.1}, "a handler's cost must be a number of dollars from 0"),
        ({"tokens_per_minute": 0}, "tokens_per_minute must be a whole number from 1"),
        ({"tokens": 5}, "tokens without tokens_per_minute has no effect"),
        *(
            ({"tokens_per_minute": 5, "tokens": tokens}, "a handler's tokens must be a whole number from 0")
            for tokens in ("many", -1, 1.5, True)
        ),
    ],
)
async def test_limits_that_mean_nothing_are_refused(make_rig: MakeRig, rules: dict[str, Any], words: str) -> None:
    rig = await make_rig()
    with pytest.raises(UsageError, match=words) as refused:
        rig.serves(Provider(), **rules)
    assert ("is not a rate" in words) == ("write a whole number and a unit" in refused.value.hint)


async def test_a_fallback_costs_what_it_declares_itself(make_rig: MakeRig) -> None:
    rig = await make_rig()
    backup = rig.serves(Provider(), "backup", cost=0.05)
    first = rig.serves(Provider(), cost=0.01, retry="none", fallback="backup")
    first.script = [HttpError(400), "fine"]
    job = await rig.submit(["bad", "good"], budget_micros=1_000_000)
    await rig.tick()
    await rig.tick()
    view = await job.show()
    assert (view.succeeded, backup.calls, view.spent_micros) == (2, 1, 60_000)


@pytest.mark.parametrize(
    "options",
    [{"fallback": "free"}, {"fallback": "backup"}, {"handler_then": "free", "move_seconds": 60}, {}],
    ids=["its fallback", "the fallback of its fallback", "the handler that it moves to", "the fallback in the code"],
)
async def test_a_budget_is_refused_if_another_handler_of_the_job_declares_no_cost(
    make_sqlite_rig: MakeRig, options: dict[str, Any]
) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider(), "free")
    rig.serves(Provider(), "backup", cost=0.01, fallback="free")
    rig.serves(Provider(), cost=0.01, fallback=None if options else "free")
    with pytest.raises(UsageError, match="a budget cannot be enforced for 'free'"):
        await rig.submit(["one"], budget_micros=1_000_000, **options)
    assert await rig.site.rows("SELECT count(*) FROM jobs") == [(0,)]
    assert (await (await rig.submit(["one"], **options)).show()).total == 1


async def test_a_job_is_not_held_while_another_may_give_money_back(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), cost=0.01)
    await rig.store.budgets.set("ann", "", Period.TOTAL, 10_000)
    provider.gate.clear()
    first, second = await rig.submit(["a"]), await rig.submit(["b"])
    async with rig.working():
        await rig.until(lambda: provider.calls == 1)

        async def tried() -> bool:
            return bool(await rig.site.rows("SELECT 1 FROM jobs WHERE short = 1"))

        await rig.until(tried)
        assert not (await second.show()).held_by_budget, "the call under way may cost less"
        provider.gate.set()
        await first.wait()
        assert (await second.wait(timeout_seconds=20)).held_by_budget


async def test_tokens_count_for_items_that_came_without_the_code(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), tokens_per_minute=600, tokens=400)
    client = await rig.app.open()
    await client.submit("call", [1, 2, 3], Options(), json.dumps, lambda: None)
    for _ in range(3):
        await rig.tick()
    assert provider.calls == 1


async def test_an_item_far_heavier_than_the_limit_delays_another_owners_items_by_about_a_minute(
    make_rig: MakeRig,
) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), tokens_per_minute=600)
    await rig.submit(["x" * 400_000])  # 100,000 tokens: nearly three hours of the limit
    client = await rig.app.open()
    client.owner = "bob"
    bobs = await rig.submit(["small"] * 20)
    await rig.tick()
    assert provider.calls == 1, "the heavy item is sent at once, and alone"
    made = await calls_per_tick(rig, provider, 16, 4.5)
    assert sum(made[:13]) == 0, "within 60 s"
    assert sum(made) > 0
    await calls_per_tick(rig, provider, 10, 2.0)
    assert (await rig.store.job_views.get(bobs.id, "bob")).state == "completed"


async def test_an_item_and_its_job_say_that_they_wait_for_the_rate_of_their_handler(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider(), rate="1/min")
    rig.serves(Provider(), "free")
    job = await rig.submit(["a", "b"])
    await rig.tick()
    free, lease_ms = await rig.submit(["c"], "free"), rig.limits.lease_ms

    async def codes(job_id: int) -> list[str]:
        return [reason.code for reason in (await read_job_story(rig.store, job_id, "ann", lease_ms))[1]]

    shown = await read_item_story(rig.store, item_id(job.id, 1), "ann", lease_ms)
    [reason] = [one for one in shown.reasons if one.code == "rate_limit"]
    assert reason.text.startswith("the rate limit of handler 'call' allows the next call at ")
    assert reason.until_at is not None
    assert 50_000 < reason.until_at - shown.view.now <= 61_000
    assert "rate_limit" in await codes(job.id)
    assert "rate_limit" not in await codes(free.id)
    await rig.site.advance(62)
    assert "rate_limit" not in await codes(job.id)


async def test_a_job_that_its_time_limit_ends_before_the_next_period_is_not_told_to_wait(make_rig: MakeRig) -> None:
    for seconds, waits in ((3_600 * 24 * 62, True), (60, False)):
        rig = await make_rig(job_timeout_seconds=seconds)
        rig.serves(Provider(), cost=0.01)
        await rig.store.budgets.set("ann", "", Period.MONTH, 5_000)
        job = await rig.submit(["a"])
        await rig.tick()
        shown = await read_item_story(rig.store, item_id(job.id, 0), "ann", rig.limits.lease_ms)
        _, of_job = await read_job_story(rig.store, job.id, "ann", rig.limits.lease_ms)
        for reasons in (shown.reasons, of_job):
            [reason] = [one for one in reasons if one.code == "budget_reached"]
            assert ("wait until" in reason.text) is waits
            assert ("the job fails at its time limit" in reason.text) is not waits
        await job.cancel()
