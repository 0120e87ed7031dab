"""The address that remote workers answer at: only one that was given out works, and nothing it is sent upsets it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backstay.core.callbacks import CALLBACK_BYTES_MAX
from backstay.core.errors import UsageError
from backstay.remote.handler import check_headers
from backstay.store.inbox import MESSAGES_MAX
from backstay.store.keys import Role
from tests.server.remote_rig import Remote, remote_work
from tests.stories.stage import until


@pytest.fixture
async def remote(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Remote]:
    async with remote_work(sqlite_file_url, tmp_path / "data") as made:
        yield made


async def test_an_address_that_was_not_given_out_is_nowhere(remote):
    address = await remote.send()
    _, _, item, fence, tag = address.split("/")
    other = f"{remote.job}-1"
    for path in (
        f"/callbacks/{item}/{fence}/{tag[:-1]}",
        f"/callbacks/{item}/{fence}/{'A' * len(tag)}",
        f"/callbacks/{item}/{int(fence) + 1}/{tag}",
        f"/callbacks/{item}/0{fence}/{tag}",
        f"/callbacks/{other}/{fence}/{tag}",
        f"/callbacks/{item}/x/{tag}",
        f"/callbacks/{item}/{'9' * 50}/{tag}",
        f"/callbacks/x/{fence}/{tag}",
        f"/callbacks/{item}/{fence}/ü",
    ):
        reply = await remote.say(path, status="succeeded", result=1)
        assert reply.status == 404, path
    assert await remote.state() == "processing"


@pytest.fixture
async def either(database_url: str, tmp_path: Path) -> AsyncIterator[Remote]:
    """On each kind of database."""
    async with remote_work(database_url, tmp_path / "data") as made:
        yield made


async def give_way_to_bob(remote: Remote) -> str:
    """An address that ada was given for a job that she has deleted since; bob's job has come after it."""
    address = await remote.send()
    assert (await remote.rig.ada.post(f"/api/jobs/{remote.job}/cancel")).status == 200
    assert (await remote.say(address, status="failed", error={"code": "STOPPED", "message": "no"})).status == 202
    await remote.rig.work()
    assert (await remote.rig.ada.delete(f"/api/jobs/{remote.job}")).status == 204
    await until(lambda: is_gone(remote), "the job is gone")
    return address


async def is_gone(remote: Remote) -> bool:
    return await remote.rows("SELECT id FROM jobs") == []


async def bobs_item(remote: Remote) -> str:
    item = {"url": remote.receiver.url, "payload": {"n": 2}}
    made = await remote.rig.bob.post("/api/jobs", json={"handler": "remote", "items": [item]})
    await remote.rig.work()
    return f"{made.json['id']}-0"


async def test_an_address_of_a_deleted_job_is_nowhere_for_the_next_one(either: Remote) -> None:
    address = await give_way_to_bob(either)
    item = await bobs_item(either)
    assert item not in address, "its id has not returned"
    for path in (address, address.replace(f"{either.job}-0", item)):
        assert (await either.say(path, status="succeeded", result="forged")).status == 404
    assert (await either.rig.bob.get(f"/api/items/{item}")).json["state"] == "processing"


async def test_an_address_is_for_one_job_even_if_its_id_should_ever_return(either: Remote) -> None:
    """As in a database that was restored from a backup."""
    address = await give_way_to_bob(either)
    is_postgres = either.rig.made.url.startswith("postgresql")
    await either.rows(
        "SELECT setval('jobs_id_seq', 1, false)" if is_postgres else "DELETE FROM sqlite_sequence WHERE name = 'jobs'"
    )
    item = await bobs_item(either)
    assert item in address, "the id has returned"
    assert (await either.say(address, status="succeeded", result="forged")).status == 404
    assert await either.rows("SELECT id FROM inbox") == []
    own = either.address(either.receiver.visits[-1])
    assert (await either.say(own, status="succeeded", result="true")).status == 202


async def test_a_deleted_job_takes_nothing_while_its_rows_are_still_there(either: Remote) -> None:
    address = await either.send()
    await either.rows("UPDATE jobs SET owner = ''")
    assert (await either.say(address, status="succeeded", result=1)).status == 404
    assert await either.rows("SELECT id FROM inbox") == []


async def test_a_tag_of_before_is_good_only_for_a_job_of_before_whose_id_was_never_another_s(either: Remote) -> None:
    """Of a job that was under way when the service was upgraded; the migration says which these are."""
    _, _, item, fence, _ = (await either.send()).split("/")
    old = f"/callbacks/{item}/{fence}/{either.rig.service.signer.tag('callback', item, fence)}"
    assert (await either.say(old, status="progress", progress=1)).status == 404
    await either.rows("UPDATE jobs SET old_tags = 1")
    assert (await either.say(old, status="progress", progress=1)).status == 202


async def test_an_item_that_is_gone_is_nowhere(remote):
    address = await remote.send()
    await remote.rows("DELETE FROM items")
    assert (await remote.say(address, status="succeeded", result=1)).status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"1",
        b"null",
        b"{}",
        b'{"status":"done"}',
        b'{"status":1}',
        b'{"status":["failed"]}',
        b'{"status":"succeeded"}',
        b'{"status":"succeeded","result":NaN}',
        b'{"status":"succeeded","result":1e999}',
        b'{"status":"progress"}',
        b'{"status":"progress","progress":101}',
        b'{"status":"progress","progress":-1}',
        b'{"status":"progress","progress":true}',
        b'{"status":"progress","progress":"5"}',
        b"\xff\xfe",
        b"\x00",
        b'{"status":"failed"}',
        b'{"status":"failed","error":"x"}',
        b'{"status":"failed","error":{"code":1}}',
        b'{"status":"failed","error":{"message":[]}}',
        b'{"status":"failed","error":{"retryable":"yes"}}',
        b'{"status":"succeeded","result":' + b"[" * 100_000,
        b'{"status":"succeeded","result":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"status":"succeeded","result":' + b"9" * 5_000 + b"}",
    ],
)
async def test_nonsense_is_refused_in_a_line_and_changes_nothing(remote, body):
    address = await remote.send()
    reply = await remote.rig.holder(None).post(address, data=body)
    assert reply.status == 422, reply
    assert "\n" not in reply.json["detail"]
    assert await remote.rows("SELECT id FROM inbox") == []


async def test_an_answer_may_be_of_any_json(remote):
    results: tuple[Any, ...] = (None, "", "\u0000 \ud800", 10**30, {"a": [{}]}, "ü")
    for result in results:
        address = await remote.send()
        raw = json.dumps({"status": "succeeded", "result": result, "more": "is passed over"})
        assert (await remote.rig.holder(None).post(address, data=raw)).status == 202
        await remote.rig.work()
        assert await remote.state() == "succeeded"


async def test_an_answer_that_is_too_long_is_refused(remote):
    address = await remote.send()
    reply = await remote.rig.holder(None).post(address, data=b"x" * (CALLBACK_BYTES_MAX + 1))
    assert reply.status == 413


@pytest.mark.slow
async def test_a_worker_that_talks_too_much_is_not_listened_to_for_ever(remote):
    address = await remote.send()
    for number in range(MESSAGES_MAX + 50):
        assert (await remote.say(address, status="progress", progress=number % 100)).status == 202
    assert await remote.rows("SELECT count(*) FROM inbox") == [(1,)]
    await remote.rows(
        f"WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {MESSAGES_MAX}) INSERT INTO inbox "
        "(owner, item_id, fence, kind, received_at, body, digest) "
        "SELECT owner, item_id, 99, 'failed', 0, '{}', CAST(v AS text) FROM inbox, n"
    )
    assert (await remote.say(address, status="succeeded", result=1)).status == 409


def item(**given: Any) -> dict[str, Any]:
    return {"url": "https://worker.example/", "payload": 1, **given}


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (1, "a remote item must have"),
        ({}, "a remote item must have"),
        ({"url": "https://worker.example/"}, "a remote item must have"),
        (item(url=1), "a remote item must have"),
        (item(url="http://127.0.0.1:1/"), "leads to an internal address"),
        (item(url="http://2130706433/"), "no valid host"),
        (item(url="file:///etc/passwd"), "must begin with"),
        (item(more=1), "no field 'more'"),
        (item(headers=[]), "headers must be"),
        (item(headers={f"x-{n}": "1" for n in range(21)}), "headers must be"),
        (item(headers={"x y": "1"}), "not a valid header name"),
        (item(headers={"": "1"}), "not a valid header name"),
        (item(headers={"x": 1}), "printable ASCII"),
        (item(headers={"x": "a\r\nb"}), "printable ASCII"),
        (item(headers={"Host": "inside"}), "cannot be set"),
        (item(headers={"Webhook-Signature": "v1,x"}), "cannot be set"),
        (item(headers={"Authorization": "Bearer x"}), "stored in the database"),
        (item(headers={"Cookie": "x=1"}), "stored in the database"),
    ],
)
async def test_an_item_that_cannot_be_sent_is_refused_when_it_is_submitted(remote, payload, why):
    given = {"handler": "remote", "items": [payload]}
    reply = await remote.rig.ada.post("/api/jobs", json=given)
    assert reply.status in (400, 422)
    assert why in reply.json["detail"]


CREDENTIALS = """
Authorization Proxy-Authorization X-Authorization X-Forwarded-Authorization X-Amz-Security-Token
Cookie Cookie2 Set-Cookie
API-Key X-API-Key apikey x-apikey x-goog-api-key x_api_key DD-API-KEY DD-APPLICATION-KEY X-Algolia-API-Key
Ocp-Apim-Subscription-Key x-functions-key X-RapidAPI-Key X-Auth-Key X-Master-Key X-Access-Key X-Account-Key Fastly-Key
X-Auth X-Auth-Token X-Access-Token Private-Token Job-Token Deploy-Token X-Vault-Token X-Gitlab-Token X-Csrf-Token
X-Shopify-Access-Token X-Consul-Token X-Figma-Token Circle-Token token X-Amz-Signature-Token id_token
X-Secret X-Client-Secret client_secret X-Webhook-Secret X-Password password X-Passwd X-Credential X-Credentials
X-JWT Cf-Access-Jwt-Assertion X-Session-Id-Token X-Goog-Encryption-Key x-ms-encryption-key
X-Amz-Server-Side-Encryption-Customer-Key
"""
HARMLESS = """
x-tenant x-request-id accept user-agent x-max-tokens x-token-count content-language x-partition-key x-routing-key
x-cache-key x-author x-authority x-keyboard x-secretary traceparent baggage prefer x-idempotency-key x-correlation-key
"""


@pytest.mark.parametrize("name", CREDENTIALS.split())
def test_a_header_that_holds_a_credential_is_refused(name):
    with pytest.raises(UsageError, match="is not allowed: its value would be stored in the database"):
        check_headers({"x-tenant": "a", name: "value"}, frozenset())


def test_a_header_that_only_looks_like_a_credential_is_taken():
    for name in HARMLESS.split():
        check_headers({name: "value"}, frozenset())


async def test_a_credential_is_refused_over_either_way_in(remote):
    for header in ("x-goog-api-key", "PRIVATE-TOKEN", "X-Amz-Security-Token"):
        for given in (item(), {"exchange": "grading", "payload": 1}):
            body = {"handler": "remote", "items": [{**given, "headers": {header: "secret"}}]}
            reply = await remote.rig.ada.post("/api/jobs", json=body)
            assert reply.status in (400, 422), (header, reply)
            assert "secret" not in reply.json["detail"]
    assert await remote.rows("SELECT id FROM jobs") == []


async def test_a_service_that_does_not_know_its_address_says_so(remote):
    handler = remote.rig.made.handlers["remote"]
    object.__setattr__(handler._ways["url"], "public_url", None)
    reply = await remote.rig.ada.post("/api/jobs", json={"handler": "remote", "items": [item()]})
    assert reply.status in (400, 422)
    assert "BACKSTAY_PUBLIC_URL" in reply.json["hint"]


async def test_the_secret_of_requests_is_for_the_owner_s_admins(remote):
    mine = await remote.rig.ada.get("/api/remote/secret")
    theirs = await remote.rig.bob.get("/api/remote/secret")
    assert mine.headers["cache-control"] == "no-store"
    assert mine.json["secret"] != theirs.json["secret"]
    assert (await remote.rig.visitor("ada", Role.WRITE).get("/api/remote/secret")).status == 403
