"""The page of schedules: what it shows of each, and its buttons."""

import sqlite3
from contextlib import closing

from backstay.core.models import NewSchedule
from backstay.store.keys import Role
from tests.server.pages.reader import reader
from tests.server.rig import Rig


async def add(rig: Rig, name: str, handler: str = "echo") -> None:
    await rig.service.store.schedules.add(NewSchedule(name, handler, "30 2 * * *", "Europe/Berlin"), "ada")


async def test_the_page_shows_times_policy_and_error_and_its_buttons_work(rig: Rig) -> None:
    await add(rig, "nightly")
    found = await reader(rig)
    page = await found.held("/schedules")
    for said in ("nightly", "30 2 * * *", "Europe/Berlin", "02:30 CE", "fire once"):
        assert said in page.text, said
    assert {"/schedules/nightly/pause", "/schedules/nightly/run"} <= set(page.actions)
    paused = await found.follow(await found.post("/schedules/nightly/pause"))
    assert "Schedule nightly is paused" in paused.text
    assert "/schedules/nightly/resume" in paused.actions
    resumed = await found.follow(await found.post("/schedules/nightly/resume"))
    assert "/schedules/nightly/pause" in resumed.actions
    ran = await found.follow(await found.post("/schedules/nightly/run"))
    assert "Schedule nightly runs now as job 1." in ran.text
    assert (await rig.ada.get("/api/jobs/1")).json["label"] == "nightly, run by hand"


async def test_an_error_of_one_schedule_is_shown_beside_the_others(sqlite_rig: Rig) -> None:
    await add(sqlite_rig, "good")
    await add(sqlite_rig, "lost", "gone")
    with closing(sqlite3.connect(sqlite_rig.made.url.removeprefix("sqlite:///"), isolation_level=None)) as database:
        database.execute("UPDATE schedules SET error = 'no worker has <b>it</b>', error_at = 1 WHERE name = 'lost'")
    found = await reader(sqlite_rig)
    page = await found.held("/schedules")
    assert "no worker has <b>it</b>" in page.text, "as text"
    assert "good" in page.text
    refused = await found.follow(await found.post("/schedules/lost/run"))
    assert "Not run: no program or worker has the handler 'gone'." in refused.text
    assert (await sqlite_rig.ada.get("/api/jobs")).json["data"] == []


async def test_a_reader_is_shown_schedules_and_no_buttons(sqlite_rig: Rig) -> None:
    await add(sqlite_rig, "nightly")
    page = await (await reader(sqlite_rig, "ada", Role.READ)).held("/schedules")
    assert "nightly" in page.text
    assert not [action for action in page.actions if action.startswith("/schedules")]


async def test_pages_of_many_schedules_follow_each_other(sqlite_rig: Rig) -> None:
    for number in range(101):
        await add(sqlite_rig, f"s-{number:03}")
    found = await reader(sqlite_rig)
    first = await found.held("/schedules")
    [following] = [link for link in first.links if "after=" in link]
    second = await found.held(following)
    assert "s-100" not in first.text
    assert "s-100" in second.text
    assert "s-099" not in second.text


async def test_a_name_that_never_was_is_not_found(sqlite_rig: Rig) -> None:
    found = await reader(sqlite_rig)
    for name in ("nobody", "a%2Fb", "%3Cb%3E", "x" * 300):
        assert (await found.post(f"/schedules/{name}/pause")).status == 404, name
