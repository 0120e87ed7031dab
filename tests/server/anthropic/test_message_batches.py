"""Anthropic's own client, unmodified and strict, at a real service with the practice provider behind it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types.messages import MessageBatch
from anthropic.types.messages.batch_create_params import Request

from backstay.app import Backstay
from backstay.llm.endpoint import Endpoint
from backstay.practice import Faults, Practice
from backstay.server.anthropic.batches import result_line
from backstay.server.anthropic.intake import RequestCutter
from backstay.server.problems import Problem
from backstay.server.service import ServiceOptions
from backstay.store.keys import Role
from tests.server.rig import Rig, rigged

pytestmark = pytest.mark.slow

BATCHES = "/v1/messages/batches"
WAIT_SECONDS = 30


def request(custom_id: str, **more: Any) -> Request:
    messages = [{"role": "user", "content": f"Say {custom_id}"}]
    params: Any = {"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": messages, **more}
    return {"custom_id": custom_id, "params": params}


class MessageDesk:
    def __init__(self, rig: Rig, practice: Practice) -> None:
        self.rig = rig
        self.practice = practice
        self.clients: list[anthropic.AsyncAnthropic] = []

    def client(self, owner: str = "ada") -> anthropic.AsyncAnthropic:
        key = self.rig.keys[owner, Role.WRITE]
        made = anthropic.AsyncAnthropic(
            base_url=self.rig.url, api_key=key, max_retries=0, _strict_response_validation=True
        )
        self.clients.append(made)
        return made

    async def create(self, *requests: Request, owner: str = "ada") -> MessageBatch:
        return await self.client(owner).messages.batches.create(requests=list(requests))

    async def ended(self, batch: MessageBatch) -> MessageBatch:
        client = self.client()
        async with asyncio.timeout(WAIT_SECONDS):
            while batch.processing_status != "ended":
                assert batch.request_counts.succeeded == batch.request_counts.errored == 0
                await asyncio.sleep(0.01)
                batch = await client.messages.batches.retrieve(batch.id)
        return batch

    async def results(self, batch: MessageBatch) -> dict[str, Any]:
        found = [each async for each in await self.client().messages.batches.results(batch.id)]
        assert len({each.custom_id for each in found}) == len(found)
        return {each.custom_id: each.result for each in found}


@asynccontextmanager
async def opened(url: str, data: Path, faults: Faults | None = None, **options: Any) -> AsyncIterator[MessageDesk]:
    practice = Practice(faults or Faults())
    async with practice.serving() as base_url:
        upstream = Endpoint(base_url, key_env="ANTHROPIC_API_KEY", api="anthropic")
        given = ServiceOptions(**{"upstream": upstream, "concurrency": 20, **options})
        async with rigged(url, data, Backstay(url), given) as rig:
            desk = MessageDesk(rig, practice)
            try:
                yield desk
            finally:
                await asyncio.gather(*(client.close() for client in desk.clients))


@pytest.fixture
async def desk(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[MessageDesk]:
    async with opened(sqlite_file_url, tmp_path / "data") as made:
        yield made


async def test_the_official_client_runs_a_batch_from_its_creation_to_its_deletion(
    database_url: str, tmp_path: Path
) -> None:
    async with opened(database_url, tmp_path / "data") as desk:
        batch = await desk.create(*(request(f"r{n}") for n in range(5)))
        assert (batch.processing_status, batch.request_counts.processing, batch.results_url) == ("in_progress", 5, None)
        assert (batch.expires_at - batch.created_at).total_seconds() == 86_400
        done = await desk.ended(batch)
        assert (done.request_counts.succeeded, done.request_counts.processing) == (5, 0)
        assert done.ended_at is not None
        found = await desk.results(done)
        assert {key: result.type for key, result in found.items()} == {f"r{n}": "succeeded" for n in range(5)}
        assert found["r0"].message.content[0].text
        assert found["r0"].message.usage.output_tokens > 0
        assert desk.practice.counts.calls == 5
        batches = desk.client().messages.batches
        assert (await batches.delete(done.id)).type == "message_batch_deleted"
        with pytest.raises(anthropic.NotFoundError):
            await batches.retrieve(done.id)
        assert (await desk.rig.ada.get("/v1/files")).json["data"] == [], "its requests and results are gone"


async def test_one_poison_request_among_good_ones_fails_alone(desk: MessageDesk) -> None:
    without: Any = {"custom_id": "endless", "params": {"model": "claude-sonnet-4-5", "messages": []}}
    poison: Any = {"custom_id": "poison", "params": {"nonsense": [[[{"a": "\ud800"}]]]}}
    given = [request("a"), poison, without, request("missing", model="practice-404"), request("b")]
    made = (await desk.rig.ada.post(BATCHES, data=json.dumps({"requests": given}))).json  # half a character, escaped
    batch = await desk.ended(await desk.client().messages.batches.retrieve(made["id"]))
    found = await desk.results(batch)
    assert {key: result.type for key, result in found.items()} == {
        "a": "succeeded",
        "poison": "errored",
        "endless": "errored",
        "missing": "errored",
        "b": "succeeded",
    }
    assert found["poison"].error.error.type == "invalid_request_error"
    assert found["missing"].error.error.type == "not_found_error"
    assert (batch.request_counts.succeeded, batch.request_counts.errored) == (2, 3)


async def test_another_owner_sees_nothing(desk: MessageDesk) -> None:
    done = await desk.ended(await desk.create(request("a")))
    others = desk.client("bob").messages.batches
    assert [batch.id async for batch in others.list()] == []
    for act in (others.retrieve, others.cancel, others.delete, others.results):
        with pytest.raises(anthropic.NotFoundError):
            await act(done.id)
    with pytest.raises(anthropic.NotFoundError):
        await others.list(after_id=done.id)
    assert (await desk.rig.bob.get(f"{BATCHES}/{done.id}/results")).status == 404
    assert len(await desk.results(done)) == 1


async def test_the_key_may_come_as_x_api_key_and_a_wrong_one_is_told_in_anthropics_form(desk: MessageDesk) -> None:
    nobody = desk.rig.holder(None)
    key = desk.rig.keys["ada", Role.READ]
    assert (await nobody.get(BATCHES, headers={"x-api-key": key})).status == 200
    refused = await nobody.get(BATCHES, headers={"x-api-key": f"bks_{'0' * 12}_{'x' * 43}"})
    assert (refused.status, refused.json["type"], refused.json["error"]["type"]) == (
        401,
        "error",
        "authentication_error",
    )
    assert refused.headers["request-id"].startswith("req_")
    with pytest.raises(anthropic.PermissionDeniedError):
        await anthropic.AsyncAnthropic(base_url=desk.rig.url, api_key=key).messages.batches.create(
            requests=[request("a")]
        )


async def test_the_list_goes_both_ways_and_has_message_batches_only(desk: MessageDesk) -> None:
    made = [await desk.create(request("a", metadata={"user_id": str(n)})) for n in range(5)]
    batches = desk.client().messages.batches
    listed = [batch.id async for batch in batches.list(limit=2)]
    assert sorted(listed) == sorted(batch.id for batch in made)
    newer = await batches.list(before_id=listed[3], limit=2)
    assert ([batch.id for batch in newer.data], newer.has_more) == (listed[1:3], True)
    other = await desk.rig.ada.get("/v1/batches")
    assert {batch["id"] for batch in other.json["data"]} == set(listed), "OpenAI's list has all of an owner's work"


async def test_a_batch_is_cancelled_and_says_so_for_each_request(sqlite_file_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_file_url, tmp_path / "data", works=False) as desk:
        batch = await desk.create(request("a"), request("b"))
        batches = desk.client().messages.batches
        with pytest.raises(anthropic.BadRequestError, match="has not ended"):
            await batches.delete(batch.id)
        assert (await desk.rig.ada.get(f"{BATCHES}/{batch.id}/results")).status == 400
        assert (await batches.cancel(batch.id)).processing_status in ("canceling", "ended")
        done = await desk.ended(batch)
        assert done.request_counts.canceled == 2
        assert {key: result.type for key, result in (await desk.results(done)).items()} == {
            "a": "canceled",
            "b": "canceled",
        }
        with pytest.raises(anthropic.BadRequestError, match="cannot be canceled"):
            await batches.cancel(batch.id)
        await batches.delete(batch.id)
        assert desk.practice.counts.calls == 0


BAD = {
    b"": "not valid JSON",
    b"[]": "the body must be an object",
    b"{}": "requests: Field required",
    b'{"requests": 5}': "requests: Input should be a valid list",
    b'{"requests": []}': "at least 1 item",
    b'{"model": "m", "requests": []}': "model: Extra inputs are not permitted",
    b'{"requests": [5]}': "requests.0: Input should be an object",
    b'{"requests": [{"custom_id": "a", "params": {}}': "does not end",
    b'{"requests": [{"custom_id": "a", "params": {}} {}]}': "a comma is missing",
    b'{"requests": [{"custom_id": "a", "params": {}}], "x": 1}': "does not end",
    b'{"requests": [{"custom_id": "a"}]}': "requests.0.params: Field required",
    b'{"requests": [{"params": {}}]}': "requests.0.custom_id: Field required",
    b'{"requests": [{"custom_id": "a", "params": []}]}': "requests.0.params: Input should be an object",
    b'{"requests": [{"custom_id": "", "params": {}}]}': "at least 1 character",
    b'{"requests": [{"custom_id": "a b", "params": {}}]}': "should match pattern",
    b'{"requests": [{"custom_id": 7, "params": {}}]}': "valid string",
    b'{"requests": [{"custom_id": "%s", "params": {}}]}' % (b"x" * 65): "at most 64 characters",
    b'{"requests": [{"custom_id": "a", "params": {}}, {"custom_id": "a", "params": {}}]}': "requests.1.custom_id: 'a'",
    b'{"requests": [{"custom_id": "a", "params": {"stream": true}}]}': "requests.0.params.stream",
    b'{"requests": [{"custom_id": "a", "params": {}, "more": 1}]}': "requests.0.more: Extra inputs",
    b'{"requests": [{"custom_id": "\xff", "params": {}}]}': "not UTF-8",
    b'{"requests": [{"custom_id": "a", "params": {"a": %s}}]}' % (b"[" * 3_000 + b"]" * 3_000): "levels deep",
}


async def test_a_wrong_envelope_makes_no_batch(desk: MessageDesk) -> None:
    for body, words in BAD.items():
        reply = await desk.rig.ada.post(BATCHES, data=body, headers={"content-type": "application/json"})
        assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error"), (body, reply)
        assert words in reply.json["error"]["message"], (body, reply)
    assert (await desk.rig.ada.get(BATCHES)).json["data"] == []
    assert (await desk.rig.ada.get("/v1/files")).json["data"] == []


async def test_a_body_that_is_too_large_is_refused_as_anthropic_does(sqlite_file_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_file_url, tmp_path / "data") as desk:
        made = desk.rig.made
        made.settings = made.settings.model_copy(update={"upload_max_bytes": 100_000})
        with pytest.raises(anthropic.APIStatusError) as error:
            await desk.create(request("a", system="x" * 200_000))
        assert error.value.status_code == 413
        assert error.value.body["error"]["type"] == "request_too_large"  # type: ignore[index]


async def test_a_service_without_anthropic_says_so(sqlite_file_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_file_url, tmp_path / "data", upstream=Endpoint("http://127.0.0.1:9/v1")) as desk:
        with pytest.raises(anthropic.BadRequestError, match=r"no provider anthropic .* it has: openai"):
            await desk.create(request("a"))


async def test_a_request_that_is_sent_again_makes_no_second_batch(desk: MessageDesk) -> None:
    body = json.dumps({"requests": [request("a")]})
    first = await desk.rig.ada.post(BATCHES, data=body)
    again = await desk.rig.ada.post(BATCHES, data=body, headers={"x-stainless-retry-count": "1"})
    assert (again.json["id"], again.headers["x-backstay-replayed"]) == (first.json["id"], "1")
    stranger = await desk.rig.bob.post(BATCHES, data=body, headers={"x-stainless-retry-count": "1"})
    wanted = await desk.rig.ada.post(BATCHES, data=body)
    assert len({first.json["id"], wanted.json["id"], stranger.json["id"]}) == 3
    keyed = [await desk.rig.ada.post(BATCHES, data=body, headers={"idempotency-key": "k"}) for _ in range(2)]
    assert keyed[0].json["id"] == keyed[1].json["id"]


async def test_a_budget_refuses_what_could_cost_anything_and_stops_what_does_not_fit(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    async with opened(sqlite_file_url, tmp_path / "data", budget_micros=2_500) as desk:
        with pytest.raises(anthropic.BadRequestError, match=r"requests\.1\.params: The highest possible cost"):
            await desk.create(request("a"), request("b", model="claude-nobody-knows-its-price"))
        done = await desk.ended(await desk.create(*(request(f"r{n}") for n in range(20))))
        found = (await desk.results(done)).values()
        errored = [result.error.error.type for result in found if result.type == "errored"]
        assert set(errored) == {"billing_error"}
        assert (done.request_counts.errored, done.request_counts.succeeded) == (len(errored), 20 - len(errored))
        assert 0 < len(errored) < 20


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_a_body_is_cut_at_the_same_places_however_it_comes(size: int) -> None:
    values = [{"a": 'x"]}\\', "b": [{}, "{["]}, {}, {"ü": "\\\\"}]
    body = json.dumps({"requests": values}, indent=1).encode()
    cutter, found = RequestCutter(), list[bytes]()
    for at in range(0, len(body), size):
        found += cutter.feed(body[at : at + size])
    cutter.end()
    assert [json.loads(one) for one in found] == values


def test_a_body_without_an_end_is_not_kept() -> None:
    cutter = RequestCutter()
    cutter.feed(b'{"requests": [{"a": "')
    cutter.feed(b"x" * (20 << 20))
    with pytest.raises(Problem, match="more than"):
        cutter.feed(b"x" * (20 << 20))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"response": None, "error": {"code": "batch_expired", "message": "m"}}, {"type": "expired"}),
        ({"response": None, "error": {"code": "batch_cancelled", "message": "m"}}, {"type": "canceled"}),
        (
            {"response": {"status_code": 200, "body": {"n": 1e3}}, "error": None},
            {"type": "succeeded", "message": {"n": 1e3}},
        ),
    ],
)
def test_a_result_line_is_written_in_anthropics_form(line: Any, expected: Any) -> None:
    assert json.loads(result_line(json.dumps({"id": "i", "custom_id": "a", **line}).encode())) == {
        "custom_id": "a",
        "result": expected,
    }


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (529, {"error": {"type": "overloaded_error", "message": "m"}}, "overloaded_error"),
        (429, "no JSON", "rate_limit_error"),
        (418, [], "invalid_request_error"),
        (502, None, "api_error"),
    ],
)
def test_a_providers_error_keeps_its_kind(status: int, body: Any, kind: str) -> None:
    line = {"custom_id": "a", "response": {"status_code": status, "body": body}, "error": None}
    result = json.loads(result_line(json.dumps(line).encode()))["result"]
    assert (result["type"], result["error"]["error"]["type"]) == ("errored", kind)
