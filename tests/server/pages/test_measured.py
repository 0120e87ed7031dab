"""What pages make of what workers measured."""

import sqlite3

from backstay.server.pages.figures import most_within
from backstay.server.pages.home import QUEUES_SHOWN
from backstay.store.measures import MINUTE_MS, Measure, MeasureSlot, MeasureSource
from tests.server.pages.reader import reader
from tests.server.pages.scene import staged
from tests.server.rig import Rig


async def test_home_shows_what_workers_measured(rig: Rig) -> None:
    await staged(rig)
    page = await (await reader(rig)).held("/")
    assert "Done in the last hour 12 6 failed" in page.text
    chart = next(one for one in page.all("svg") if one.get("role") == "img")
    assert chart["aria-label"].startswith("Throughput, items per minute: 12 items")
    assert page.all("rect")


async def test_a_day_on_home_is_no_longer_than_a_day(sqlite_rig: Rig) -> None:
    service = sqlite_rig.service
    now, source = service.main.clock.now_ms() // MINUTE_MS, MeasureSource("ada", "echo", "echo")
    for minutes_ago, repeats in ((23 * 60, 3), (24 * 60 + 30, 40)):
        await service.store.measures.add("w", {MeasureSlot(now - minutes_ago, source): Measure(repeats=repeats)})
    page = await (await reader(sqlite_rig)).held("/")
    assert "Lost answers, last 24 h 3 the calls may have been paid" in page.text


async def test_home_stays_short_however_many_handlers_have_work(sqlite_rig: Rig) -> None:
    for _ in range(QUEUES_SHOWN + 2):
        await sqlite_rig.submit("echo")
    connection = sqlite3.connect(sqlite_rig.made.url.removeprefix("sqlite:///"), timeout=30)
    with connection:
        connection.execute("UPDATE jobs SET handler = 'h' || id")
    connection.close()
    page = await (await reader(sqlite_rig)).held("/")
    assert "And 2 smaller ones." in page.text
    assert page.text.count("No live worker runs h") == 5
    assert f"No live worker runs {QUEUES_SHOWN + 2 - 5} more handlers with items that wait." in page.text


async def test_home_stays_short_however_many_providers_are_held(sqlite_rig: Rig) -> None:
    for number in range(12):
        await sqlite_rig.service.store.providers.hold(f"p{number}", "a while ago", None)
    page = await (await reader(sqlite_rig)).held("/")
    assert page.text.count("it is on hold: a while ago") == 5
    assert "7 more providers busy, jobs resume by themselves." in page.text


def test_how_long_most_calls_took_is_said_as_far_as_it_was_measured() -> None:
    assert most_within(Measure()) == "no calls"
    assert most_within(Measure(calls=100, within_half=95, longer=5)) == "95 % within 500 ms"
    assert most_within(Measure(calls=100, within_half=94, longer=6)) == "more than 5 % over 60.0 s"
