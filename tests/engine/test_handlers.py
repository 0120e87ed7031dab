"""Handlers stay plain functions, and a context tells and takes what they need."""

import inspect

import pytest

from backstay import Backstay, Context
from backstay.core.errors import UsageError
from tests.engine.conftest import MakeRig
from tests.engine.provider import Provider


def test_a_handler_stays_the_function_it_was() -> None:
    app = Backstay("sqlite:///unused.db")

    @app.handler("double")
    def double(item: int, context: Context | None = None) -> int:
        """Twice as much."""
        return item * 2

    assert double(21) == 42
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")  # type: ignore[attr-defined]
    assert (
        str(inspect.signature(double)) == "(item: int, context: backstay.handlers.handler.Context | None = None) -> int"
    )


@pytest.mark.parametrize("handler", [lambda: 1, lambda a, b: 1, lambda *items: 1])
def test_a_function_that_takes_no_single_payload_is_refused(handler: object) -> None:
    with pytest.raises(UsageError, match="one payload"):
        Backstay("sqlite:///unused.db").handler("h")(handler)  # type: ignore[call-overload]


def test_two_handlers_of_one_name_are_refused() -> None:
    app = Backstay("sqlite:///unused.db")
    app.handler("h")(lambda item: item)
    with pytest.raises(UsageError, match="two handlers"):
        app.handler("h")(lambda item: item)


async def test_a_context_tells_and_takes_what_a_handler_needs(make_rig: MakeRig) -> None:
    rig = await make_rig()

    @rig.app.handler("knows", timeout=30)
    async def knows(item: str, context: Context) -> dict[str, object]:
        context.progress(150)
        context.usage(input_tokens=7, output_tokens=9, cost_micros=11)
        context.log("a line\nand another")
        return {"item": context.item_id, "attempt": context.attempt, "left": context.seconds_left <= 30}

    job = await rig.submit(["a"], "knows")
    await rig.tick()
    (result,) = await rig.results(job)
    (attempt,) = await rig.attempts(job)
    assert result.value == {"item": f"{job.id}-0", "attempt": 1, "left": True}
    assert (attempt.input_tokens, attempt.output_tokens, attempt.cost_micros) == (7, 9, 11)


async def test_progress_is_stored_while_an_item_runs(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = Provider()
    provider.gate.clear()

    @rig.app.handler("reports")
    async def reports(item: str, context: Context) -> None:
        context.progress(40)
        await provider.call(item, context)

    job = await rig.submit(["a"], "reports")
    async with rig.working(grace=5) as worker:
        await rig.until(lambda: provider.now == 1)
        await worker.engine.executor.store_progress()
        assert (await rig.item(job)).progress == 40
        provider.gate.set()
        await job.wait(timeout_seconds=20)
    assert (await rig.item(job)).progress == 100


async def test_progress_whose_row_was_in_other_hands_is_stored_the_next_time(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = Provider()
    provider.gate.clear()

    @rig.app.handler("reports")
    async def reports(item: str, context: Context) -> None:
        context.progress(40)
        await provider.call(item, context)

    job = await rig.submit(["a"], "reports")
    store_all = rig.store.items.report_progress

    async def store_none(rows: object) -> set[int]:
        return set()

    engine = rig.engine()
    await engine.start()
    await engine.claim_once(1)
    await rig.until(lambda: provider.now == 1)
    rig.store.items.report_progress = store_none
    await engine.executor.store_progress()
    rig.store.items.report_progress = store_all
    await engine.executor.store_progress()
    assert (await rig.item(job)).progress == 40
    provider.gate.set()
    await engine.stop(5)
