"""Alarms over HTTP: told to the service's own webhooks, and shown to nobody else."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook as Seal

from backstay.store.keys import Role
from backstay.upkeep.loop import AlarmWatch
from tests.server.pages.reader import reader
from tests.server.receiver import Receiver
from tests.server.rig import Rig, rigged
from tests.server.test_jobs import problem


@pytest.fixture
async def rig(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    async with rigged(database_url, tmp_path / "data", inside_hosts=receiver.place) as made:
        yield made


async def look(rig: Rig) -> None:
    await AlarmWatch(rig.service.store, rig.made.settings, rig.made.bus).look()


@pytest.mark.slow
async def test_an_alarm_is_told_by_webhook_once_shown_and_told_again_when_it_is_over(
    rig: Rig, receiver: Receiver
) -> None:
    wanted = {"url": receiver.url, "events": ["alarm.raised", "alarm.cleared"]}
    webhook = (await rig.ada.post("/api/webhooks", json=wanted)).json
    await rig.bob.post("/api/webhooks", json=wanted)
    for n in range(12):
        await rig.submit("fail_as_told", [{"code": "GW_4XX"} if n < 2 else {}])
    await rig.work()
    for _ in range(2):
        await look(rig)
    seal = Seal(webhook["secret"])
    [raised] = [seal.verify(visit.body, visit.headers) for visit in [await receiver.wait(1)]]
    assert (raised["type"], raised["data"]) == ("alarm.raised", {"id": "failed_jobs"})
    [shown] = (await rig.ada.get("/api/alarms")).json["data"]
    assert (shown["id"], shown["raised"], shown["value"], shown["bound"]) == ("failed_jobs", True, 17, 10)
    assert shown["text"] == "17% of the jobs that ended in the last 24 hours failed; the alarm threshold is 10%"
    for _ in range(9):
        await rig.submit("fail_as_told", [{}])
    await rig.work()
    await look(rig)
    cleared = seal.verify((second := await receiver.wait(2)).body, second.headers)
    assert (cleared["type"], cleared["data"]) == ("alarm.cleared", {"id": "failed_jobs"})
    assert [one["raised"] for one in (await rig.ada.get("/api/alarms")).json["data"]] == [False]
    assert len(receiver.visits) == 2


async def test_only_the_service_s_own_admins_see_alarms(rig: Rig) -> None:
    problem(await rig.bob.get("/api/alarms"), 403)
    problem(await rig.visitor("ada", Role.WRITE).get("/api/alarms"), 403)
    assert (await rig.ada.get("/api/alarms")).json == {"data": []}


async def test_home_shows_a_raised_alarm_to_the_service_s_own_people(rig: Rig) -> None:
    for n in range(10):
        await rig.submit("fail_as_told", [{"code": "GW_4XX"} if n < 2 else {}])
    await rig.work()
    await look(rig)
    told = (
        "20% of the jobs that ended in the last 24 hours failed; the alarm threshold is 10%: "
        "look at the newest failed job first."
    )
    ada, bob = await (await reader(rig)).held("/"), await (await reader(rig, "bob")).held("/")
    assert told in ada.text
    assert "/jobs?state=failed" in ada.links
    assert told not in bob.text
