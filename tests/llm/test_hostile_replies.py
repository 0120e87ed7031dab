"""One hostile reply among good ones: it costs what was set aside for it, and changes nothing for anybody else."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from backstay.client import Options
from backstay.handlers.handler import Weighed
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.lines import LlmRequest, seal
from tests.databases import Site
from tests.llm.lane_rig import CHAT, PRICE, LaneRig, lane
from tests.llm.test_flawed_answers import done

GOOD, SET_ASIDE, GOOD_MICROS = 30, 5_000, 750
USED = {"prompt_tokens": 1_000, "completion_tokens": 1_000, "total_tokens": 2_000}

PADDING = "x" * 80
HOSTILE: dict[str, Callable[[], str]] = {
    "tokens": lambda: '{"prompt_tokens": 1, "completion_tokens": ' + str(10**30) + "}",
    "digits": lambda: '{"prompt_tokens": 1, "completion_tokens": ' + "9" * 10_000 + "}",
    "negative": lambda: '{"prompt_tokens": -5, "completion_tokens": -5, "total_tokens": -10}',
    "cost below zero": lambda: '{"prompt_tokens": -5, "completion_tokens": 1, "cost": -1}',
    "cost of a planet": lambda: '{"completion_tokens": 1, "cost": 1e30, "cost_in_usd_ticks": ' + str(10**40) + "}",
    "not a number": lambda: '{"prompt_tokens": 1, "completion_tokens": 1, "cost": NaN}',
    "20 MB": lambda: '{"total_tokens": 1' + "".join(f',"part_{n}_{PADDING}": {n}' for n in range(200_000)) + "}",
}


@asynccontextmanager
async def answering(hostile: str) -> AsyncIterator[str]:
    """A provider that answers one request as no provider should."""

    async def answer(request: web.Request) -> web.Response:
        asked = (await request.json())["messages"][0]["content"]
        used = hostile if asked == "hostile" else str(USED).replace("'", '"')
        choice = '{"message": {"content": "Hi"}, "finish_reason": "stop"}'
        said = f'{{"model": "m", "choices": [{choice}], "usage": {used}}}'
        return web.Response(text=said, content_type="application/json")

    application = web.Application()
    application.router.add_post(CHAT, answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def submit(rig: LaneRig, asked: list[str], budget: int) -> Any:
    def weighed() -> Any:
        for n, content in enumerate(asked):
            body = f'{{"model": "m", "messages": [{{"role": "user", "content": "{content}"}}]}}'
            yield Weighed(seal(LlmRequest(f"r{n}", CHAT, body)), SET_ASIDE, 10)

    client = await rig.app.open()
    return await client.submit(rig.handler.name, weighed(), Options(budget_micros=budget), str, lambda: None)


@pytest.mark.parametrize("kind", HOSTILE)
async def test_one_hostile_reply_changes_nothing_for_other_items(leaping_site: Site, kind: str) -> None:
    async with answering(HOSTILE[kind]()) as url, lane(leaping_site, Lane.CALL) as rig:
        await rig.move_to(Endpoint(url, price=PRICE))
        budget = GOOD * GOOD_MICROS + 6 * SET_ASIDE
        mixed = await submit(
            rig, [f"good {n}" for n in range(GOOD // 2)] + ["hostile"] + ["good"] * (GOOD // 2), budget
        )
        other = await submit(rig, ["good"] * GOOD, GOOD * SET_ASIDE)
        view = await done(rig, mixed)
        beside = await done(rig, other)
        assert (beside.succeeded, beside.spent_micros, beside.unknown_micros) == (GOOD, GOOD * GOOD_MICROS, 0)
        assert view.succeeded + view.failed == GOOD + 1
        assert view.succeeded >= GOOD
        assert view.used_micros <= budget
        known = view.spent_micros - GOOD * GOOD_MICROS
        assert (known, view.unknown_micros) == ((SET_ASIDE, 0) if view.failed == 0 else (0, 5 * SET_ASIDE))
        assert view.reserved_micros == 0
        for column in ("spent_micros", "reserved_micros", "unknown_micros", "input_tokens", "output_tokens"):
            assert all(
                type(row[0]) is int and 0 <= row[0] < 10**9 for row in await rig.site.rows(f"SELECT {column} FROM jobs")
            )
