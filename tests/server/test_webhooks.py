"""Webhooks over HTTP: made, shown, changed, rotated, tested, resent and deleted by their owner, and by nobody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import InvalidWebhookSignatureError, OpenAI
from standardwebhooks import Webhook as Seal

from backstay.core.events import OutboxLag
from backstay.store.keys import Role
from backstay.store.outbox import WEBHOOKS
from backstay.store.webhooks import EVENTS, WEBHOOKS_MAX
from tests.server.receiver import WAIT_SECONDS, Receiver
from tests.server.rig import Rig, practice_app, rigged


@pytest.fixture
async def rig(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    """A service that may tell the receiver, although it is inside."""
    async with rigged(database_url, tmp_path / "data", inside_hosts=receiver.place) as made:
        yield made


@pytest.fixture
async def small(sqlite_file_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data", inside_hosts=receiver.place) as made:
        yield made


async def made(rig: Rig, receiver: Receiver, **given: Any) -> dict[str, Any]:
    reply = await rig.ada.post("/api/webhooks", json={"url": receiver.url, **given})
    assert reply.status == 201, reply
    webhook: dict[str, Any] = reply.json
    return webhook


async def test_a_job_that_ends_is_told_signed_and_the_delivery_shows_it(rig, receiver):
    webhook = await made(rig, receiver)
    job = await rig.submit()
    await rig.work()
    visit = await receiver.wait(1)
    event = Seal(webhook["secret"]).verify(visit.body, visit.headers)
    assert event["type"] == "job.completed"
    assert event["data"] == {"id": job}
    [delivery] = (await rig.ada.get(f"/api/webhooks/{webhook['id']}/deliveries")).json["data"]
    assert delivery["event_id"] == event["id"]
    assert delivery["event_type"] == "job.completed"


async def test_a_message_that_its_owner_publishes_is_told_and_one_of_another_owner_is_not(rig, receiver):
    webhook = await made(rig, receiver, events=["job.failed", "user.orders.created"])
    outbox = rig.service.store.outbox
    await outbox.publish("bob", "orders.created", '{"order": 1}')
    await outbox.publish("ada", "orders.paid", '{"order": 2}')
    await outbox.publish("ada", "orders.created", '{"order": 3}')
    visit = await receiver.wait(1)
    event = Seal(webhook["secret"]).verify(visit.body, visit.headers)
    assert (event["type"], event["data"]) == ("user.orders.created", {"order": 3})
    assert len(receiver.visits) == 1


@pytest.mark.slow
async def test_openai_s_own_client_opens_the_events_of_batches(rig, receiver):
    webhook = await made(rig, receiver, events=["batch.completed"])
    found = await rig.service.store.webhooks.show(webhook["id"], "ada")
    now = rig.service.main.clock.now_ms()
    await rig.service.store.webhooks.announce(found, "batch.completed", {"id": "batch_1"}, now)
    visit = await receiver.wait(1)
    rotated = (await rig.ada.post(f"/api/webhooks/{webhook['id']}/rotate")).json
    await rig.service.store.webhooks.announce(found, "batch.failed", {"id": "batch_2"}, now)
    second = await receiver.wait(2)
    client = OpenAI(api_key="none")
    event = client.webhooks.unwrap(visit.body, visit.headers, secret=webhook["secret"])
    assert event.type == "batch.completed"
    assert (event.data.id, event.object) == ("batch_1", "event")
    for secret in (webhook["secret"], rotated["secret"]):
        assert client.webhooks.unwrap(second.body, second.headers, secret=secret).type == "batch.failed"
    with pytest.raises(InvalidWebhookSignatureError):
        client.webhooks.unwrap(second.body.replace("batch_2", "batch_3"), second.headers, secret=rotated["secret"])


async def test_the_secret_is_shown_once_and_is_nowhere_in_the_database(small, receiver, tmp_path):
    webhook = await made(small, receiver)
    secret = webhook.pop("secret")
    path = f"/api/webhooks/{webhook['id']}"
    assert (await small.ada.get(path)).json == webhook
    assert webhook["events"] == list(EVENTS)
    rotated = (await small.ada.post(f"{path}/rotate", json={"keep_old": False})).json
    assert rotated["secret"] not in ("", secret)
    await small.ada.post("/api/webhooks", json={"url": receiver.url}, headers={"idempotency-key": "k"})
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    for one in (secret, rotated["secret"]):
        assert one.removeprefix("whsec_").encode() not in files


async def test_a_webhook_sent_twice_with_a_key_is_one(small, receiver):
    for _ in range(2):
        await small.ada.post("/api/webhooks", json={"url": receiver.url}, headers={"idempotency-key": "k"})
    assert len((await small.ada.get("/api/webhooks")).json["data"]) == 1


async def test_a_webhook_is_changed_field_by_field(rig, receiver):
    webhook = await made(rig, receiver, name="first", events=["job.failed"])
    path = f"/api/webhooks/{webhook['id']}"
    changed = (await rig.ada("PATCH", path, json={"name": "second"})).json
    assert (changed["name"], changed["events"], changed["enabled"]) == ("second", ["job.failed"], True)
    changed = (await rig.ada("PATCH", path, json={"enabled": False, "events": ["job.completed"]})).json
    assert (changed["name"], changed["enabled"], changed["disabled_why"]) == ("second", False, "by hand")
    assert (await rig.ada.post(f"{path}/test")).status == 409
    await rig.submit()
    await rig.work()
    assert (await rig.ada("PATCH", path, json={"enabled": True})).json["disabled_at"] is None
    tested = await rig.ada.post(f"{path}/test")
    assert tested.status == 202
    visit = await receiver.wait(1)  # the job that ended in between was for nobody
    assert json.loads(visit.body)["type"] == "webhook.test"
    assert (await rig.ada.delete(path)).status == 204
    assert (await rig.ada.get(path)).status == 404


@pytest.mark.slow
async def test_what_failed_is_told_again_under_its_old_name(rig, receiver):
    webhook = await made(rig, receiver)
    path = f"/api/webhooks/{webhook['id']}"
    first = (await rig.ada.post(f"{path}/test")).json
    again = f"{path}/deliveries/{first['id']}/resend"
    visit = await receiver.wait(1)
    async with asyncio.timeout(WAIT_SECONDS):
        while not await delivered(rig, path):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await rig.ada.post(again)).json["tries"] == 0
    second = await receiver.wait(2)
    assert visit.headers["webhook-id"] == second.headers["webhook-id"] == first["event_id"]


async def delivered(rig: Rig, path: str) -> bool:
    [told] = (await rig.ada.get(f"{path}/deliveries")).json["data"]
    return bool(told["state"] == "delivered")


async def test_deliveries_come_in_pages_newest_first(small, receiver):
    webhook = await made(small, receiver)
    path = f"/api/webhooks/{webhook['id']}"
    ids = [(await small.ada.post(f"{path}/test")).json["id"] for _ in range(5)]
    seen, cursor = [], None
    while True:
        params = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        page = (await small.ada.get(f"{path}/deliveries", params=params)).json
        seen += [told["id"] for told in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


async def test_another_owner_s_webhook_does_not_exist(rig, receiver):
    webhook = await made(rig, receiver)
    delivery = (await rig.ada.post(f"/api/webhooks/{webhook['id']}/test")).json
    never = "wh_" + "0" * 24
    for method, path, body in [
        ("GET", "", None),
        ("PATCH", "", {"enabled": False}),
        ("DELETE", "", None),
        ("POST", "/rotate", None),
        ("POST", "/test", None),
        ("POST", "/resend", None),
        ("GET", "/deliveries", None),
        ("POST", f"/deliveries/{delivery['id']}/resend", None),
    ]:
        theirs = await rig.bob(method, f"/api/webhooks/{webhook['id']}{path}", json=body)
        nobody_s = await rig.bob(method, f"/api/webhooks/{never}{path}", json=body)
        assert theirs.status == nobody_s.status == 404
        assert theirs.json["detail"].replace(webhook["id"], "") == nobody_s.json["detail"].replace(never, "")
    assert (await rig.bob.get("/api/webhooks")).json["data"] == []
    assert (await rig.visitor("ada", Role.READ).post(f"/api/webhooks/{webhook['id']}/test")).status == 403
    assert (await rig.ada.get(f"/api/webhooks/{webhook['id']}")).status == 200


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://[::1]/",
        "http://169.254.169.254/latest",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::ffff:10.0.0.1]/",
        "ftp://example.com/",
        "http://a@example.com/",
        "x",
        "http://\u0000/",
    ],
)
async def test_a_url_that_leads_inside_or_nowhere_is_a_clear_refusal(small, receiver, url):
    reply = await small.ada.post("/api/webhooks", json={"url": url})
    assert reply.status == 400, reply
    assert reply.json["detail"].startswith(("the URL", "a URL"))
    kept = await made(small, receiver)
    assert (await small.ada("PATCH", f"/api/webhooks/{kept['id']}", json={"url": url})).status == 400


@pytest.mark.parametrize(
    "given",
    [
        {},
        [],
        {"url": 1},
        {"url": ""},
        {"url": "http://e.example/", "events": []},
        {"url": "http://e.example/", "events": ["x"]},
        {"url": "http://e.example/", "events": ["user."]},
        {"url": "http://e.example/", "events": ["user.a..b"]},
        {"url": "http://e.example/", "events": ["user.*"]},
        {"url": "http://e.example/", "events": ["user." + "a" * 101]},
        {"url": "http://e.example/", "more": 1},
        {"url": "http://e.example/", "name": "\u0000"},
    ],
)
async def test_a_webhook_that_cannot_be_is_refused_in_a_line(small, given):
    reply = await small.ada.post("/api/webhooks", json=given)
    assert reply.status == 422, reply


@pytest.mark.slow
async def test_an_owner_has_so_many_webhooks_and_no_more(small, receiver):
    for _ in range(WEBHOOKS_MAX):
        await made(small, receiver)
    assert (await small.ada.post("/api/webhooks", json={"url": receiver.url})).status == 409
    assert (await small.bob.post("/api/webhooks", json={"url": receiver.url})).status == 201


@pytest.mark.parametrize("number", ["x", "-1", "0", "999999999999999999999999999", "\u0661"])
async def test_a_delivery_that_never_was_is_not_found(small, receiver, number):
    webhook = await made(small, receiver)
    assert (await small.ada.post(f"/api/webhooks/{webhook['id']}/deliveries/{number}/resend")).status == 404


async def test_the_service_tells_how_far_behind_it_is_with_telling_webhooks(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    app, lags = practice_app(sqlite_file_url), asyncio.Queue[OutboxLag]()
    app.bus.subscribe(lambda event: lags.put_nowait(event) if isinstance(event, OutboxLag) else None)
    async with rigged(sqlite_file_url, tmp_path / "data", app):
        lag = await asyncio.wait_for(lags.get(), WAIT_SECONDS)
    assert lag == OutboxLag(WEBHOOKS, messages=0, age_ms=0)
