"""Whoever archives, or tells of failed items, is killed: before the transaction nothing has changed, after it all
has."""

import asyncio
import json
import subprocess
import sys

import pytest

from backstay.artifacts import artifacts_at
from backstay.core.ids import show_item
from backstay.core.signing import Signer
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.webhook_relay import Relay
from backstay.observe.bus import Bus
from tests.databases import Site
from tests.house.sources import ROOT
from tests.server.receiver import receiving
from tests.store.store_rig import OK, WRONG, Scene, chunk, new_job
from tests.stories.stage import until
from tests.upkeep.upkeep_rig import Desk

pytestmark = pytest.mark.slow

SECONDS_MAX = 60


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_killed_archivist_loses_nothing(leaping_site: Site, place: str, moment: str) -> None:
    scene = Scene(leaping_site)
    await scene.store.open()
    try:
        desk = Desk(scene, artifacts_at(place))
        leaping_site.clock.ms -= 86_400_000 * 30  # long ago: the one who dies has a clock of his own
        await leaping_site.advance(0)
        await desk.fail(5)
        before = await desk.bodies()
        command = [sys.executable, "-m", "tests.upkeep.killed_archivist", leaping_site.url, place, moment]
        died = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, timeout=SECONDS_MAX, capture_output=True)
        assert died.returncode == -9, died.stderr
        assert len(await desk.blobs()) == 1
        archived = 5 if moment == "after" else 0
        assert [archive.items for archive in await desk.archives()] == [archived] * (moment == "after")
        assert (await desk.bodies() == before) == (moment == "before")
        assert await desk.archive() == 5 - archived
        [archive] = await desk.archives()
        assert await desk.restore(archive.id) == 5
        assert await desk.bodies() == before
    finally:
        await scene.store.close()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["untold", "told", "sent"])
async def test_a_killed_relay_loses_no_failed_item_and_invents_none(leaping_site: Site, moment: str) -> None:
    """Killed inside the transaction that collects them, after it, and after the receiver has answered."""
    scene = Scene(leaping_site)
    await scene.store.open()
    async with receiving() as receiver:
        await scene.store.webhooks.add("wh_1", "ann", receiver.url, ("item.failed",))
        await scene.store.webhooks.add("wh_2", "bob", receiver.url, ("item.failed",))
        leaping_site.clock.ms -= 60_000  # the relay that dies has a clock of its own
        await leaping_site.advance(0)
        jobs = [await scene.ended(WRONG, items, owner=owner) for items, owner in ((7, "ann"), (3, "bob"))]
        await scene.ended(OK, 5)
        command = [sys.executable, "-m", "tests.upkeep.killed_relay", leaping_site.url, receiver.place, moment]
        died = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, timeout=SECONDS_MAX, capture_output=True)
        assert died.returncode == -9, died.stderr
        before = len(receiver.visits)
        assert (before > 0) == (moment == "sent")
        await leaping_site.advance(180)  # the leases of the dead one end
        outgoing = Outgoing(receiver.place)
        await Relay(scene.store.webhooks, outgoing, Signer("key" * 20), leaping_site.clock, Bus()).run_once()
        await outgoing.close()
        events = {json.loads(visit.body)["id"]: json.loads(visit.body)["data"] for visit in receiver.visits}
        assert len(receiver.visits) == before + 2
        assert sorted((event["owner"], item["id"]) for event in events.values() for item in event["items"]) == sorted(
            (owner, f"{job}-{n}")
            for job, items, owner in zip(jobs, (7, 3), ("ann", "bob"), strict=True)
            for n in range(items)
        )
    await scene.store.close()


TOLD = "SELECT payload FROM outbox WHERE message_type = 'item.failed'"
FAILED = "SELECT count(*) FROM items WHERE state = 'failed'"


@pytest.mark.slow
async def test_a_worker_that_is_killed_while_items_fail_leaves_no_dead_letter_untold(leaping_site: Site) -> None:
    store = await leaping_site.open_store()
    await store.webhooks.add("wh_1", "local", "https://example.com", ("item.failed",))
    opened = await store.submissions.open(new_job(handler="fails", owner="local"), chunk(0, 400, True))
    command = [sys.executable, "-m", "tests.upkeep.failing_worker", leaping_site.url]
    for least in (1, 100, 200, 400):
        worker = await asyncio.create_subprocess_exec(*command, cwd=ROOT)

        async def met(failed: int = least) -> bool:
            return int(await leaping_site.one(FAILED)) >= failed

        await until(met, f"{least} items have failed", SECONDS_MAX)
        worker.kill()
        assert await worker.wait() == -9
    assert (await store.job_views.get(opened.id, "local")).ended
    await leaping_site.advance(10)
    while await store.outbox.tell_failed():
        pass
    payloads = [json.loads(row[0]) for row in await leaping_site.rows(TOLD)]
    told = sorted(item["id"] for payload in payloads for item in payload["items"])
    failed = await leaping_site.rows("SELECT id FROM items WHERE state = 'failed'")
    assert told == sorted(show_item(row[0]) for row in failed)
    assert len(told) == 400
