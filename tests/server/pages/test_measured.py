"""What pages make of what workers measured."""

from backstay.core.measures import MINUTE_MS, Measure, Place, Source
from backstay.server.pages.charts import most_within
from tests.server.pages.reader import reader
from tests.server.pages.scene import staged
from tests.server.rig import Rig


async def test_home_shows_what_workers_measured(rig: Rig) -> None:
    await staged(rig)
    page = await (await reader(rig)).held("/")
    assert "Done in the last hour 12 6 failed" in page.text
    chart = next(one for one in page.all("svg") if one.get("role") == "img")
    assert chart["aria-label"].startswith("Throughput, items a minute: 12 items")
    assert page.all("rect")


async def test_a_day_on_home_is_no_longer_than_a_day(sqlite_rig: Rig) -> None:
    service = sqlite_rig.service
    now, source = service.main.clock.now_ms() // MINUTE_MS, Source("ada", "echo", "echo")
    for minutes_ago, repeats in ((23 * 60, 3), (24 * 60 + 30, 40)):
        await service.store.measures.add("w", {Place(now - minutes_ago, source): Measure(repeats=repeats)})
    page = await (await reader(sqlite_rig)).held("/")
    assert "Sent twice within a day 3 may" in page.text


def test_how_long_most_calls_took_is_said_as_far_as_it_was_measured() -> None:
    assert most_within(Measure()) == "no calls"
    assert most_within(Measure(calls=100, within_half=95, longer=5)) == "95 % within 500 ms"
    assert most_within(Measure(calls=100, within_half=94, longer=6)) == "more than 5 % over 60.0 s"
