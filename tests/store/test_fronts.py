"""Fronts: a claim starts where the last one ended, and still finds everything that is below."""

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backstay.core.ids import item_range
from backstay.store.databases.database import ALL_MS, HEAD_SECONDS, HEAD_SECONDS_MAX, LATE_COMMIT_MS, Database, Front
from backstay.store.items import Want
from backstay.store.queries import POSTGRES, SQLITE, Ask
from tests.databases import Ticker
from tests.simulation import fronts
from tests.store.store_rig import LEASE_MS, Scene

SLOW = 0.1
QUICK = 0.001


class Index:
    """Rows in order, and a look along them whose time is the test's."""

    def __init__(self, dialect: Any = POSTGRES) -> None:
        self.clock = Ticker()
        self.clock.ms = 1_000_000
        self.front = Front(cast(Database, SimpleNamespace(clock=self.clock, dialect=dialect)))
        self.keys: list[int] = list(range(1, 1_000))
        self.starts: list[int] = []

    def look(self, n: int, seconds: float = QUICK) -> list[int]:
        """Takes the next n keys, as a claim does."""
        script = self.front.look(self._ask, n, int)
        next(script)
        try:
            while True:
                found = [key for key in self.keys if key >= self.starts[-1]][:n]
                self.keys = [key for key in self.keys if key not in found]
                self.wait(seconds)
                script.send(found)
        except StopIteration as ended:
            return cast(list[int], ended.value)

    def _ask(self, start: int) -> Ask:
        self.starts.append(start)
        return Ask("claim", {})

    def wait(self, seconds: float) -> None:
        self.clock.ms += round(seconds * 1000)


def test_while_looks_from_the_head_are_quick_every_look_is_one() -> None:
    index = Index()
    for _ in range(5):
        index.look(10)
    assert index.starts == [0] * 5


def test_after_a_slow_look_from_the_head_the_next_starts_where_it_ended() -> None:
    index = Index()
    index.look(10, SLOW)
    assert index.look(10) == list(range(11, 21))
    assert index.starts == [0, 10]


def test_a_database_that_keeps_no_entries_is_always_read_from_the_head() -> None:
    index = Index(SQLITE)
    index.look(10, SLOW)
    index.look(10, SLOW)
    assert index.starts == [0, 0]


def test_what_comes_below_the_front_is_found_within_a_second() -> None:
    index = Index()
    index.look(10, SLOW)
    index.keys.insert(0, 0)
    assert 0 not in index.look(10)
    assert index.front.again_ms is not None
    assert index.front.again_ms <= HEAD_SECONDS * 1000
    index.wait(index.front.again_ms / 1000)
    assert index.look(1, SLOW) == [0]
    assert index.front.again_ms is None, "nothing is below"


def test_when_nothing_is_left_behind_the_front_the_look_starts_at_the_head_once() -> None:
    index = Index()
    index.look(998, SLOW)
    index.keys.insert(0, 0)
    assert index.look(10) == [999]
    assert index.look(10, SLOW) == [0]
    assert index.look(10, SLOW) == []
    index.starts.clear()
    index.keys = [0]
    assert index.look(10) == [], "an idle worker does not read the whole index each time it is woken"
    assert len(index.starts) == 1
    assert index.front.again_ms is not None


def test_a_look_that_did_not_start_at_the_head_never_says_that_it_found_all() -> None:
    """Also if the time of the next look from the head came while it ran."""
    index = Index()
    index.look(10, SLOW)
    index.look(10, 5.0)
    assert index.front.again_ms == 1


def test_a_look_that_took_a_minute_does_not_put_off_the_next_one_for_long() -> None:
    """It waited for a lock, or the machine slept."""
    index = Index()
    index.look(10, 60.0)
    index.look(10)
    assert index.front.again_ms is not None
    assert index.front.again_ms <= HEAD_SECONDS_MAX * 1000


def test_slow_looks_from_the_head_take_about_a_twentieth_of_the_time() -> None:
    index = Index()
    slow = 0.0
    for _ in range(2_000):
        from_head = index.front._is_head_next()
        index.look(0, 0.02 if from_head else QUICK)
        slow += 0.02 * from_head
        index.wait(QUICK)
    assert slow < 0.07 * (index.clock.ms - 1_000_000) / 1000


def test_if_other_looks_are_as_slow_every_look_starts_at_the_head_again() -> None:
    """A slow machine is no reason to look past what is below."""
    index = Index()
    index.look(10, SLOW)
    index.look(10, SLOW)
    index.wait(HEAD_SECONDS)
    for _ in range(3):
        index.look(10, SLOW)
    assert index.starts == [0, 10, 0, 0, 0]


def test_a_look_back_reads_what_became_due_since_the_last_one_and_late_commits() -> None:
    index = Index()
    asked: list[int] = []

    def ask(back_ms: int) -> Ask:
        asked.append(back_ms)
        return Ask("promote", {})

    def look(rows: int, seconds: float) -> None:
        script = index.front.look_back(ask, 10)
        next(script)
        index.wait(seconds)
        with pytest.raises(StopIteration):
            script.send([1] * rows)

    look(0, SLOW)
    index.wait(0.4)
    look(10, QUICK)  # full: there may be more
    index.wait(0.1)
    look(0, QUICK)
    index.wait(HEAD_SECONDS)
    look(0, SLOW)
    assert asked == [ALL_MS, 500 + LATE_COMMIT_MS, pytest.approx(601 + LATE_COMMIT_MS, abs=1), ALL_MS]


@pytest.fixture
def always_slow() -> Iterator[None]:
    """Every look from the head counts as slow, so that fronts are used as long as they ever are."""

    with fronts.used():
        yield


async def claim(scene: Scene, n: int, from_key: int = 0) -> list[int]:
    wants = [Want("echo", n, 1_000, from_key=from_key)]
    return [item.id for item in (await scene.store.items.claim(wants, "w", LEASE_MS)).items]


@pytest.mark.usefixtures("always_slow")
@pytest.mark.parametrize("site_url", ["postgres"], indirect=True)
class TestOnPostgres:
    """SQLite is always read from the head."""

    async def test_a_job_of_higher_priority_is_found_within_a_second(self, scene: Scene) -> None:
        await scene.submit(20)
        assert len(await claim(scene, 5)) == 5
        urgent = await scene.submit(2, priority=9)
        low = await claim(scene, 5)
        assert not set(low) & set(range(*item_range(urgent)))
        await scene.site.advance(HEAD_SECONDS)
        assert (await claim(scene, 5))[-2:] == list(range(*item_range(urgent)))[:2]

    async def test_a_claim_that_starts_at_a_lower_priority_does_not_move_the_front(self, scene: Scene) -> None:
        urgent = await scene.submit(20, priority=9)
        low = await scene.submit(20, priority=0)
        from_key = (await scene.site.rows(f"SELECT min(order_key) FROM items WHERE job_id = {low}"))[0][0]
        first, after = item_range(urgent)
        assert all(first <= item < after for item in await claim(scene, 5))
        assert not any(first <= item < after for item in await claim(scene, 5, from_key))
        assert all(first <= item < after for item in await claim(scene, 5))

    async def test_nothing_is_left_whatever_order_items_come_in(self, scene: Scene) -> None:
        rng = Random(7)
        claimed: list[int] = []
        for _ in range(30):
            await scene.submit(rng.randint(1, 9), priority=rng.randint(0, 9))
            claimed += await claim(scene, rng.randint(1, 12))
        for _ in range(60):
            await scene.site.advance(HEAD_SECONDS / 3)
            claimed += await claim(scene, 10)
        [[total]] = await scene.site.rows("SELECT count(*) FROM items")
        assert len(claimed) == len(set(claimed)) == total
