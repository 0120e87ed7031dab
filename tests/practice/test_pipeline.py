"""What every imitated API shares knows the shapes of none: another API brings its own, and gets all the faults."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

import backstay.practice
from backstay.clock import Clock
from backstay.practice import Faults
from backstay.practice.bill import Bill, parse_price
from backstay.practice.faults import requested_fault
from backstay.practice.pipeline import LimitUse, PaidCall, Pipeline, ProviderState
from backstay.practice.replies import GeneratedReply, PracticeReply, ProviderError, ReplyStamp

SHARED = ("batch_jobs", "bill", "faults", "pipeline", "replies")


class OtherApi:
    """An API that is not like OpenAI's: errors are lists, keys and ids have headers of their own."""

    def api_key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-other-key")

    def id_headers(self, mark: str) -> Mapping[str, str]:
        return {"other-id": mark}

    def error_reply(self, error: ProviderError) -> PracticeReply:
        return PracticeReply(error.status, json.dumps([error.reason.name]).encode(), error.headers)

    def limit_headers(self, use: LimitUse) -> Mapping[str, str]:
        return {f"other-{kind}": str(use.used[kind]) for kind in use.limits}

    def limit_error(self, use: LimitUse) -> ProviderError:
        return ProviderError(429, f"too many {use.exceeded}", headers={"other-wait": f"{use.wait_seconds:.0f}"})

    def read_call(self, request: web.Request, raw: bytes) -> PaidCall:
        body = json.loads(raw)
        return PaidCall(request.path, body, "ref", "digest", requested_fault(None, body.get("engine")))

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        return GeneratedReply('"fine"', 3, 2, 5)

    def finish(self, call: PaidCall, made: GeneratedReply, charge: Callable[[], None]) -> PracticeReply:
        charge()
        return PracticeReply(200, made.text.encode())


@pytest.fixture
async def state() -> ProviderState:
    return ProviderState(Faults(), Clock(), Bill(parse_price("1/1")))


@pytest.fixture
async def client(state: ProviderState) -> AsyncIterator["TestClient[Any, Any]"]:
    app = web.Application()
    app.router.add_post("/other", Pipeline(state).paid_route(OtherApi(), OtherApi()))
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize(
    ("faults", "engine", "status", "said"),
    [
        ({}, "x", 200, "fine"),
        ({}, "practice-503", 503, ["OTHER"]),
        ({}, "practice-401", 401, ["KEY"]),
        ({}, "practice-404", 404, ["MODEL"]),
        ({}, "practice-429", 429, ["RATE_LIMIT"]),
        ({"quota": 0}, "x", 429, ["QUOTA"]),
        ({"key": "k"}, "x", 401, ["KEY"]),
        ({"rpm": 0}, "x", 429, ["OTHER"]),
    ],
)
async def test_another_api_answers_and_refuses_in_its_own_form(
    state: ProviderState, client: "TestClient[Any, Any]", faults: dict[str, Any], engine: str, status: int, said: Any
) -> None:
    state.change(faults)
    async with client.post("/other", json={"engine": engine}) as reply:
        assert (reply.status, json.loads(await reply.read())) == (status, said)
        assert "other-id" in reply.headers
        assert "x-request-id" not in reply.headers
        assert reply.headers.get("other-wait") == ("60" if faults == {"rpm": 0} else None)
    assert state.bill.charged == (1 if status == 200 else 0)


async def test_another_api_reads_its_own_key_and_shows_its_own_limits(
    state: ProviderState, client: "TestClient[Any, Any]"
) -> None:
    state.change({"key": "k", "rpm": 9})
    async with client.post("/other", json={}, headers={"x-other-key": "k"}) as reply:
        assert (reply.status, reply.headers["other-requests"]) == (200, "1")


def test_what_all_apis_share_imports_none_of_them() -> None:
    folder = Path(backstay.practice.__file__).parent
    assert [
        name
        for name in SHARED
        if re.search(r"practice\.(?:openai|anthropic|mistral|together|presets)", (folder / f"{name}.py").read_text())
    ] == []
