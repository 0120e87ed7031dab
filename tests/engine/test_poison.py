"""Bad items among good ones, and a provider that is really ill: the bad end, the good are hardly delayed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from backstay import Backstay, Context
from backstay.client import Job
from backstay.core.failures import GATEWAY
from backstay.store.item_views import ItemDetail
from backstay.testing import rehearsal, virtual_time
from backstay.testing.rehearsal import drain
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider

COOL_DOWN_SECONDS = 30
EXTRA_CALLS_MAX = 3
ATTEMPTS_MAX = GATEWAY.attempts_max or 0
CODES = {"500": "GW_5XX", "403": "FORBIDDEN", "401": "FORBIDDEN", "402": "FORBIDDEN", "hang": "GW_TIMEOUT"}
STATUS = {"500": 500, "403": 403, "401": 401, "402": 402}


class Shop:
    """A provider that answers by what is asked for: "good", a status, "hang", or nothing at all while it is down."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.calls: Counter[str] = Counter()
        self.done_at: dict[str, float] = {}
        self.down: Callable[[float], int | None] = lambda now: None  # a status for everyone, while it is given
        self._seconds = seconds

    async def call(self, item: dict[str, Any]) -> str:
        loop = asyncio.get_running_loop()
        self.calls[item["name"]] += 1
        status = self.down(loop.time()) or STATUS.get(item["kind"])
        if status is None and item["kind"] == "hang":
            await asyncio.Event().wait()
        await asyncio.sleep(self._seconds if status is None else 0.05)
        if status is not None:
            raise HttpError(status)
        self.done_at[item["name"]] = loop.time()
        return "done"


def an_app(shop: Shop, concurrency: int = 20, **rules: Any) -> Backstay:
    app = Backstay("sqlite:///never-made.db")

    @app.handler("work", provider="shop", retry="gateway", timeout=20, concurrency=concurrency, **rules)
    async def work(item: dict[str, Any], context: Context) -> str:
        return await shop.call(item)

    return app


def items(kinds: Sequence[str], job: str = "") -> list[dict[str, str]]:
    return [{"name": f"{job}{n}", "kind": kind} for n, kind in enumerate(kinds)]


async def ended(job: Job) -> Counter[tuple[str, str | None]]:
    return Counter([(result.state, result.error_code) async for result in job.results()])


async def view(app: Backstay, job: Job, position: int) -> ItemDetail:
    return await (await app.open()).store.item_views.get((job.id << 28) | position, "local")


def spread(kind: str) -> list[str]:
    return [kind if n % 10 == 0 else "good" for n in range(200)]


def at_the_head(kind: str) -> list[str]:
    return [kind] * 20 + ["good"] * 180


PLACES = {"spread": spread, "at the head": at_the_head}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["500", "403", "401", "402", "hang"])
@virtual_time
async def test_a_poisoned_minority_ends_and_the_good_are_delayed_by_one_cool_down_at_most(kind, place) -> None:
    shop = Shop()
    app = an_app(shop)
    async with rehearsal(app):
        job = await app.submit("work", items(PLACES[place](kind)))
        await drain(app)
        assert ((await job.show()).succeeded, (await job.show()).failed) == (180, 20)
        # Twenty at once take ten seconds for the good ones, and a hanging one takes a slot for twenty.
        slots_taken = 2 * 20 if kind == "hang" else 0
        assert max(shop.done_at.values()) <= 15 + slots_taken + COOL_DOWN_SECONDS
        assert (await ended(job))["failed", CODES[kind]] == 20
        assert max(shop.calls.values()) <= ATTEMPTS_MAX + EXTRA_CALLS_MAX


@pytest.mark.parametrize("kind", ["403", "401", "402"])
@virtual_time
async def test_one_refused_request_of_2000_fails_and_holds_nobody(kind) -> None:
    shop = Shop(seconds=0.1)
    app = an_app(shop)
    async with rehearsal(app):
        job = await app.submit("work", items([kind] + ["good"] * 1_999))
        await drain(app)
        assert (await job.show()).succeeded == 1_999
        assert max(shop.done_at.values()) < 30
        assert shop.calls["0"] == 2


@virtual_time
async def test_the_poison_of_one_job_does_not_stop_the_good_items_of_another() -> None:
    shop = Shop()
    app = an_app(shop)
    async with rehearsal(app):
        bad = await app.submit("work", items(["500"] * 10, "bad"))
        good = await app.submit("work", items(["good"] * 150, "good"))
        await drain(app)
        assert (await good.show()).succeeded == 150
        assert (await bad.show()).failed == 10
        assert max(shop.done_at.values()) <= 15 + COOL_DOWN_SECONDS


@virtual_time
async def test_a_dozen_bad_items_alone_end_within_minutes_when_the_others_are_done() -> None:
    """They failed while others succeeded, so that they fail again is no news about the provider."""
    shop = Shop()
    app = an_app(shop)
    async with rehearsal(app) as clock:
        job = await app.submit("work", items(spread("500")))
        await drain(app)
        assert (await job.show()).failed == 20
        assert clock.monotonic() < 120


@pytest.mark.slow
@virtual_time
async def test_an_outage_of_two_hours_fails_nothing_and_burns_next_to_no_attempts() -> None:
    shop = Shop(seconds=0.1)
    shop.down = lambda now: 503 if 60 <= now < 60 + 7_200 else None
    app = an_app(shop, concurrency=10)
    async with rehearsal(app):
        job = await app.submit("work", items(["good"] * 10_000))
        await drain(app)
        assert (await job.show()).succeeded == 10_000
        assert max(shop.done_at.values()) < 60 + 7_200 + 300 + 120, "within one cool-down of its end"
        assert shop.calls.total() - 10_000 < 150


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 402, 403])
@virtual_time
async def test_an_account_that_is_refused_for_an_hour_fails_nothing(status) -> None:
    shop = Shop(seconds=0.1)
    shop.down = lambda now: status if 5 <= now < 3_600 else None
    app = an_app(shop, concurrency=10)
    async with rehearsal(app):
        job = await app.submit("work", items(["good"] * 3_000))
        await drain(app)
        assert (await job.show()).succeeded == 3_000
        assert shop.calls.total() - 3_000 < 150


@pytest.mark.slow
@virtual_time
async def test_a_failed_probe_is_free_three_times_and_then_costs_an_attempt() -> None:
    """However few are left: what fails for every reason there is ends by its attempts, and each call is shown."""
    shop = Shop()
    shop.down = lambda now: 503
    app = an_app(shop)
    async with rehearsal(app):
        job = await app.submit("work", items(["good"] * 12))
        await drain(app, hours_max=48)
        assert (await job.show()).failed == 12
        assert max(shop.calls.values()) <= ATTEMPTS_MAX + EXTRA_CALLS_MAX
        for n in range(12):
            seen = await view(app, job, n)
            assert seen.calls == shop.calls[str(n)]
            assert seen.attempt_count == ATTEMPTS_MAX


@pytest.mark.slow
@virtual_time
async def test_what_is_held_meets_its_deadline_and_its_job_its_limit() -> None:
    shop = Shop()
    shop.down = lambda now: 401
    app = an_app(shop)
    async with rehearsal(app) as clock:
        timed = await app.submit("work", items(["good"] * 5), deadline_seconds=600)
        kept = await app.submit("work", items(["good"] * 5))
        await drain(app, hours_max=60)
        assert (await ended(timed)) == {("failed", "GW_TIMEOUT"): 5}
        assert (await ended(kept)) == {("failed", "GW_TIMEOUT"): 5}
        assert clock.monotonic() <= app.limits.job_timeout_seconds + 60


@pytest.mark.slow
@virtual_time
async def test_a_held_item_that_is_tried_after_its_time_fails_then() -> None:
    shop = Shop()
    shop.down = lambda now: 401
    app = an_app(shop)
    async with rehearsal(app) as clock:
        job = await app.submit("work", items(["good"] * 2))
        await drain(app, hours_max=60)
        assert (await ended(job)) == {("failed", "GW_TIMEOUT"): 2}
        assert clock.monotonic() <= app.limits.item_timeout_seconds + 2 * 300 + 60


async def test_items_that_would_fail_with_the_next_worker_run_one_at_a_time_while_the_others_are_in_the_queue(
    make_rig: MakeRig,
) -> None:
    rig = await make_rig(rescues_max=1)
    leased: list[int] = []

    class Watching(Provider):
        async def call(self, item: Any, context: Context) -> Any:
            if item % 2 == 0:
                rows = rig.site.rows("SELECT id FROM items WHERE leased_by IS NOT NULL AND rescues > 0")
                leased.append(len(await rows))
            return await super().call(item, context)

    provider = rig.serves(Watching())
    job = await rig.submit(range(8))
    await rig.site.rows("UPDATE items SET rescues = 1 WHERE id % 2 = 0")
    async with rig.working(grace=20):
        view = await job.wait(timeout_seconds=60)
    assert (view.succeeded, view.failed, view.repeats, provider.calls) == (8, 0, 0, 8)
    assert leased[0] == 1, "if one of them kills the worker, no other is there"
