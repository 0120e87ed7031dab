"""The lane `call`: what is sent, what comes of it, and how a stored completion is found again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from backstay.clock import Clock
from backstay.core.errors import (
    BackstayError,
    OutcomeUnknown,
    Permanent,
    ProviderHeld,
    Throttled,
    Transient,
    UsageError,
)
from backstay.core.failures import FailureKind, failure_of_exception
from backstay.core.models import Claimed, JobTerms, Usage
from backstay.core.outcomes import Failed, NeverArrived, Succeeded
from backstay.handlers.context import Context, Surroundings
from backstay.handlers.handler import Handler
from backstay.llm.call import RETRY, CallHandler
from backstay.llm.endpoint import Endpoint
from backstay.llm.envelope import Request, seal
from backstay.llm.wire import Wire
from backstay.practice import Faults, Practice
from tests.llm.odd_servers import OddServer, answer, hangs_up, says_nothing

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
            *(1, 1, self.handler.name, "submitting", 1, 0, 0, 0, 0, 0, 0),
            *(None, 0, 0, None, None, None, body),
        )
        clock = self._around.clock
        return Context(item, JobTerms(1, "ann", "seed", None, None), self._around, clock.monotonic(), 60)

    async def run(self, body: str = BODY, url: str = CHAT) -> Succeeded | Failed:
        sealed = seal(Request("r1", url, body))
        return await self.handler.run(sealed, self.context(sealed))

    def ref(self, body: str = BODY, url: str = CHAT) -> str:
        return self.context(seal(Request("r1", url, body))).idempotency_key


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


async def test_a_handler_says_who_it_is_by_its_endpoint_and_its_key() -> None:
    endpoint = Endpoint("http://x.example/v1", timeout_seconds=42)
    handler: Handler = Rig(endpoint).handler
    assert (handler.name, handler.provider) == (endpoint.name, endpoint.provider)
    assert handler.account
    assert KEY not in repr(vars(handler))
    assert handler.rules.timeout_seconds == 42
    assert handler.askable is False


async def test_a_call_is_sent_as_it_stands_and_its_answer_is_the_result() -> None:
    async with practised() as (rig, practice):
        outcome = await rig.run()
        assert isinstance(outcome, Succeeded)
        result = json.loads(outcome.result)
        assert result["status_code"] == 200
        assert result["body"]["object"] == "chat.completion"
        charge = practice.bill.by_ref[rig.ref()]
        assert outcome.usage == (charge.input_tokens, charge.output_tokens, charge.cost_micros)


async def test_a_body_goes_out_byte_for_byte_under_the_reference_of_its_item() -> None:
    async with answered(answer('{"id":"x"}')) as (rig, server):
        await rig.run()
    assert server.bodies == [BODY.encode()]
    assert server.header("x-client-request-id") == rig.ref()


async def test_any_url_that_a_line_names_is_called() -> None:
    async with answered(answer('{"id":"x"}')) as (rig, server):
        await rig.run("{}", "/v1/moderations")
    assert server.targets == ["/v1/moderations"]


async def test_under_a_claim_that_grew_too_old_nothing_is_sent() -> None:
    async with answered(answer("{}"), guard_seconds=-1) as (rig, server):
        with pytest.raises(Throttled):
            await rig.run()
    assert server.requests == []


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("practice-500", FailureKind.INFRASTRUCTURE),
        ("practice-503", FailureKind.INFRASTRUCTURE),
        ("practice-429", FailureKind.THROTTLED),
        ("practice-429-ms", FailureKind.THROTTLED),
        ("practice-429-date", FailureKind.THROTTLED),
        ("practice-429-bare", FailureKind.THROTTLED),
        ("practice-quota", FailureKind.HELD),
        ("practice-401", FailureKind.HELD),
        ("practice-404", FailureKind.BUSINESS),
        ("practice-400", FailureKind.BUSINESS),
        ("practice-nonsense-html", FailureKind.UNKNOWN),
        ("practice-nonsense-type", FailureKind.UNKNOWN),
        ("practice-nonsense-charset", FailureKind.UNKNOWN),
        ("practice-nonsense-truncated", FailureKind.UNKNOWN),
        ("practice-nonsense-empty", FailureKind.UNKNOWN),
    ],
)
async def test_what_goes_wrong_at_the_provider_is_a_failure_with_its_answer(model: str, kind: FailureKind) -> None:
    async with practised(Faults(retry_after=7)) as (rig, _):
        outcome = await rig.run(BODY.replace('"m"', f'"{model}"'))
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is kind
    assert outcome.reply is not None
    assert json.loads(outcome.reply)["status_code"] == outcome.failure.provider_status
    if kind is FailureKind.THROTTLED and model != "practice-429-bare":
        assert 5_000 <= (outcome.failure.retry_after_ms or 0) <= 7_000


@pytest.mark.parametrize("model", ["practice-cut", "practice-cut-billed", "practice-cut-half", "practice-hang"])
async def test_without_a_whole_answer_the_outcome_is_unknown(model: str) -> None:
    async with practised(timeout_seconds=0.3) as (rig, _):
        with pytest.raises(OutcomeUnknown) as caught:
            await rig.run(BODY.replace('"m"', f'"{model}"'))
    failure = failure_of_exception(caught.value)
    assert (failure.code, failure.kind) == ("GW_TIMEOUT", FailureKind.UNKNOWN)


async def test_every_answer_is_told_to_the_pace() -> None:
    async with answered(answer('{"id":"x"}'), answer("{}", 429, retry_after="9")) as (rig, _):
        told: list[Any] = []
        rig.handler.answers.add = lambda *args: told.append(args)  # type: ignore[method-assign]
        await rig.run()
        await rig.run()
    assert [(throttled, pause_ms) for _, throttled, pause_ms, _ in told] == [(False, 0), (True, 9_000)]
    assert all(0 <= seconds < 5 for seconds, *_ in told)


def test_a_failed_call_is_tried_five_times_each_after_any_part_of_a_growing_wait() -> None:
    assert RETRY.attempts_max == 5
    for attempt, longest_ms in enumerate((1_000, 4_000, 16_000, 60_000)):
        waits = [RETRY.delay_ms(attempt, Random(seed)) for seed in range(300)]
        assert min(waits) < longest_ms * 0.05
        assert longest_ms * 0.95 < max(waits) <= longest_ms


# --- found again after a crash


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ('{"model": "m", "n":1.0}', '{"store":true,"metadata":{"backstay_ref": "REF"},"model": "m", "n":1.0}'),
        ('{"store": false, "n":1.0}', '{"metadata":{"backstay_ref": "REF"},"store": true, "n":1.0}'),
        ('{"metadata": {"k":  "v"} ,"a":1}', '{"store":true,"metadata": {"backstay_ref":"REF","k":  "v"} ,"a":1}'),
        ('{"metadata":null}', '{"store":true,"metadata":{"backstay_ref": "REF"}}'),
        ('{"a":{"store":1}}', '{"store":true,"metadata":{"backstay_ref": "REF"},"a":{"store":1}}'),
        ("{}", '{"store":true,"metadata":{"backstay_ref": "REF"}}'),
    ],
)  # fmt: skip
async def test_a_call_that_is_to_be_found_again_is_stored_under_its_reference(body: str, sent: str) -> None:
    async with answered(answer('{"id":"x"}'), reconcilable=True) as (rig, server):
        assert rig.handler.askable
        await rig.run(body)
    assert server.bodies[0].decode() == sent.replace("REF", rig.ref(body))


@pytest.mark.parametrize("metadata", ['"text"', "[1]", json.dumps({f"k{n}": "v" for n in range(16)})])
async def test_what_cannot_carry_the_reference_is_not_sent(metadata: str) -> None:
    async with answered(answer("{}"), reconcilable=True) as (rig, server):
        with pytest.raises(Permanent, match="could not be found again"):
            await rig.run(f'{{"metadata":{metadata}}}')
    assert server.requests == []


async def test_what_could_not_be_found_again_is_neither_taken_nor_sent() -> None:
    async with answered(answer("{}"), reconcilable=True) as (rig, server):
        with pytest.raises(Permanent, match="only chat completions"):
            await rig.run("{}", "/v1/embeddings")
        with pytest.raises(UsageError, match="only chat completions"):
            rig.handler.check({"custom_id": "a", "url": "/v1/embeddings", "body": {}})
        rig.handler.check({"custom_id": "a", "url": CHAT, "body": {}})
    assert server.requests == []


async def test_a_request_is_checked_before_it_is_queued() -> None:
    async with answered(answer("{}")) as (rig, _):
        rig.handler.check(json.loads(seal(Request("a", "/v1/embeddings", BODY))))
        with pytest.raises(UsageError):
            rig.handler.check({"custom_id": "a"})


async def test_a_completion_whose_answer_was_lost_is_found_with_what_it_used() -> None:
    async with practised(reconcilable=True) as (rig, practice):
        sent = await rig.run()
        found = await rig.handler.ask(rig.ref())
        assert practice.bill.charged == 1
    assert isinstance(sent, Succeeded)
    assert isinstance(found, Succeeded)
    assert found.usage == sent.usage != Usage()
    result, again = json.loads(sent.result)["body"], json.loads(found.result)["body"]
    assert again["choices"] == result["choices"]
    assert again["metadata"] == {"backstay_ref": rig.ref()}


async def test_a_completion_that_was_cut_off_on_its_way_is_found() -> None:
    async with practised(reconcilable=True) as (rig, practice):
        body = BODY.replace('"m"', '"practice-cut-billed"')
        with pytest.raises(OutcomeUnknown):
            await rig.run(body)
        assert isinstance(await rig.handler.ask(rig.ref(body)), Succeeded)
        assert practice.bill.charged == 1


async def test_a_call_that_is_not_there_never_arrived() -> None:
    async with practised(reconcilable=True) as (rig, _):
        await rig.run()
        assert await rig.handler.ask("another") == NeverArrived()


@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (answer('{"error":{"message":"no"}}', 500), Transient),
        (answer('{"error":{"message":"no"}}', 429), Throttled),
        (answer('{"error":{"message":"no"}}', 401), ProviderHeld),
        (answer("not found", 404), Permanent),
        (answer("<html>", 200), OutcomeUnknown),
        (answer("[]", 200), OutcomeUnknown),
        (answer("{}", 200), Transient),
        (answer('{"data":{}}', 200), Transient),
        (answer('{"data":[],"has_more":true}', 200), Transient),
        (answer('{"data":[{"id":"c","metadata":{"backstay_ref":"other"}}]}', 200), Transient),
        (answer('{"data":[{"id":7,"metadata":{"backstay_ref":"ref"}},5,{"id":"c","metadata":[]}]}', 200), Transient),
        (hangs_up, BackstayError),
    ],
)
async def test_what_is_not_certain_is_not_an_answer(odd: Any, error: type[Exception]) -> None:
    async with answered(odd, reconcilable=True) as (rig, _):
        with pytest.raises(error):
            await rig.handler.ask("ref")


async def test_a_completion_that_is_listed_and_cannot_be_fetched_is_not_certain() -> None:
    listed = answer('{"data":[{"id":"a/b","metadata":{"backstay_ref":"ref"}}]}')
    async with answered(listed, answer("gone", 404), reconcilable=True) as (rig, server):
        with pytest.raises(Permanent):
            await rig.handler.ask("ref")
    assert server.targets[1] == f"{CHAT}/a%2Fb"


async def test_a_run_that_is_cut_off_leaves_the_wire_in_order() -> None:
    async with answered(says_nothing, answer('{"id":"x"}')) as (rig, server):
        task = asyncio.ensure_future(rig.run())
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(await rig.run(), Succeeded)
