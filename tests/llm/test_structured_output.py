"""Answers that must fit a schema, in every lane: what does not fit is asked again with the error, paid for and kept."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from backstay.client import Job
from backstay.core.breaker import BreakerState
from backstay.llm.endpoint import Endpoint, Lane, load_endpoint
from backstay.llm.providers import provider_named
from backstay.llm.schemas import schema_of
from tests.databases import Site
from tests.llm.lane_rig import CHAT, RESPONSES, LaneRig, Provider, lane

LANES = [(Lane.CALL, CHAT), (Lane.CALL, RESPONSES), (Lane.BACKGROUND, RESPONSES), (Lane.BATCH, CHAT)]
SCHEMA = schema_of(
    {
        "title": "Mood",
        "type": "object",
        "properties": {"mood": {"enum": ["good", "bad"]}, "score": {"type": "integer"}, "why": {"type": "string"}},
        "required": ["mood", "score"],
        "additionalProperties": False,
    }
)
GOOD, ONCE, NEVER = "m", "practice-invalid-once", "practice-invalid"


def bodies(url: str, *models: str, **more: Any) -> list[dict[str, Any]]:
    """Chat requests or responses, of which no two are the same, with the schema as OpenAI gets it."""
    put = provider_named("openai").answers.put_schema
    made = []
    for n, model in enumerate(models):
        asked = {"messages": [{"role": "user", "content": f"say {n}"}]} if url == CHAT else {"input": f"say {n}"}
        made.append(put(url, {"model": model, **asked, **more}, SCHEMA))
    return made


async def done(rig: LaneRig, job: Job) -> Any:
    """Works until the job has ended, and never waits for a next try: a re-ask has nothing to wait for."""
    async with rig.working(concurrency=500):
        await job.wait(timeout_seconds=30)
        return await job.show()


async def outcomes(rig: LaneRig, job: Job, position: int) -> list[str]:
    return [attempt.outcome for attempt in await rig.attempts(job, position)]


@pytest.mark.parametrize(("kind", "url"), LANES)
async def test_a_bad_answer_is_asked_again_and_one_that_is_never_good_fails_alone(
    leaping_site: Site, kind: Lane, url: str
) -> None:
    async with lane(leaping_site, kind, schema=SCHEMA, reasks=2) as rig:
        job = await rig.request(bodies(url, GOOD, ONCE, NEVER, GOOD), url)
        view = await done(rig, job)
        assert (view.succeeded, view.failed, view.repeats) == (3, 1, 0)
        assert [await outcomes(rig, job, n) for n in range(4)] == [
            ["succeeded"],
            ["invalid", "succeeded"],
            ["invalid", "invalid", "failed"],
            ["succeeded"],
        ]
        assert rig.provider.bill.charged == 7, "each try is paid for, and none twice"
        spent = await rig.site.rows("SELECT cost_micros FROM attempts")
        assert all(row[0] for row in spent)
        assert view.spent_micros == sum(row[0] for row in spent)
        failed = await rig.item(job, 2)
        assert (failed.flaw, failed.error_code, failed.attempt_count) == ("invalid", "GW_4XX", 3)
        last = (await rig.attempts(job, 2))[-1]
        assert json.loads(last.result or "")["status_code"] == 200, "the last answer is kept"
        assert (last.message or "").startswith("$: ")
        known = (await rig.store.providers.holds()).providers.get(rig.handler.provider)
        assert known is None or known.state is BreakerState.CLOSED


async def test_a_retry_by_a_person_starts_afresh(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.CALL, schema=SCHEMA, reasks=1) as rig:
        job = await rig.request(bodies(CHAT, NEVER), CHAT)
        await done(rig, job)
        await job.retry()
        view = await done(rig, job)
        assert view.failed == 1
        assert await outcomes(rig, job, 0) == ["invalid", "failed", "invalid", "failed"]


@asynccontextmanager
async def scripted(*contents: Any) -> AsyncIterator[tuple[str, list[Any]]]:
    """A provider that gives these answers in turn, and what it was asked."""
    asked: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        content = contents[min(len(asked), len(contents)) - 1]
        if isinstance(content, int):
            return web.json_response({"error": {"message": "later"}}, status=content)
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        choice |= {"finish_reason": "length"} if content.endswith("…") else {}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return web.json_response({"model": "m", "choices": [choice], "usage": usage})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", asked
    finally:
        await runner.cleanup()


FITS = '{"mood": "good", "score": 3}'


@asynccontextmanager
async def asked_of(site: Site, *contents: Any, reasks: int = 2) -> AsyncIterator[tuple[LaneRig, list[Any]]]:
    async with lane(site, Lane.CALL, Provider()) as rig, scripted(*contents) as (url, asked):
        await rig.move_to(Endpoint(url, price=(1, 1), schema=SCHEMA.dump(), reasks=reasks))
        yield rig, asked


async def test_the_model_sees_its_last_bad_answer_and_the_error_and_nothing_older(leaping_site: Site) -> None:
    async with asked_of(leaping_site, '{"mood": "odd", "score": 1}', '{"mood": "good"}', FITS) as (rig, asked):
        job = await rig.request(bodies(CHAT, GOOD), CHAT)
        assert (await done(rig, job)).succeeded == 1
        first, second, third = (body["messages"] for body in asked)
        assert len(first) == 1
        assert second[:1] == third[:1] == first
        assert [message["role"] for message in third] == ["user", "assistant", "user"]
        assert second[1]["content"] == '{"mood": "odd", "score": 1}'
        assert second[2]["content"].startswith("These fields failed: $.mood: 'odd' is not one of ['good', 'bad'].")
        assert second[2]["content"].endswith("Return the complete corrected object only.")
        assert third[1]["content"] == '{"mood": "good"}'
        assert "'score' is a required property" in third[2]["content"]
        assert all(body["response_format"] == asked[0]["response_format"] for body in asked)


async def test_another_worker_asks_again_with_the_stored_answer_also_after_a_failure_between(
    leaping_site: Site,
) -> None:
    async with asked_of(leaping_site, "no JSON", 500, FITS) as (rig, asked):
        job = await rig.request(bodies(CHAT, GOOD), CHAT)
        async with rig.working(concurrency=5):
            await rig.until(lambda: _tried(rig, job, 2))
        rig.restart()
        await rig.site.advance(120)
        assert (await done(rig, job)).succeeded == 1
        assert [len(body["messages"]) for body in asked] == [1, 3, 3]
        assert asked[1]["messages"] == asked[2]["messages"]
        assert await outcomes(rig, job, 0) == ["invalid", "retry", "succeeded"]


async def _tried(rig: LaneRig, job: Job, times: int) -> bool:
    return len(await rig.attempts(job, 0)) >= times


async def test_an_answer_that_is_cut_off_fails_and_is_not_asked_again(sqlite_site: Site) -> None:
    async with asked_of(sqlite_site, '{"mood": "go…') as (rig, asked):
        job = await rig.request(bodies(CHAT, GOOD), CHAT)
        view = await done(rig, job)
        assert (view.failed, view.truncated, len(asked)) == (1, 1, 1)
        assert (await rig.item(job, 0)).flaw == "truncated"


async def test_code_fences_do_not_matter_and_a_null_stands_for_what_is_left_out(sqlite_site: Site) -> None:
    async with asked_of(sqlite_site, '```json\n{"mood": "good", "score": 3, "why": null}\n```') as (rig, asked):
        job = await rig.request(bodies(CHAT, GOOD), CHAT)
        assert (await done(rig, job)).succeeded == 1
        assert len(asked) == 1


async def test_without_reasks_the_first_bad_answer_is_final(sqlite_site: Site) -> None:
    async with asked_of(sqlite_site, "no JSON", reasks=0) as (rig, asked):
        job = await rig.request(bodies(CHAT, GOOD), CHAT)
        assert (await done(rig, job)).failed == 1
        assert (len(asked), await outcomes(rig, job, 0)) == (1, ["failed"])


async def test_a_check_of_the_user_refuses_an_answer_and_its_own_mistake_fails_one_item_only(
    leaping_site: Site,
) -> None:
    def check(text: str) -> None:
        value = SCHEMA.parse(text)
        if value["score"] == 99:
            raise KeyError("score")
        assert value["score"] < 5, "the score is too high"

    high, broken = '{"mood": "good", "score": 7}', '{"mood": "good", "score": 99}'
    async with asked_of(leaping_site, high, FITS, broken, FITS) as (rig, asked):
        rig.handler.use_check(check)
        for content in ("succeeded", "failed", "succeeded"):
            job = await rig.request(bodies(CHAT, GOOD), CHAT)
            await done(rig, job)
            assert (await rig.item(job, 0)).state == content
        assert len(asked) == 4
        assert "$: the score is too high" in asked[1]["messages"][-1]["content"]
        [(message,)] = await rig.site.rows("SELECT message FROM attempts WHERE outcome = 'failed'")
        assert message == "the check of the answer raised KeyError: 'score'"


def test_the_terms_of_earlier_runs_are_the_same_without_a_schema() -> None:
    plain = Endpoint("http://127.0.0.1:9/v1")
    strict = Endpoint("http://127.0.0.1:9/v1", schema=SCHEMA.dump(), reasks=2)
    assert "schema" not in plain.dump()
    assert "reasks" not in plain.dump()
    assert [load_endpoint(one.dump()) for one in (plain, strict)] == [plain, strict]


@pytest.mark.slow
async def test_asking_again_heals_the_answers_that_are_broken_once(leaping_site: Site) -> None:
    async with lane(leaping_site, Lane.CALL, schema=SCHEMA, reasks=2) as rig:
        job = await rig.request(bodies(CHAT, *[ONCE] * 300, NEVER), CHAT)
        view = await done(rig, job)
        assert (view.succeeded, view.failed) == (300, 1)
        assert rig.provider.bill.charged == 300 * 2 + 3
