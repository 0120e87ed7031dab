"""What users are given for their own tests does what its page says."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from backstay import Backstay, Context, Limits
from backstay.core.errors import UsageError
from backstay.core.states import ItemState
from backstay.testing import (
    Chances,
    EverythingWaits,
    ScriptedProvider,
    VirtualClock,
    VirtualLoop,
    assert_paid_once,
    broken,
    drain,
    hanging,
    lost,
    ok,
    refused,
    rehearsal,
    throttled,
    virtual_time,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def an_app(provider: ScriptedProvider, can_find: bool = True, **rules: Any) -> Backstay:
    app = Backstay("sqlite:///never-made.db")

    @app.handler("work", find=provider.find if can_find else None, **rules)
    async def work(item: str, context: Context) -> str:
        context.guard()
        answer: str = await provider.call(item, context.idempotency_key)
        return answer

    return app


def test_the_example_of_the_page_runs_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(example, str(PAGE), "exec"), names)
    test = names["test_a_lost_reply_is_looked_up_and_never_paid_again"]
    assert callable(test)
    test()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@virtual_time
async def test_two_days_pass_in_no_time() -> None:
    started = time.perf_counter()
    await VirtualClock().sleep(48 * 3600)
    loop = asyncio.get_running_loop()
    assert loop.time() == pytest.approx(48 * 3600)
    assert time.perf_counter() - started < 5


def test_a_wait_that_nothing_can_end_is_told_and_not_waited_for() -> None:
    @virtual_time
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(EverythingWaits):
        waits_for_ever()


@virtual_time
async def test_every_reply_comes_to_the_end_that_it_should() -> None:
    script = [broken(), refused(), throttled(30), lost(), hanging(billed=True), hanging(billed=False), ok("fine")]
    provider = ScriptedProvider(script=script)
    app = an_app(provider)
    async with rehearsal(app) as clock:
        job = await app.submit("work", [str(number) for number in range(7)])
        await drain(app)
        states = [result.state async for result in job.results()]
        assert states == [ItemState.FAILED if number == 1 else ItemState.SUCCEEDED for number in range(7)]
        await assert_paid_once(provider, job)
        assert clock.seconds > 300  # the ones that hang were waited for
        assert provider.sent.total() > len(provider.bill)


@virtual_time
async def test_paying_twice_is_caught() -> None:
    provider = ScriptedProvider(script=[lost()])
    app = an_app(provider, can_find=False)
    async with rehearsal(app):
        job = await app.submit("work", ["x"])
        await drain(app)
        with pytest.raises(AssertionError, match="item 1-0 \\(succeeded\\) was paid 2 times"):
            await assert_paid_once(provider, job)


@virtual_time
async def test_a_provider_that_honours_keys_is_paid_once_without_being_asked() -> None:
    provider = ScriptedProvider(script=[lost(), lost()], deduplicates=True)
    app = an_app(provider, can_find=False)
    async with rehearsal(app):
        job = await app.submit("work", ["x"])
        await drain(app)
        await assert_paid_once(provider, job)
        assert (await job.show()).repeats == 2


@virtual_time
async def test_tasks_are_submitted_polled_and_found() -> None:
    provider = ScriptedProvider(script=[lost()], task_seconds=600, visible_after_seconds=5)
    app = Backstay("sqlite:///never-made.db")

    @app.task("render")
    class Render:
        poll, find, cancel = provider.poll, provider.find_task, provider.cancel

        async def submit(self, item: str, context: Context) -> str:
            context.guard()
            return await provider.submit(item, context.idempotency_key)

    async with rehearsal(app) as clock:
        job = await app.submit("render", ["a", "b", "c"])
        await drain(app)
        assert (await job.show()).succeeded == 3
        await assert_paid_once(provider, job)
        assert clock.seconds > 600


@virtual_time
async def test_a_sync_handler_runs_in_its_thread() -> None:
    app = Backstay("sqlite:///never-made.db")

    @app.handler("upper")
    def upper(text: str) -> str:
        return text.upper()

    async with rehearsal(app):
        job = await app.submit("upper", ["a"])
        await drain(app)
        assert [result.value async for result in job.results()] == ["A"]


def test_seeded_chances_tell_the_same_story_twice() -> None:
    @virtual_time
    async def story() -> list[tuple[str, int]]:
        provider = ScriptedProvider(then=Chances(broken=0.3, lost=0.2, throttled=0.1))
        app = an_app(provider)
        async with rehearsal(app):
            job = await app.submit("work", list(map(str, range(20))))
            await drain(app)
            await assert_paid_once(provider, job)
            return [(result.state, result.attempts) async for result in job.results()]

    assert story() == story()


@pytest.mark.slow
@virtual_time
async def test_a_paused_job_is_left_and_an_endless_one_is_named() -> None:
    provider = ScriptedProvider(then=broken())
    app = an_app(provider, retry="timed")
    app.limits = Limits(item_timeout_seconds=360_000)
    async with rehearsal(app):
        job = await app.submit("work", ["x"])
        with pytest.raises(AssertionError, match="1 \\(0 of 1\\)"):
            await drain(app, hours_max=0.5)
        await job.pause()
        await drain(app)


async def test_outside_virtual_time_a_rehearsal_says_what_to_do() -> None:
    with pytest.raises(UsageError) as refusal:
        async with rehearsal(Backstay("sqlite:///never-made.db")):
            pass
    assert "@virtual_time" in refusal.value.hint


def test_a_virtual_loop_waits_for_a_thread() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(_in_thread()) == "done"


async def _in_thread() -> str:
    def work() -> str:
        time.sleep(0.05)
        return "done"

    return await asyncio.to_thread(work)
