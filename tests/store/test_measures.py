"""What workers measured adds up, is read in steps by its owner alone, and is forgotten after its time."""

from backstay.store.measures import KEPT_MINUTES, MINUTE_MS, Measure, MeasureSlot, MeasureSource, ProviderSpending
from backstay.store.store import Store
from tests.databases import START_MS, Site

NOW = START_MS // MINUTE_MS
ECHO = MeasureSource("ada", "echo", "up")


def measured(minute: int, source: MeasureSource = ECHO, **counts: int) -> dict[MeasureSlot, Measure]:
    return {MeasureSlot(minute, source): Measure(**counts)}


async def test_what_two_workers_wrote_in_a_minute_adds_up(store: Store) -> None:
    await store.measures.add("w1", measured(NOW, succeeded=2, calls=3, latency_ms=300, within_half=3))
    await store.measures.add("w1", measured(NOW, succeeded=1, cost_micros=7))
    await store.measures.add("w2", measured(NOW, failed=1, longer=1))
    [step] = await store.measures.steps("ada", NOW, 1)
    assert step == (
        NOW,
        Measure(succeeded=3, failed=1, calls=3, latency_ms=300, cost_micros=7, within_half=3, longer=1),
    )


async def test_steps_gather_minutes_from_a_beginning_on(store: Store) -> None:
    start = NOW // 5 * 5
    for minute in (start - 6, start - 1, start, start + 4):
        await store.measures.add("w1", measured(minute, succeeded=1))
    await store.measures.add("w1", measured(start, MeasureSource("ada", "ocr", "other"), succeeded=4))
    steps = await store.measures.steps("ada", start - 5, 5)
    assert [(step.minute, step.measure.succeeded) for step in steps] == [(start - 5, 1), (start, 6)]
    day = await store.measures.by_provider("ada", start - 5)
    assert {name: one.succeeded for name, one in day.items()} == {"up": 3, "other": 4}


async def test_an_owner_reads_his_own(store: Store) -> None:
    await store.measures.add("w1", measured(NOW, succeeded=1))
    await store.measures.add("w1", measured(NOW, MeasureSource("bob", "echo", "up"), succeeded=5))
    assert [step.measure.succeeded for step in await store.measures.steps("ada", 0, 1)] == [1]
    assert (await store.measures.by_provider("bob", 0))["up"].succeeded == 5
    assert await store.measures.by_provider("eve", 0) == {}


async def test_a_handler_whose_provider_changed_within_a_minute_is_one_row(store: Store) -> None:
    both = {**measured(NOW, succeeded=1), **measured(NOW, ECHO._replace(provider="down"), succeeded=2)}
    await store.measures.add("w1", both)
    assert [step.measure.succeeded for step in await store.measures.steps("ada", 0, 1)] == [3]


async def test_old_measures_are_forgotten(store: Store, site: Site) -> None:
    await store.measures.add("w1", {**measured(NOW - KEPT_MINUTES - 1, failed=1), **measured(NOW, succeeded=1)})
    await store.measures.forget()
    assert [step.measure for step in await store.measures.steps("ada", 0, 1)] == [Measure(succeeded=1)]
    assert await site.one("SELECT count(*) FROM measures") == 1


async def test_nothing_measured_writes_nothing(store: Store, site: Site) -> None:
    await store.measures.add("w1", {})
    assert await site.one("SELECT count(*) FROM measures") == 0


async def test_spending_is_that_of_all_owners_in_the_last_minutes(store: Store) -> None:
    await store.measures.add("w1", measured(NOW - 61, cost_micros=1, repeats=1))
    await store.measures.add("w1", measured(NOW - 60, cost_micros=20, repeats=1))
    await store.measures.add("w1", measured(NOW, MeasureSource("bob", "echo", "up"), cost_micros=300))
    await store.measures.add("w1", measured(NOW, MeasureSource("bob", "draw", "down"), succeeded=1))
    assert await store.measures.spending(60) == [ProviderSpending("down", 0, 0), ProviderSpending("up", 320, 1)]
