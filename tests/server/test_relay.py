"""The relay on a clock that the test moves: who is told what, how often, and when it is enough."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import Random

import pytest
from standardwebhooks import Webhook as Seal

from backstay.core.events import Trouble
from backstay.core.signing import Signer
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.webhook_relay import LADDER_SECONDS, Relay, next_try_ms
from backstay.observe.bus import Bus
from backstay.store.webhooks import EVENTS, LASTING_MS, Webhook, WebhookChange, Webhooks
from tests.databases import START_MS, Site
from tests.server.receiver import Receiver, Visit

SIGNER = Signer("a key that is at least 32 characters long")
FIRST = [0, *LADDER_SECONDS]


class Scene:
    """A relay on one database, ada's webhook, and what the receiver sees of it."""

    def __init__(self, site: Site, webhooks: Webhooks, receiver: Receiver) -> None:
        self.site = site
        self.webhooks = webhooks
        self.receiver = receiver
        self.troubles: list[str] = []
        bus = Bus()
        bus.subscribe(self._heard)
        self.outgoing = Outgoing(receiver.place)
        self.relay = Relay(webhooks, self.outgoing, SIGNER, site.clock, bus)

    def _heard(self, event: object) -> None:
        if isinstance(event, Trouble):
            self.troubles.append(event.message)

    async def add(self, owner: str = "ada", events: tuple[str, ...] = EVENTS, name: str = "a") -> Webhook:
        return await self.webhooks.add(f"wh_{owner}{name}", owner, self.receiver.url, events)

    async def job(self, number: int, state: str = "completed", owner: str = "ada") -> None:
        """A job as it ends, whichever statement it was."""
        await self.site.rows(
            "INSERT INTO jobs (id, owner, handler, state, priority, ref_seed, created_at, timeout_ms, timeout_at) "
            f"VALUES ({number}, '{owner}', 'echo', 'running', 0, '', 0, 0, 0)"
        )
        await self.site.rows(f"UPDATE jobs SET state = '{state}', finished_at = {START_MS} WHERE id = {number}")

    async def show(self) -> Webhook:
        return await self.webhooks.show("wh_adaa", "ada")

    @property
    def told(self) -> list[dict[str, object]]:
        return [json.loads(visit.body) for visit in self.receiver.visits]


@pytest.fixture
async def scene(site: Site, receiver: Receiver) -> AsyncIterator[Scene]:
    made = Scene(site, (await site.open_store()).webhooks, receiver)
    yield made
    await made.outgoing.close()


async def test_the_end_of_a_job_is_told_once_to_everyone_of_its_owner_who_wants_to_know(scene):
    await scene.add(name="a")
    await scene.add(name="b", events=("job.completed",))
    await scene.add(name="c", events=("batch.completed",))
    await scene.add(owner="bob")
    await scene.job(7)
    assert await scene.relay.run_once() == 2
    assert await scene.relay.run_once() == 0
    first, second = scene.told
    assert first == second  # one event, told to two
    assert first["type"] == "job.completed"
    assert first["object"] == "event"
    assert first["data"] == {"id": "7"}
    assert first["created_at"] == START_MS // 1000


async def test_a_job_that_ends_before_anyone_listens_is_told_to_nobody(scene):
    await scene.job(7)
    await scene.add()
    assert await scene.relay.run_once() == 0


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "cancelled"])
async def test_the_end_of_a_batch_is_told_when_its_files_are_there(scene, status):
    await scene.add()
    await scene.site.rows("DELETE FROM batches")
    await scene.site.rows(
        "INSERT INTO batches (id, owner, status, endpoint, input_file_id, completion_window, created_at, expires_at) "
        "VALUES ('batch_1', 'ada', 'finalizing', '/v1/x', 'file-1', '24h', 0, 0)"
    )
    assert await scene.relay.run_once() == 0
    await scene.site.rows(f"UPDATE batches SET status = '{status}', {status}_at = {START_MS}")
    await scene.site.rows("UPDATE batches SET leased_until = 1")
    assert await scene.relay.run_once() == 1
    assert scene.told[0]["type"] == f"batch.{status}"
    assert scene.told[0]["data"] == {"id": "batch_1"}


async def test_what_is_told_is_signed_so_that_the_receiver_can_check_it(scene):
    webhook = await scene.add()
    await scene.job(7)
    await scene.relay.run_once()
    [visit] = scene.receiver.visits
    assert opens(visit, SIGNER.secret_of(webhook.id, 1))
    assert not opens(visit, SIGNER.secret_of(webhook.id, 2))
    assert visit.headers["webhook-id"] == json.loads(visit.body)["id"]
    assert visit.headers["webhook-timestamp"] == str(START_MS // 1000)


def opens(visit: Visit, secret: str) -> bool:
    """Whether a secret made one of the signatures; the library itself would not take the test's own time."""
    name, at = visit.headers["webhook-id"], int(visit.headers["webhook-timestamp"])
    made = Seal(secret).sign(name, datetime.fromtimestamp(at, UTC), visit.body)
    return made in visit.headers["webhook-signature"].split(" ")


async def test_while_a_secret_is_changed_both_sign_for_a_day(scene):
    webhook = await scene.add()
    await scene.webhooks.rotate(webhook.id, "ada", keep_old=True)
    await scene.job(1)
    await scene.relay.run_once()
    await scene.site.advance(86_400)
    await scene.job(2)
    await scene.relay.run_once()
    old, new = SIGNER.secret_of(webhook.id, 1), SIGNER.secret_of(webhook.id, 2)
    assert [(opens(visit, old), opens(visit, new)) for visit in scene.receiver.visits] == [(True, True), (False, True)]


async def test_a_secret_can_be_dropped_at_once(scene):
    webhook = await scene.add()
    await scene.webhooks.rotate(webhook.id, "ada", keep_old=False)
    await scene.job(1)
    await scene.relay.run_once()
    assert not opens(scene.receiver.visits[0], SIGNER.secret_of(webhook.id, 1))


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 429, 500, 503])
async def test_anything_but_2xx_is_tried_again_on_the_ladder_until_it_is_enough(scene, status):
    await scene.add()
    scene.receiver.says(status, "not now", location="http://example.com/")
    await scene.job(7)
    for tries, seconds in enumerate(FIRST):
        if seconds:
            await scene.site.advance(seconds - 1)
            assert await scene.relay.run_once() == 0
            await scene.site.advance(1 + seconds * 0.1)
        scene.receiver.visits.clear()
        # The webhook itself would be disabled on the way; that is another test's matter.
        await scene.site.rows("UPDATE webhooks SET failing_since = NULL")
        assert await scene.relay.run_once() == 1, tries
    [delivery] = await scene.webhooks.deliveries("wh_adaa", "ada")
    assert delivery.state == "failed"
    assert (delivery.tries, delivery.last_status) == (len(FIRST), status)
    assert delivery.last_error == f"the webhook answered with status {status}: not now"


def test_the_ladder_lasts_about_three_days():
    assert sum(LADDER_SECONDS) == pytest.approx(75 * 3_600, rel=0.02)
    assert next_try_ms(len(LADDER_SECONDS), Random(1)) is not None
    assert next_try_ms(len(LADDER_SECONDS) + 1, Random(1)) is None


def test_a_receiver_may_ask_for_more_time_but_not_for_ever():
    assert next_try_ms(1, Random(1), 60_000) == 60_000
    assert next_try_ms(1, Random(1), 10**12) == 86_400_000
    assert 5_000 <= (next_try_ms(1, Random(1), 0) or 0) <= 5_500


async def test_what_failed_and_then_was_heard_is_told_no_more(scene):
    await scene.add()
    scene.receiver.says(500)
    await scene.job(7)
    await scene.relay.run_once()
    assert (await scene.show()).failing_since == START_MS
    scene.receiver.says(204)
    await scene.site.advance(6)
    assert await scene.relay.run_once() == 1
    await scene.site.advance(10**6)
    assert await scene.relay.run_once() == 0
    assert (await scene.show()).failing_since is None
    assert len({visit.headers["webhook-id"] for visit in scene.receiver.visits}) == 1


async def test_gone_disables_at_once_and_drops_what_waits(scene):
    await scene.add()
    await scene.job(1)
    await scene.job(2)
    scene.receiver.says(410)
    await scene.relay.run_once()
    webhook = await scene.show()
    assert webhook.disabled_at == START_MS
    assert webhook.disabled_why == "the URL answered 410 Gone"
    assert {told.state for told in await scene.webhooks.deliveries("wh_adaa", "ada")} == {"failed"}
    assert scene.troubles == ["wh_adaa does not accept events any more and was disabled"]
    await scene.job(3)
    await scene.site.advance(10**6)
    assert await scene.relay.run_once() == 0


async def test_lasting_failure_disables_and_enabling_again_starts_clean(scene):
    await scene.add()
    scene.receiver.says(500)
    await scene.job(1)
    await scene.relay.run_once()
    await scene.site.advance(LASTING_MS / 1000 - 10)
    await scene.job(2)
    await scene.relay.run_once()
    assert (await scene.show()).disabled_at is None
    await scene.site.advance(20)
    await scene.relay.run_once()
    assert (await scene.show()).disabled_why == "its deliveries failed for 72 hours"
    await scene.webhooks.change("wh_adaa", "ada", WebhookChange(enabled=True))
    scene.receiver.says(200)
    assert (await scene.show()).failing_since is None
    assert await scene.webhooks.resend_failed("wh_adaa", "ada") == 2
    assert await scene.relay.run_once() == 2


async def test_a_telling_whose_teller_died_is_told_again_under_the_same_name(scene):
    await scene.add()
    await scene.job(7)
    await scene.webhooks.create_deliveries()
    [lost], _ = await scene.webhooks.claim(10, [])
    assert await scene.relay.run_once() == 0  # its lease
    await scene.site.advance(61)
    assert await scene.relay.run_once() == 1
    assert scene.told[0]["id"] == lost.event_id


async def test_a_slow_webhook_gets_a_few_at_a_time_and_others_do_not_wait_for_it(scene):
    await scene.add(name="slow")
    for number in range(1, 10):
        await scene.job(number)
    await scene.webhooks.create_deliveries()
    await scene.add(owner="bob")
    await scene.job(100, owner="bob")
    await scene.webhooks.create_deliveries()
    both, past = await scene.webhooks.claim(40, [])
    assert ([due.webhook_id for due in both], past) == (["wh_adaslow", "wh_boba"], "")
    [slow], _ = await scene.webhooks.claim(40, [])
    assert slow.webhook_id == "wh_adaslow"
    assert await scene.webhooks.claim(40, ["wh_adaslow"]) == ([], "")


async def test_old_messages_and_deliveries_are_forgotten(scene):
    await scene.add()
    await scene.job(1)
    await scene.relay.run_once()
    await scene.webhooks.forget()
    assert await scene.site.one("SELECT count(*) FROM deliveries") == 1
    await scene.site.advance(31 * 86_400)
    await scene.webhooks.forget()
    assert await scene.site.one("SELECT count(*) FROM deliveries") == 0
    assert await scene.site.one("SELECT count(*) FROM outbox") == 0


async def test_many_old_deliveries_are_forgotten_at_once(scene):
    await scene.site.rows(
        "WITH RECURSIVE counted(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < 1200) "
        "INSERT INTO deliveries (webhook_id, owner, event_id, event_type, body, created_at) "
        "SELECT 'wh_a', 'ada', 'evt_' || i, 'item.succeeded', '{}', 0 FROM counted"
    )
    await scene.webhooks.forget()
    assert await scene.site.one("SELECT count(*) FROM deliveries") == 0
