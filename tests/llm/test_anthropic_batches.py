"""Anthropic's batches: results in any order, lost creations, what is late or gone, and one bad request among good
ones."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from backstay.client import Job
from backstay.core.errors import Transient
from backstay.core.models import CannotAsk, Failed, Submitted, Succeeded
from backstay.core.states import ItemState
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import Lane
from tests.databases import Site
from tests.llm.lane_rig import HALF, LaneRig, Provider, lane
from tests.practice.visitor import HeldClock

CREATE = "POST /messages/batches"
SHOW = "GET /messages/batches/*"
LIST = "GET /messages/batches"
RESULTS = "GET /messages/batches/*/results"
THEIRS = {"model": "claude-m", "max_tokens": 9, "messages": [{"role": "user", "content": "theirs"}]}
OTHERS = [{"custom_id": "theirs-1", "params": THEIRS}]


def opened(site: Site, provider: Provider | None = None, **more: Any) -> AbstractAsyncContextManager[LaneRig]:
    return lane(site, Lane.BATCH, provider, price=HALF, api="anthropic", **more)


def bodies(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"model": "claude-m", "max_tokens": 40, "messages": [{"role": "user", "content": f"say {n}"}], **more}
        for n in range(count)
    ]


async def ask(rig: LaneRig, asked: list[dict[str, Any]]) -> Job:
    return await rig.request(asked, "/v1/messages")


async def batches(rig: LaneRig) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await rig.ask("GET", "/messages/batches?limit=100"))["data"]
    return found


async def post(rig: LaneRig, requests: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch of somebody else in the same workspace."""
    url = f"{rig.base_url}/messages/batches"
    async with aiohttp.ClientSession() as session, session.post(url, json={"requests": requests}) as reply:
        made: dict[str, Any] = await reply.json(content_type=None)
        return made


async def texts(rig: LaneRig, job: Job) -> list[Any]:
    found = []
    for result in await rig.results(job):
        body = (result.value or {}).get("body", {}) if isinstance(result.value, dict) else {}
        found.append(body["content"][0]["text"].rpartition(" say ")[2] if body.get("content") else None)
    return found


async def lost(rig: LaneRig, job: Job, count: int) -> None:
    """Works until the creation of the batch was not answered."""
    async with rig.working():
        await rig.until(lambda: rig.attempts(job, count - 1))
    assert {(await rig.item(job, n)).state for n in range(count)} == {ItemState.SUBMITTING}


async def test_every_request_gets_its_own_answer_and_pays_half(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        job = await ask(rig, bodies(60))
        view = await rig.done(job)
        assert await texts(rig, job) == [str(n) for n in range(60)]
        assert view.spent_micros == rig.provider.bill.total.cost_micros
        [batch] = await batches(rig)
        assert batch["request_counts"]["succeeded"] == 60
        [result, *_] = await rig.results(job)
        assert result.value is not None
        assert result.value["status_code"] == 200


async def test_models_share_a_batch(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        job = await ask(rig, [*bodies(2), *bodies(2, model="claude-n")])
        assert (await rig.done(job)).succeeded == 4
        assert len(await batches(rig)) == 1


async def pass_time(rig: LaneRig, fact: Callable[[], Any], seconds: float = 5) -> Any:
    """Works until a fact is there, while time passes quickly."""

    async def reached() -> Any:
        await rig.site.advance(seconds)
        found = fact()
        return await found if asyncio.iscoroutine(found) else found

    async with rig.working(concurrency=20_000):
        return await rig.until(reached)


async def done(rig: LaneRig, job: Job) -> Any:
    async def ended() -> Any:
        view = await job.show()
        return view if view.ended else None

    return await pass_time(rig, ended)


async def under_way(rig: LaneRig, job: Job, position: int) -> None:
    async with rig.working():
        await rig.in_state(job, "processing", position)


async def test_one_bad_request_among_good_ones_fails_alone(sqlite_site: Site) -> None:
    asked = bodies(9)
    asked[2]["max_tokens"] = "many"  # refused when it is run
    asked[4]["metadata"] = {"user_id": "practice-529"}  # errored each time
    asked[6]["metadata"] = {"user_id": "practice-nonsense-htmlx1"}  # at first a line of the results that is not JSON
    asked[8]["metadata"] = {"user_id": "practice-duplicate"}  # two lines
    async with opened(sqlite_site) as rig:
        job = await ask(rig, asked)
        view = await done(rig, job)
        states = await rig.states(job)
        assert [n for n, state in enumerate(states) if state != "succeeded"] == [2, 4]
        assert view.repeats == 1
        assert len(await rig.attempts(job, 2)) == 1
        assert len(await rig.attempts(job, 4)) > 1
        assert "max_tokens" in str((await rig.attempts(job, 2))[-1].message)
        assert "overloaded_error" in str((await rig.attempts(job, 4))[-1].message)


async def test_a_request_that_is_refused_with_its_whole_batch_fails_alone(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        wrong = {"type": "invalid_request_error", "message": "requests.2.params.model: unknown"}
        rig.provider.refuse_once = (CREATE, {"type": "error", "error": wrong})
        job = await ask(rig, bodies(5))
        view = await done(rig, job)
        assert [state for state in await rig.states(job)].count("failed") == 1
        assert (view.succeeded, view.repeats) == (4, 0)


async def test_a_batch_that_is_too_large_becomes_smaller_ones(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.bytes_max[CREATE] = 2_000
        job = await ask(rig, bodies(30))
        assert (await done(rig, job)).succeeded == 30
        assert len(await batches(rig)) > 1
        assert rig.provider.bill.bodies_paid_twice == []


async def test_after_a_creation_that_took_too_long_the_next_batch_is_smaller(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        await rig.move_to(replace(rig.endpoint, timeout_seconds=1.0))
        assert isinstance(rig.handler, BatchHandler)
        before = rig.handler._byte_limit.bounds.bytes_max
        rig.provider.before[CREATE] = asyncio.Event().wait  # type: ignore[assignment]
        job = await ask(rig, bodies(8))
        await lost(rig, job, 8)
        assert 0 < rig.handler._byte_limit.bounds.bytes_max < before // 1_000


def references(rig: LaneRig) -> list[str]:
    """Of the requests in the last batch that was asked for."""
    return [each["custom_id"].removeprefix("backstay-") for each in json.loads(rig.provider.bodies[-1])["requests"]]


async def uncertain(rig: LaneRig, ref: str) -> str:
    """Why the provider cannot tell now whether it has a request."""
    with pytest.raises(Transient) as told:
        await rig.handler.ask(ref, rig.site.clock.now_ms() - 60_000)
    return str(told.value)


async def ended_batches(rig: LaneRig) -> list[str]:
    async def all_ended() -> bool:
        return all(batch["processing_status"] == "ended" for batch in await batches(rig))

    await rig.until(all_ended)
    return [batch["id"] for batch in await batches(rig)]


@pytest.mark.slow
async def test_requests_whose_creation_was_not_answered_are_found_by_the_engine(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.lose[CREATE] = 1
        job = await ask(rig, bodies(40))
        await lost(rig, job, 40)
        rig.restart()  # a new process knows nothing
        await post(rig, OTHERS)
        rig.provider.asked.clear()
        view = await done(rig, job)
        assert (view.succeeded, view.repeats, rig.provider.bill.bodies_paid_twice) == (40, 0, [])
        assert rig.provider.asked[CREATE] == 0
        assert rig.provider.asked[RESULTS] <= 3  # each batch once to find ours, and ours to read it


async def test_a_lost_batch_is_found_among_others_when_it_has_ended(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.clock = held = HeldClock()
        rig.provider.lose[CREATE] = 1
        job = await ask(rig, bodies(3))
        await lost(rig, job, 3)
        [first, *_, last] = references(rig)
        await post(rig, OTHERS)
        rig.restart()  # a new process knows nothing
        for _ in range(4):  # much longer than a batch may be missing in the list
            assert "is known when the batch has ended" in await uncertain(rig, first)
            await rig.site.advance(600)
        held.wake(1_000)
        [_, ours] = await ended_batches(rig)
        rig.provider.asked.clear()
        assert await rig.handler.ask(first, 1) == Submitted(f"{ours}/{first}", rig.handler.account)
        assert await rig.handler.ask(last, 1) == Submitted(f"{ours}/{last}", rig.handler.account)
        assert (rig.provider.asked[LIST], rig.provider.asked[RESULTS]) == (1, 2)  # for all requests


async def test_what_is_in_no_batch_is_uncertain_for_as_long_as_the_list_may_lag(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        ref = "0" * 40
        for _ in range(3):
            assert "may not list the newest ones yet" in await uncertain(rig, ref)
            await rig.site.advance(299)
        assert "may not list" in await uncertain(rig, ref)
        await rig.site.advance(4)
        assert await rig.handler.ask(ref, rig.site.clock.now_ms() - 60_000) == CannotAsk()


async def test_three_looks_are_needed_however_much_time_passes(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        for _ in range(2):
            await uncertain(rig, "0" * 40)
            await rig.site.advance(5_000)
        assert await rig.handler.ask("0" * 40, rig.site.clock.now_ms() - 60_000) == CannotAsk()


async def test_a_batch_of_another_size_or_time_cannot_be_the_lost_one(sqlite_site: Site) -> None:
    """The size counts while this process remembers how many requests it sent."""
    async with opened(sqlite_site) as rig:
        rig.provider.clock = HeldClock()
        rig.provider.drop[CREATE] = 1
        job = await ask(rig, bodies(5))
        await lost(rig, job, 5)
        [ref, *_] = references(rig)
        await post(rig, OTHERS)
        assert "may not list" in await uncertain(rig, ref)
        rig.restart()
        assert "is known when the batch has ended" in await uncertain(rig, ref)
        await rig.site.advance(2 * 86_400)
        assert "may not list" in await uncertain(rig, ref)  # since then only


async def test_results_of_others_that_cannot_be_read_do_not_stop_the_look_up_for_ever(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        await post(rig, OTHERS)
        await ended_batches(rig)
        rig.provider.refuse[RESULTS] = 403
        assert "is known when the batch has ended" in await uncertain(rig, "0" * 40)
        await rig.site.advance(901)
        assert "may not list" in await uncertain(rig, "0" * 40)


async def polled(rig: LaneRig, job: Job) -> tuple[str, Any]:
    """A batch under way, and the task of its first request."""
    async with rig.working():
        await rig.in_state(job, "processing", 0)
    task = (await rig.item(job)).provider_task_id
    assert task is not None
    await ended_batches(rig)
    return task, rig.handler


async def test_a_new_batch_that_is_not_shown_yet_is_waited_for(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.refuse[SHOW] = 404
        task, handler = await polled(rig, await ask(rig, bodies(1)))
        with pytest.raises(Transient, match="does not show msgbatch_"):
            await handler.poll([task])
        await rig.site.advance(899)
        with pytest.raises(Transient, match="does not show msgbatch_"):
            await handler.poll([task])
        await rig.site.advance(2)
        handler.clock.sleep = _no_sleep
        answer = (await handler.poll([task]))[task]
        assert isinstance(answer, Failed)
        assert (answer.failure.kind, answer.task_ended) == ("unknown", True)
        del rig.provider.refuse[SHOW]
        assert isinstance((await handler.poll([task]))[task], Succeeded)


async def test_an_answer_about_another_batch_is_none_about_this_one(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        theirs = (await post(rig, OTHERS))["id"]
        task, handler = await polled(rig, await ask(rig, bodies(1)))
        known = {batch["id"]: batch for batch in await batches(rig)}
        [ours] = known.keys() - {theirs}
        rig.provider.spoil[f"/messages/batches/{ours}"] = [lambda _: json.dumps(known[theirs]).encode()]
        with pytest.raises(Transient, match="about another batch"):
            await handler.poll([task])
        assert isinstance((await handler.poll([task]))[task], Succeeded)


async def _no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


async def test_results_that_are_late_are_waited_for(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.refuse[RESULTS] = 404
        task, handler = await polled(rig, await ask(rig, bodies(1)))
        with pytest.raises(Transient, match="are not there yet"):
            await handler.poll([task])
        del rig.provider.refuse[RESULTS]
        assert isinstance((await handler.poll([task]))[task], Succeeded)


async def test_results_that_stay_away_may_have_been_paid(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.refuse[RESULTS] = 404
        task, handler = await polled(rig, await ask(rig, bodies(1)))
        with pytest.raises(Transient):
            await handler.poll([task])
        await rig.site.advance(901)
        answer = (await handler.poll([task]))[task]
        assert isinstance(answer, Failed)
        assert "no longer has the results" in answer.failure.message


async def test_the_url_of_the_results_is_never_called_on_another_host(sqlite_site: Site) -> None:
    """The practice provider names its own address, which is not the one behind the door."""
    async with opened(sqlite_site) as rig:
        task, handler = await polled(rig, await ask(rig, bodies(1)))
        [batch] = await batches(rig)
        assert urlsplit(batch["results_url"]).netloc != urlsplit(rig.base_url).netloc
        before = rig.provider.counts.requests
        assert isinstance((await handler.poll([task]))[task], Succeeded)
        through = rig.provider.asked[RESULTS]
        assert through == 1
        assert rig.provider.counts.requests - before <= 2 + through


async def test_cancelling_the_job_cancels_its_batch_and_what_was_not_run_is_cancelled(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.clock = held = HeldClock()
        job = await ask(rig, bodies(3))
        await under_way(rig, job, 2)
        await job.cancel()
        await pass_time(rig, lambda: rig.provider.asked[f"{SHOW}/cancel".replace("GET", "POST")])
        held.wake(1_000)
        view = await done(rig, job)
        [batch] = await batches(rig)
        assert batch["request_counts"]["canceled"] == 3
        assert (view.cancelled, rig.provider.bill.charged) == (3, 0)


async def test_an_expired_batch_is_sent_again(sqlite_site: Site) -> None:
    async with opened(sqlite_site, Provider(batch_expire=1.0)) as rig:
        job = await ask(rig, bodies(8))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 7))
        rig.provider.change(batch_expire=0.0)
        view = await done(rig, job)
        assert (view.succeeded, view.repeats, rig.provider.bill.charged) == (8, 0, 8)


async def test_an_empty_account_holds_the_batches(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.refuse[CREATE] = 402
        job = await ask(rig, bodies(2))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        assert {(await rig.item(job, n)).state for n in range(2)} == {ItemState.QUEUED}
        assert (await job.show()).failed == 0
