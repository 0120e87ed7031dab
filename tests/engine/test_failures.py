"""Who retries, when, and what then: the gateway's errors through the whole engine."""

import asyncio

import pytest

from backstay import Skip
from backstay.core.states import ItemState
from backstay.testing import virtual_time
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider
from tests.engine.virtual import SlowProvider, virtual_rig


async def test_a_400_is_gw_4xx_and_never_retried(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), retry="gateway")
    provider.script = [HttpError(400)]
    job = await rig.submit()
    async with rig.working():
        await job.wait(timeout_seconds=20)
    (result,) = await rig.results(job)
    assert (result.error_code, result.attempts, provider.calls) == ("GW_4XX", 1, 1)


async def test_a_502_is_retried_with_growing_spaces_until_the_attempts_are_spent(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), retry="gateway")
    provider.script = [HttpError(502)] * 3
    job = await rig.submit()
    spaces = []
    async with rig.working():
        for tries in (1, 2):
            await rig.until(lambda tries=tries: provider.calls == tries)
            await rig.in_state(job, "queued")
            item = await rig.item(job)
            assert (item.attempt_count, item.due_at is None) == (tries, False)
            spaces.append((item.due_at or 0) - item.now)
            await rig.site.advance(20)
        view = await job.wait(timeout_seconds=20)
    assert 4_000 <= spaces[0] <= 10_000
    assert 9_000 <= spaces[1] <= 15_000
    (result,) = await rig.results(job)
    assert (view.state, result.error_code, result.attempts, provider.calls) == ("failed", "GW_5XX", 3, 3)
    assert [attempt.provider_status for attempt in await rig.attempts(job)] == [502, 502, 502]


async def test_a_timeout_of_the_gateway_is_retried(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(504), TimeoutError()]
    job = await rig.submit()
    async with rig.working():
        for tries in (1, 2):
            await rig.until(lambda tries=tries: provider.calls == tries)
            await rig.in_state(job, "queued")
            assert (await rig.item(job)).error_code == "GW_TIMEOUT"
            await rig.site.advance(10)
        view = await job.wait(timeout_seconds=20)
    assert (view.state, view.succeeded) == ("completed", 1)
    assert len(provider.bill) == 1, "every try carries the same idempotency key"


async def test_a_retry_after_wins_over_the_formula_and_the_claim_keeps_to_it(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(503, "120")]
    job = await rig.submit()
    await rig.tick()
    await rig.site.advance(110)
    assert (await rig.tick()).claimed == 0
    await rig.site.advance(11)
    assert (await rig.tick()).claimed == 1
    assert (await job.show()).succeeded == 1


async def test_a_retry_after_of_days_is_capped(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(429, "864000")]
    job = await rig.submit()
    await rig.tick()
    item = await rig.item(job)
    assert (item.due_at or 0) - item.now <= 3_600_000


async def test_a_retry_after_counts_against_the_deadline(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(429, "3000")]
    job = await rig.submit(deadline_seconds=60)
    await rig.tick()
    await rig.site.advance(61)
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, result.error_code, provider.calls) == ("failed", "GW_TIMEOUT", 1)


async def test_being_throttled_costs_no_attempt(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider(), retry="none")
    provider.script = [HttpError(429)] * 4
    job = await rig.submit()
    for _ in range(5):
        await rig.tick()
        await rig.site.advance(400)
    (result,) = await rig.results(job)
    assert (result.state, result.attempts, provider.calls) == ("succeeded", 1, 5)


async def test_the_retry_policy_of_a_job_wins_over_its_handlers(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider(), retry="queue")
    provider.script = [HttpError(502)]
    job = await rig.submit(retry="none")
    await rig.tick()
    assert [result.state for result in await rig.results(job)] == ["failed"]


async def test_a_bug_in_the_handler_goes_to_the_dead_letters_at_once(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    provider.script = [KeyError("/srv/app/secret.py")]
    job = await rig.submit()
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, result.error_code, result.attempts) == ("failed", "UNKNOWN", 1)
    assert "/srv" not in (result.message or "")


async def test_an_idempotency_key_is_the_same_for_every_try_and_another_for_every_item(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(502)] * 2
    job = await rig.submit(["same", "same"])
    for _ in range(3):
        await rig.tick()
        await rig.site.advance(60)
    assert (await job.show()).succeeded == 2
    assert sorted(provider.bill.values()) == [2, 2]


async def test_a_handler_may_skip_an_item(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    provider.script = [Skip("nothing to do")]
    job = await rig.submit()
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, result.message) == (ItemState.SKIPPED, "nothing to do")


@pytest.mark.parametrize("status", [408, 425, 429, 503])
async def test_a_4xx_that_only_asks_for_patience_is_retried(make_sqlite_rig: MakeRig, status: int) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(status)]
    job = await rig.submit()
    await rig.tick()
    await rig.site.advance(60)
    await rig.tick()
    assert ((await job.show()).succeeded, provider.calls) == (1, 2)


@virtual_time
async def test_a_retry_is_taken_up_although_the_worker_is_woken_all_the_time() -> None:
    """Every wake-up is a claim, and a claim that makes due items ready is not put off for ever by those in between."""
    async with virtual_rig() as rig:
        provider = rig.takes_tasks(SlowProvider("flaky", fails=["submit"]))
        provider.fails_left = 1
        await rig.submit(provider)
        async with rig.working() as worker:
            async with asyncio.timeout(60):
                while provider.calls("submit") < 2:
                    worker.wake()
                    await rig.clock.sleep(0.05)
        first, second = provider.times("submit")
        assert second - first < 12, "5 s and up to 5 more by chance, and a moment until it is seen"
