"""The lane `call` at a provider that keeps completions: each is sent under its reference and found again by it."""

import json
from typing import Any

import pytest

from backstay.core.errors import (
    BackstayError,
    OutcomeUnknown,
    Permanent,
    ProviderHeld,
    Throttled,
    Transient,
    UsageError,
)
from backstay.core.models import CannotAsk, NeverArrived, Succeeded, Usage
from backstay.llm.lines import LlmRequest
from backstay.llm.providers.openai.stored_calls import StoredCompletions
from tests.llm.call_rig import BODY, CHAT, answered, practised
from tests.llm.odd_servers import answer, hangs_up


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


async def test_a_reference_that_the_user_wrote_elsewhere_does_not_make_a_call_findable() -> None:
    async with answered(answer("{}"), reconcilable=True) as (rig, _):
        stored = StoredCompletions(rig.handler.channel)
        with pytest.raises(Permanent, match="could not be found again"):
            stored.body(LlmRequest("r1", CHAT, '{"user":"REF","metadata":[1]}'), "REF")


async def test_what_could_not_be_found_again_is_neither_taken_nor_sent() -> None:
    async with answered(answer("{}"), reconcilable=True) as (rig, server):
        with pytest.raises(Permanent, match="only chat completions"):
            await rig.run("{}", "/v1/embeddings")
        with pytest.raises(UsageError, match="only chat completions"):
            rig.handler.check({"custom_id": "a", "url": "/v1/embeddings", "body": {}})
        rig.handler.check({"custom_id": "a", "url": CHAT, "body": {}})
    assert server.requests == []


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
        (answer("bad", 400), Permanent),
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


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_service_without_a_list_of_completions_cannot_be_asked(status: int) -> None:
    async with answered(answer("no such path", status), reconcilable=True) as (rig, _):
        assert await rig.handler.ask("ref") == CannotAsk()


async def test_a_completion_that_is_listed_and_cannot_be_fetched_is_not_certain() -> None:
    listed = answer('{"data":[{"id":"a/b","metadata":{"backstay_ref":"ref"}}]}')
    async with answered(listed, answer("gone", 404), reconcilable=True) as (rig, server):
        with pytest.raises(Permanent):
            await rig.handler.ask("ref")
    assert server.targets[1] == f"{CHAT}/a%2Fb"
