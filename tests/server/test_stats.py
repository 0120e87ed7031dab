"""Figures, workers, and the breakers and holds of providers over HTTP."""

from backstay.store.keys import Role
from tests.server.rig import Rig
from tests.server.test_jobs import problem


async def test_the_figures_are_the_owners_alone(rig: Rig) -> None:
    await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {}])
    await rig.work()
    await rig.submit(items=[1, 2, 3])
    stats = (await rig.ada.get("/api/stats")).json
    assert [(one["handler"], one["jobs"], one["items"]) for one in stats["backlog"]] == [("echo", 1, 3)]
    assert (stats["recent"]["jobs"], stats["recent"]["succeeded"], stats["recent"]["failed"]) == (2, 1, 1)
    assert stats["held"] == []
    bobs = (await rig.bob.get("/api/stats")).json
    assert (bobs["backlog"], bobs["recent"]["jobs"]) == ([], 0)


async def test_a_provider_is_held_and_released_by_an_admin(rig: Rig) -> None:
    await rig.submit()
    names = [one["provider"] for one in (await rig.ada.get("/api/providers")).json["data"]]
    assert "echo" in names
    path = "/api/providers/echo"
    held = await rig.ada.post(f"{path}/hold", json={"reason": "quota\nused up", "seconds": 60})
    assert (held.json["state"], held.json["reason"]) == ("held", "quota")
    assert [one["provider"] for one in (await rig.bob.get("/api/stats")).json["held"]] == ["echo"]
    await rig.work()
    assert (await rig.ada.get("/api/stats")).json["backlog"][0]["items"] == 1
    problem(await rig.visitor("ada", Role.WRITE).post(f"{path}/release"), 403)
    for act in ("hold", "release"):
        refused = problem(await rig.bob.post(f"{path}/{act}"), 403)  # an admin, but of another owner's work
        assert "admin key of the service's own owner" in refused["hint"]
    assert (await rig.bob.get(path)).json["state"] == "held"
    assert (await rig.ada.post(f"{path}/hold")).json["reason"] == "an operator asked for it"
    assert (await rig.ada.post(f"{path}/release")).json["state"] == "closed"
    assert (await rig.ada.get(path)).json["state"] == "closed"
    await rig.work()
    assert (await rig.ada.get("/api/stats")).json["backlog"] == []


async def test_a_provider_nobody_told_of_is_not_found(sqlite_rig: Rig) -> None:
    problem(await sqlite_rig.ada.get("/api/providers/nobody"), 404)
    problem(await sqlite_rig.ada.post("/api/providers/nobody/hold", json={}), 404)
    problem(await sqlite_rig.ada.post("/api/providers/nobody/release"), 404)
    problem(await sqlite_rig.ada.post("/api/providers/echo/hold", json={"seconds": 0}), 422)


async def test_workers_are_shown_to_an_admin(rig: Rig) -> None:
    await rig.submit()
    await rig.work()
    problem(await rig.visitor("ada", Role.READ).get("/api/workers"), 403)
    assert isinstance((await rig.ada.get("/api/workers")).json["data"], list)
