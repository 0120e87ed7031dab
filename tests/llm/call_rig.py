"""One handler of the lane `call` over one wire, to a server of any manners."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from backstay.clock import Clock
from backstay.core.models import Claimed, Failed, JobTerms, Succeeded
from backstay.handlers.handler import Context, Surroundings
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import CallHandler
from backstay.llm.lines import LlmRequest, seal
from backstay.practice import Faults, Practice
from tests.llm.odd_servers import OddServer

CHAT = "/v1/chat/completions"
KEY = "sk-practice-0123456789"
BODY = '{"model": "m",  "messages": [{"role":"user","content":"hé"}], "temperature": 0.10}'


class Rig:
    """One handler over one wire; `guard_seconds` below zero stands for a claim that grew too old."""

    def __init__(self, endpoint: Endpoint, guard_seconds: float = 10) -> None:
        self.wire = Wire(endpoint, KEY, connections_max=10)
        self.handler = CallHandler(endpoint, self.wire)
        self._around = Surroundings(Clock(), guard_seconds, lambda *_: None, lambda *_: None)

    def context(self, body: str) -> Context:
        item = Claimed(
            1,
            1,
            self.handler.name,
            "submitting",
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            None,
            0,
            0,
            None,
            None,
            None,
            body,
        )
        clock = self._around.clock
        return Context(item, JobTerms(1, "ann", "seed", None, None), self._around, clock.monotonic(), 60)

    async def run(self, body: str = BODY, url: str = CHAT) -> Succeeded | Failed:
        sealed = seal(LlmRequest("r1", url, body))
        return await self.handler.run(sealed, self.context(sealed))

    def ref(self, body: str = BODY, url: str = CHAT) -> str:
        return self.context(seal(LlmRequest("r1", url, body))).idempotency_key


@asynccontextmanager
async def rig_to(base_url: str, guard_seconds: float = 10, **terms: Any) -> AsyncIterator[Rig]:
    rig = Rig(Endpoint(base_url, **{"price": (150_000, 600_000), **terms}), guard_seconds)
    await rig.wire.open()
    try:
        yield rig
    finally:
        await rig.wire.close()


@asynccontextmanager
async def answered(*answers: Any, **terms: Any) -> AsyncIterator[tuple[Rig, OddServer]]:
    async with OddServer(*answers).serving() as server, rig_to(f"{server.url}/v1", **terms) as rig:
        yield rig, server


@asynccontextmanager
async def practised(faults: Faults | None = None, **terms: Any) -> AsyncIterator[tuple[Rig, Practice]]:
    practice = Practice(faults)
    async with practice.serving() as base_url, rig_to(base_url, **terms) as rig:
        yield rig, practice


def failure_of(outcome: object) -> Any:
    assert isinstance(outcome, Failed)
    return outcome.failure
