"""Dead letters on the page: grouped, counted, replayed at a pace, archived and restored; and who did it."""

import asyncio
import sqlite3

import pytest

from backstay.server.pages import dead_letters
from backstay.store.keys import Role
from tests.server.pages.reader import Held, Reader, reader
from tests.server.pages.scene import staged
from tests.server.rig import Rig

WAIT_SECONDS = 20


async def test_dead_letters_are_grouped_counted_and_replayed(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    page = await found.held("/dead-letters")
    assert "GW_4XX 2" in page.text
    only = await found.held(f"/dead-letters?code=UNKNOWN&job={scene.failing}")
    assert len([link for link in only.links if link.startswith("/items/")]) == 2 + 3  # and one for each group
    asked = await found.held(f"/dead-letters/replay?code=UNKNOWN&job={scene.failing}")
    assert "2 failed items will be queued again" in asked.text
    hidden = {one["name"]: one["value"] for one in asked.all("input") if one.get("type") == "hidden"}
    assert (hidden["code"], hidden["job"]) == ("UNKNOWN", scene.failing)
    done = await found.follow(await found.post("/dead-letters/replay", code="UNKNOWN", job=scene.failing))
    assert "2 items queued again" in done.text
    assert "UNKNOWN 2" not in (await found.held("/dead-letters")).text
    older = await found.held("/dead-letters/replay?hours=24")
    assert "There are no failed items to retry" in older.text


async def test_a_replay_has_an_entry_of_who_when_and_how_far(rig: Rig) -> None:
    await staged(rig)
    found = await reader(rig)
    asked = await found.held("/dead-letters/replay?code=GW_4XX")
    expected = next(one["value"] for one in asked.all("input") if one.get("name") == "expected")
    done = await found.follow(await found.post("/dead-letters/replay", code="GW_4XX", rate="0,5", expected=expected))
    [bar] = [one for one in done.all("progress") if "replay" in one["aria-label"]]
    assert (bar["max"], int(bar["value"]) < 2) == ("2", True)
    key = rig.keys["ada", Role.ADMIN].split("_")[1]
    assert f"{key} with GW_4XX" in done.text
    assert "0.5 per second" in done.text
    at_once = await found.follow(await found.post("/dead-letters/replay", code="UNKNOWN", expected="2"))
    assert "at once 2 items back in the queue" in at_once.text
    other = await reader(rig, "bob")
    assert key not in (await other.held("/dead-letters")).text


@pytest.mark.parametrize("rate", ["0", "-1", "x", "nan", "inf", "1e9", "0.001", "1" * 400])
async def test_a_pace_that_is_none_is_refused_and_nothing_is_replayed(sqlite_rig: Rig, rate: str) -> None:
    await staged(sqlite_rig)
    found = await reader(sqlite_rig)
    reply = await found.post("/dead-letters/replay", rate=rate)
    assert reply.status == 422
    assert "items per second" in Held(reply.body.decode()).text
    assert not await sqlite_rig.service.store.replays.page("ada", None, 10)


@pytest.mark.parametrize("hours", ["-1", "2", "24 ", "x"])
async def test_an_age_that_is_none_is_refused_and_nothing_is_replayed(sqlite_rig: Rig, hours: str) -> None:
    await staged(sqlite_rig)
    found = await reader(sqlite_rig)
    assert (await found.post("/dead-letters/replay", hours=hours)).status == 400
    assert not await sqlite_rig.service.store.replays.page("ada", None, 10)


async def test_what_takes_long_goes_on_by_itself(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await staged(rig)
    found = await reader(rig)
    monkeypatch.setattr(dead_letters, "PATIENCE_SECONDS", 0.0)
    page = await found.follow(await found.post("/dead-letters/archive", code="GW_5XX"))
    assert "Archiving has started" in page.text
    await until_said(found, "Restore archive 1")
    assert "GW_5XX 2" not in (await found.held("/dead-letters")).text
    page = await found.follow(await found.post("/dead-letters/replay", code="GW_4XX", expected="2"))
    assert "being queued again" in page.text
    await until_said(found, "2 items back in the queue")


async def test_a_replay_that_was_broken_off_says_how_far_it_came(sqlite_rig: Rig) -> None:
    found = await reader(sqlite_rig)
    connection = sqlite3.connect(sqlite_rig.made.url.removeprefix("sqlite:///"), timeout=30)
    with connection:
        connection.execute(
            'INSERT INTO replays (owner, "by", at, filter, items, expected) VALUES (?, ?, ?, ?, ?, ?)',
            ("ada", "ada", 1, '{"job": "3", "older_than_seconds": 7200, "named": 1}', 4_000, 12_000),
        )
    connection.close()
    page = await found.held("/dead-letters")
    assert "of job 3 older than 2 h 1 item by name" in page.text
    assert "4,000 items back in the queue Interrupted before all 12,000 were queued: replay the rest." in page.text


async def test_a_replay_that_goes_on_for_minutes_is_not_taken_for_one_that_was_broken_off(sqlite_rig: Rig) -> None:
    await staged(sqlite_rig)
    found = await reader(sqlite_rig)
    await found.post("/dead-letters/replay", code="GW_4XX", expected="2")
    connection = sqlite3.connect(sqlite_rig.made.url.removeprefix("sqlite:///"), timeout=30)
    with connection:
        connection.execute("UPDATE replays SET at = at - 300000, expected = 9")
    connection.close()
    page = await found.held("/dead-letters")
    assert "2 of 9 items back in the queue" in page.text
    assert "Broken off" not in page.text


async def test_dead_letters_are_archived_and_restored(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    asked = await found.held("/dead-letters/archive?code=GW_4XX")
    assert "2 dead letters found" in asked.text
    done = await found.follow(await found.post("/dead-letters/archive", code="GW_4XX"))
    assert "2 dead letters archived" in done.text
    assert "GW_4XX 2" not in done.text
    assert "There is nothing to archive" in (await found.held("/dead-letters/archive?code=GW_4XX")).text
    again = await found.follow(await found.post("/dead-letters/archive", code="GW_4XX"))
    assert "Nothing was archived" in again.text
    item = await found.held(f"/items/{scene.failed}")
    assert "It is in archive 1 of the dead letters" in item.text
    assert f"/items/{scene.failed}/retry" not in item.actions
    [restore] = [action for action in done.actions if action.endswith("/restore")]
    assert (await (await reader(rig, "bob")).post(restore)).status == 404
    back = await found.follow(await found.post(restore))
    assert "2 dead letters of archive 1 restored" in back.text
    assert f"/items/{scene.failed}/retry" in (await found.held(f"/items/{scene.failed}")).actions
    assert "GW_4XX 2" in back.text
    assert restore not in back.actions
    assert "was already restored" in (await found.follow(await found.post(restore))).text


async def test_only_the_first_are_counted_until_one_asks_for_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await staged(rig)
    found = await reader(rig)
    monkeypatch.setattr(dead_letters, "GROUPED_FIRST", 3)
    page = await found.held("/dead-letters")
    assert "Counted among the first 3 of 6 dead letters" in page.text
    [live] = [one for tag, one in page.elements if one.get("id") == "live"]
    whole = await found.held(live["data-later"])
    assert "GW_4XX 2" in whole.text
    assert "Counted among" not in whole.text


async def test_older_replays_and_archives_are_on_pages_of_their_own(
    sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await staged(sqlite_rig)
    found = await reader(sqlite_rig)
    monkeypatch.setattr(dead_letters, "ROWS_BESIDE", 1)
    for code in ("GW_4XX", "GW_5XX"):
        await found.post("/dead-letters/replay", code=code)
    page = await found.held("/dead-letters")
    assert ("with GW_5XX" in page.text, "with GW_4XX" in page.text) == (True, False)
    [older] = [link for link in page.links if link.startswith("/dead-letters?replays=")]
    assert "with GW_4XX" in (await found.held(older)).text
    filtered = await found.held("/dead-letters?code=UNKNOWN")
    [kept] = [link for link in filtered.links if "replays=" in link]
    assert kept.startswith("/dead-letters?code=UNKNOWN&replays=")
    assert "/dead-letters?code=UNKNOWN" in (await found.held(kept)).links
    assert (await (await reader(sqlite_rig, "bob")).get(older)).status == 400


async def until_said(found: Reader, text: str) -> Held:
    async with asyncio.timeout(WAIT_SECONDS):
        while text not in (page := await found.held("/dead-letters")).text:
            pass
    return page
