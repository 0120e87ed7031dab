"""Answers that are not whole, in every lane: counted apart, and failures for who wants it so, at nobody else's cost."""

import json
from typing import Any

import pytest
from aiohttp import web

from backstay.client import Job
from backstay.core.breaker import BreakerState
from backstay.core.states import TERMINAL, ItemState, JobState
from backstay.llm.endpoint import Endpoint, Lane, load_endpoint
from tests.databases import Site
from tests.llm.lane_rig import CHAT, PRICE, RESPONSES, LaneRig, chats, inputs, lane

LANES = [(Lane.CALL, CHAT), (Lane.CALL, RESPONSES), (Lane.BACKGROUND, RESPONSES), (Lane.BATCH, CHAT)]
TRIES = 5


def requests(url: str, whole: int, cut: int) -> list[dict[str, Any]]:
    """Some that are answered as a whole, and some with a bound that cuts their answers off."""
    if url == CHAT:
        return [*chats(whole), *chats(cut, max_tokens=1, seed=1)]
    return [*inputs(whole), *inputs(cut, max_output_tokens=1, temperature=0.5)]


async def done(rig: LaneRig, job: Job) -> Any:
    """Works until the job has ended, without waiting for the next try of anything."""
    async with rig.working(concurrency=100):

        async def ended() -> bool:
            # Time must not move while a call is under way, or could begin at this moment.
            rows = await rig.site.rows("SELECT state, due_at FROM items")
            waiting = [due_at for state, due_at in rows if state == ItemState.QUEUED]
            under_way = any(state not in (ItemState.QUEUED, *TERMINAL) for state, _ in rows)
            if waiting and not under_way and all(due_at and due_at > rig.site.clock.now_ms() for due_at in waiting):
                await rig.site.advance(60)
            return (await job.show()).ended

        await rig.until(ended)
        return await job.show()


@pytest.mark.parametrize(("kind", "url"), LANES)
async def test_an_answer_that_is_cut_off_is_a_success_and_counted(leaping_site: Site, kind: Lane, url: str) -> None:
    async with lane(leaping_site, kind) as rig:
        job = await rig.request(requests(url, 3, 2), url)
        view = await done(rig, job)
        assert (view.state, view.succeeded, view.failed) == (JobState.COMPLETED, 5, 0)
        assert (view.truncated, view.refused, view.filtered) == (2, 0, 0)
        assert [(await rig.item(job, n)).flaw for n in range(5)] == [None, None, None, "truncated", "truncated"]
        assert rig.provider.bill.charged == 5


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "url"), LANES)
async def test_who_wants_no_answer_that_is_cut_off_has_it_asked_for_anew(
    leaping_site: Site, kind: Lane, url: str
) -> None:
    async with lane(leaping_site, kind, fail_on=("truncated",)) as rig:
        job = await rig.request(requests(url, 3, 12), url)
        view = await done(rig, job)
        assert (view.succeeded, view.failed, view.truncated, view.repeats) == (3, 12, 12, 0)
        assert rig.provider.bill.charged == 3 + 12 * TRIES, "each try is paid for"
        tries = await rig.attempts(job, 14)
        assert [attempt.outcome for attempt in tries] == ["retry"] * (TRIES - 1) + ["failed"]
        assert all(attempt.cost_micros for attempt in tries)
        assert view.spent_micros == sum([row[0] for row in await rig.site.rows("SELECT cost_micros FROM attempts")])
        assert json.loads(tries[-1].result or "")["status_code"] == 200, "the last answer is kept"
        item = await rig.item(job, 14)
        assert (item.attempt_count, item.flaw, item.error_code) == (TRIES, "truncated", "GW_4XX")
        known = (await rig.store.providers.holds()).providers.get(rig.handler.provider)
        assert known is None or known.state is BreakerState.CLOSED, "the provider is not ill for it"


async def test_an_answer_with_a_flaw_to_a_probe_costs_an_attempt_and_shows_that_the_provider_is_well(
    sqlite_site: Site,
) -> None:
    async with lane(sqlite_site, Lane.CALL, fail_on=("truncated",)) as rig:
        rig.provider.refuse["POST /chat/completions"] = 500
        job = await rig.request(requests(CHAT, 0, 12))

        async def is_open() -> bool:
            known = (await rig.store.providers.holds()).providers.get(rig.handler.provider)
            return known is not None and known.state is BreakerState.OPEN

        async with rig.working():
            await rig.until(is_open)
        del rig.provider.refuse["POST /chat/completions"]
        await rig.site.advance(60)
        await done(rig, job)
        assert not await is_open()
        paid = await rig.site.rows("SELECT item_id, number FROM attempts WHERE cost_micros IS NOT NULL")
        assert len(paid) == len(set(paid)) == rig.provider.bill.charged


async def test_every_try_has_a_name_of_its_own_so_that_no_answer_is_repeated(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, fail_on=("truncated",)) as rig:
        await done(rig, await rig.request(inputs(1, max_output_tokens=1), RESPONSES))
        names = [json.loads(body)["metadata"]["backstay_ref"] for body in rig.provider.bodies]
        assert len(names) == len(set(names)) == TRIES


async def test_only_the_flaws_that_are_named_are_failures(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.CALL, fail_on=("refused", "filtered")) as rig:
        view = await done(rig, await rig.request(requests(CHAT, 1, 1), CHAT))
        assert (view.succeeded, view.failed, view.truncated) == (2, 0, 1)


def test_the_terms_of_runs_that_began_before_there_were_flaws_are_the_same() -> None:
    plain, strict = Endpoint("http://127.0.0.1:9/v1"), Endpoint("http://127.0.0.1:9/v1", fail_on=("truncated",))
    assert "fail_on" not in plain.dump()
    assert plain.name != strict.name
    assert plain.provider == strict.provider, "breaker and pace are the provider's"
    assert [load_endpoint(one.dump()) for one in (plain, strict)] == [plain, strict]


SAID = {
    "whole": {"message": {"role": "assistant", "content": "Hi", "refusal": None}, "finish_reason": "stop"},
    "refused": {"message": {"role": "assistant", "content": None, "refusal": "No."}, "finish_reason": "stop"},
    "filtered": {"message": {"role": "assistant", "content": ""}, "finish_reason": "content_filter"},
}


async def say(request: web.Request) -> web.Response:
    """Says what it is asked to say."""
    wanted = (await request.json())["messages"][0]["content"]
    usage = {"prompt_tokens": 1_000, "completion_tokens": 1_000, "total_tokens": 2_000}
    return web.json_response({"model": "m", "choices": [{"index": 0, **SAID[wanted.split()[0]]}], "usage": usage})


async def test_refusals_and_filtered_answers_are_counted_and_failed_apart(leaping_site: Site) -> None:
    application = web.Application()
    application.router.add_post(CHAT, say)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    words = ["whole", "refused", "filtered", "refused", "whole"]
    bodies = [{"model": "m", "messages": [{"role": "user", "content": f"{word} {n}"}]} for n, word in enumerate(words)]
    try:
        async with lane(leaping_site, Lane.CALL) as rig:
            for fail_on, failed in (((), 0), (("filtered",), 1), (("refused", "filtered"), 3)):
                url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
                await rig.move_to(Endpoint(url, price=PRICE, fail_on=fail_on))
                view = await done(rig, await rig.request(bodies))
                assert (view.succeeded, view.failed) == (5 - failed, failed)
                assert (view.truncated, view.refused, view.filtered) == (0, 2, 1)
    finally:
        await runner.cleanup()


async def test_a_completion_that_is_found_again_is_judged_by_its_flaw_too(sqlite_site: Site) -> None:
    """A call whose answer was lost: what the provider has stored is a failure like any other."""
    async with lane(sqlite_site, Lane.CALL, fail_on=("truncated",)) as rig:
        await rig.move_to(Endpoint(rig.base_url, price=PRICE, reconcilable=True, fail_on=("truncated",)))
        rig.provider.lose["POST /chat/completions"] = 1
        job = await rig.request(chats(1, max_tokens=1))

        async def given_up() -> bool:
            item = await rig.item(job)
            return item.state == "submitting" and item.leased_by is None

        async with rig.working():
            await rig.until(given_up)
        await rig.site.advance(1_000)
        view = await done(rig, job)
        assert (view.failed, view.truncated, view.repeats) == (1, 1, 0)
        assert rig.provider.bill.charged == TRIES - 1, "the look-up took one of the tries"
        assert rig.provider.asked["GET /chat/completions"] >= 1
