"""Schedules over HTTP: listed, paused, resumed and run by whose they are; for others they do not exist."""

import pytest

from backstay.core.errors import NotFound
from backstay.core.models import NewSchedule
from backstay.store.keys import Role
from tests.server.rig import Rig


async def add(rig: Rig, name: str = "nightly", handler: str = "echo", payload: str = '{"n":7}') -> None:
    await rig.service.store.schedules.add(
        NewSchedule(name, handler, "30 2 * * *", "Europe/Berlin", payload=payload), "ada"
    )


async def test_a_list_says_when_each_fires_and_what_the_handler_gets(rig: Rig) -> None:
    await add(rig)
    [found] = (await rig.ada.get("/api/schedules")).json["data"]
    assert (found["name"], found["handler"], found["cron"]) == ("nightly", "echo", "30 2 * * *")
    assert (found["timezone"], found["payload"], found["missed"]) == ("Europe/Berlin", {"n": 7}, "once")
    assert found["next_at"] > found["created_at"]
    assert (found["last_at"], found["last_job"], found["error"]) == (None, None, None)


async def test_a_list_is_read_page_by_page(sqlite_rig: Rig) -> None:
    for name in ("c", "a", "b"):
        await add(sqlite_rig, name)
    first = (await sqlite_rig.ada.get("/api/schedules?limit=2")).json
    assert ([one["name"] for one in first["data"]], first["has_more"]) == (["a", "b"], True)
    rest = (await sqlite_rig.ada.get("/api/schedules?limit=2&after=b")).json
    assert ([one["name"] for one in rest["data"]], rest["has_more"]) == (["c"], False)


async def test_a_schedule_is_paused_resumed_and_run(rig: Rig) -> None:
    await add(rig)
    paused = (await rig.ada.post("/api/schedules/nightly/pause")).json
    assert (paused["paused_at"] is not None, paused["next_at"]) == (True, None)
    resumed = (await rig.ada.post("/api/schedules/nightly/resume")).json
    assert (resumed["paused_at"], resumed["next_at"] is not None) == (None, True)
    ran = await rig.ada.post("/api/schedules/nightly/run")
    assert (ran.status, ran.json["label"], ran.json["total"]) == (201, "nightly, run by hand", 1)
    await rig.work()
    [result] = (await rig.ada.get(f"/api/jobs/{ran.json['id']}/results")).lines
    assert result["result"] == {"n": 7}


async def test_another_owners_schedule_does_not_exist_and_a_reader_only_looks(rig: Rig) -> None:
    await add(rig)
    assert (await rig.bob.get("/api/schedules")).json["data"] == []
    reader = rig.visitor("ada", Role.READ)
    for verb in ("pause", "resume", "run"):
        other = await rig.bob.post(f"/api/schedules/nightly/{verb}")
        nobody = await rig.bob.post(f"/api/schedules/nobody1/{verb}")
        assert (other.status, nobody.status) == (404, 404)
        assert other.json["detail"].replace("nightly", "…") == nobody.json["detail"].replace("nobody1", "…")
        assert (await reader.post(f"/api/schedules/nightly/{verb}")).status == 403
    [found] = (await reader.get("/api/schedules")).json["data"]
    assert found["paused_at"] is None
    assert (await rig.ada.get("/api/jobs")).json["data"] == []


async def test_a_run_is_refused_when_nobody_has_the_handler_or_it_refuses_the_payload(sqlite_rig: Rig) -> None:
    await add(sqlite_rig, "lost", handler="gone")
    await add(sqlite_rig, "unfit", handler="fail_as_told", payload="[1]")
    lost = await sqlite_rig.ada.post("/api/schedules/lost/run")
    assert (lost.status, lost.json["detail"]) == (400, "no program or worker has the handler 'gone'")
    unfit = await sqlite_rig.ada.post("/api/schedules/unfit/run")
    assert unfit.status == 400
    assert "the payload does not fit the handler" in unfit.json["detail"]
    assert (await sqlite_rig.ada.get("/api/jobs")).json["data"] == []


async def test_a_name_that_no_schedule_can_have_is_refused(rig: Rig) -> None:
    for verb in ("pause", "resume", "run"):
        assert (await rig.ada.post(f"/api/schedules/%00/{verb}")).status == 422
    for act in (rig.service.store.schedules.get, rig.service.store.schedules.pause, rig.service.store.schedules.remove):
        with pytest.raises(NotFound):
            await act("a\0b", "ada")
