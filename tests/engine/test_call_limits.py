"""Rates and money of users' own handlers, kept by all workers together."""

import asyncio
import json
from typing import Any

import pytest

from backstay.client import Options
from backstay.core.errors import Permanent, UsageError
from backstay.core.money import Period
from backstay.handlers.handler import Context
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
    assert "nobody can tell what this item costs" in str(results[1].message)
    assert provider.calls == 2, "what cannot be weighed is never sent"
    assert (await job.show()).spent_micros == 15_000


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


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"rate": "100"}, "'100' is not a rate"),
        ({"rate": 100}, "100 is not a rate"),
        ({"cost": -0.1}, "a handler's cost must be a number of dollars from 0"),
        ({"tokens_per_minute": 0}, "tokens_per_minute must be above 0"),
        ({"tokens": 5}, "tokens without tokens_per_minute has no effect"),
        ({"tokens_per_minute": 5, "tokens": "many"}, "tokens must be a number or a function"),
    ],
)
async def test_limits_that_mean_nothing_are_refused(make_rig: MakeRig, rules: dict[str, Any], words: str) -> None:
    rig = await make_rig()
    with pytest.raises(UsageError, match=words):
        rig.serves(Provider(), **rules)


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
