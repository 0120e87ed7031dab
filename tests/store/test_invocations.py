"""Ticks are written down before they do anything, so that one that was killed is known by it."""

from backstay.store.store import Store
from backstay.store.workers import GRACE_MS, INVOCATIONS_KEPT_MS, RecentTicks
from tests.databases import Site

HOUR_MS = 3_600_000


async def test_ticks_of_the_last_hour_are_counted_by_what_became_of_them(store: Store) -> None:
    for name, depth in (("a", 0), ("b", 1), ("c", 2), ("d", 0)):
        await store.invocations.begin(name, depth, 600)
    await store.invocations.end("a", 10, was_full=False)
    await store.invocations.end("b", 10, was_full=False)
    await store.invocations.end("c", 10, was_full=True)
    assert await store.invocations.lately(HOUR_MS) == RecentTicks(ticks=4, chains=2, chains_full=1, failed=0)
    await store.invocations.fail("d", "DatabaseUnreachable")
    assert (await store.invocations.lately(HOUR_MS)).failed == 1


async def test_one_that_never_ended_failed_once_it_can_no_longer_be_running(store: Store, site: Site) -> None:
    await store.invocations.begin("a", 0, 600)
    await site.advance(600 + GRACE_MS / 1000)
    assert (await store.invocations.lately(HOUR_MS)).failed == 0
    await site.advance(0.001)
    assert (await store.invocations.lately(HOUR_MS)).failed == 1


async def test_a_follow_up_that_could_not_be_asked_for_is_a_failure_of_a_tick_that_ended(store: Store) -> None:
    await store.invocations.begin("a", 0, 600)
    await store.invocations.end("a", 10, was_full=False)
    await store.invocations.fail("a", "no follow-up of depth 1")
    assert await store.invocations.lately(HOUR_MS) == RecentTicks(ticks=1, chains=1, chains_full=0, failed=1)


async def test_an_hour_later_nothing_of_it_counts_and_after_its_time_it_is_forgotten(store: Store, site: Site) -> None:
    await store.invocations.begin("a", 0, 600)
    await site.advance(HOUR_MS / 1000)
    assert await store.invocations.lately(HOUR_MS) == RecentTicks(0, 0, 0, 0)
    await site.advance(INVOCATIONS_KEPT_MS / 1000)
    await store.invocations.begin("b", 0, 600)
    assert await site.one("SELECT count(*) FROM invocations") == 1
