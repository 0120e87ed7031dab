"""Bugs that the simulation or its making found, each as the shortest story that shows it."""

from random import Random

from backstay import Backstay, Context
from backstay.clock import Tasks
from backstay.core.decide import decide
from backstay.core.models import Interrupted
from backstay.core.states import ItemState
from backstay.engine.engine import Engine
from backstay.engine.parts import Parts
from backstay.store.items import Want
from backstay.testing import ScriptedProvider, rehearsal, virtual_time


def an_app(provider: ScriptedProvider) -> Backstay:
    app = Backstay("sqlite:///never-made.db")

    @app.handler("work", find=provider.find)
    async def work(item: str, context: Context) -> str:
        context.guard()
        answer: str = await provider.call(item, context.idempotency_key)
        return answer

    return app


async def a_crew(app: Backstay) -> Engine:
    client = await app.open()
    rng = Random(0)
    engine = Engine(Parts(client.store, app.handlers, app.limits, client.clock, rng, Tasks(), app.bus, "w"), 10)
    await engine.start()
    return engine


@virtual_time
async def test_a_run_cut_off_before_its_first_step_is_handed_back_and_not_held_for_ever() -> None:
    provider = ScriptedProvider()
    app = an_app(provider)
    async with rehearsal(app):
        await app.submit("work", ["x"])
        engine = await a_crew(app)
        await engine.claim_once(1)
        engine.flights.shut_down()
        await engine.stop(0)
        item = await engine.parts.store.item_views.get(1 << 28, "local")
        assert (item.state, item.repeats) == (ItemState.QUEUED, 0)
        assert (engine.flights.running, len(engine.flights), provider.sent.total()) == (0, 0, 0)


@virtual_time
async def test_an_old_run_that_ends_does_not_let_go_of_the_newer_claim_of_its_item() -> None:
    app = an_app(ScriptedProvider())
    async with rehearsal(app):
        await app.submit("work", ["x"])
        engine = await a_crew(app)
        await engine.claim_once(1)
        (newer,) = engine.flights.all()
        engine.flights.drop(newer.item._replace(fence=newer.item.fence - 1))
        assert engine.flights.all() == [newer]
        await engine.stop(60)


@virtual_time
async def test_a_settlement_sent_again_because_its_answer_was_lost_changes_nothing() -> None:
    app = an_app(ScriptedProvider())
    async with rehearsal(app):
        await app.submit("work", ["x"])
        engine = await a_crew(app)
        store = engine.parts.store
        taken = await store.items.claim([Want("work", 1, 10_000)], "w", 90_000)
        engine.parts.remember(taken.jobs)
        (item,) = taken.items
        settlement = decide(item, Interrupted(), engine.parts.plan(item).terms, item.claimed_at, engine.parts.rng)
        settled = [await store.items.settle([settlement]) for _ in range(2)]
        assert [len(answer.applied) for answer in settled] == [1, 0]
        await engine.stop(0)
