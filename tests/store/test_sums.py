"""What a settlement counts for, and what the counts say."""

import pytest

from backstay.core.models import Act, Attempt, Settlement
from backstay.core.states import ItemState
from backstay.store.measures import BUCKETS, LATENCY_MS, Measure, MeasureSource, Sums, sum_measures

SOURCE = MeasureSource("ada", "echo", "up")


def settled(state: ItemState, took_ms: int = 10, outcome: str = "succeeded", **more: object) -> Settlement:
    attempt = Attempt(1, 1, 1, outcome, 1_000_000, 1_000_000 + took_ms, None, None, None, None, 5, 7, 11)
    return Settlement(1, 1, state=state, attempt=attempt, **more)  # type: ignore[arg-type]


def test_a_settlement_counts_once_in_each_column_it_belongs_to() -> None:
    sums = Sums()
    sums.add(SOURCE, settled(ItemState.SUCCEEDED), 0)
    sums.add(SOURCE, settled(ItemState.QUEUED, 700, "retry"), 0)
    sums.add(SOURCE, settled(ItemState.FAILED, 90_000, "failed", act=Act.REPEAT), 0)
    found = sum_measures(list(sums.take().values()))
    assert found == Measure(1, 1, 1, 1, 3, 90_710, 33, 15, 21, within_tenth=1, within_one=1, longer=1)


@pytest.mark.parametrize(
    ("took", "column"), [(0, "within_tenth"), (100, "within_tenth"), (101, "within_quarter"), (60_001, "longer")]
)
def test_a_call_is_in_the_first_bucket_that_it_fits(took: int, column: str) -> None:
    measure = Measure()
    measure.add(settled(ItemState.SUCCEEDED, took))
    assert [name for name in BUCKETS if getattr(measure, name)] == [column]


def test_there_is_a_bucket_for_every_bound_and_one_for_the_rest() -> None:
    assert len(BUCKETS) == len(LATENCY_MS) + 1


def test_minutes_are_told_apart() -> None:
    sums = Sums()
    sums.add(SOURCE, settled(ItemState.SUCCEEDED, 10), 0)
    sums.add(SOURCE, settled(ItemState.SUCCEEDED, 60_000), 0)
    sums.add(SOURCE, Settlement(1, 1, state=ItemState.FAILED), 0)
    assert sorted(place.minute for place in sums.take()) == [0, 16, 17]


def test_what_was_taken_can_be_given_back() -> None:
    sums = Sums()
    sums.add(SOURCE, settled(ItemState.SUCCEEDED), 0)
    taken = sums.take()
    assert sums.take() == {}
    sums.add(SOURCE, settled(ItemState.SUCCEEDED), 0)
    sums.give_back(taken)
    assert [measure.succeeded for measure in sums.take().values()] == [2]


def test_what_only_moved_on_is_not_written() -> None:
    sums = Sums()
    sums.add(SOURCE, Settlement(1, 1, state=ItemState.PROCESSING), 0)
    assert sums.take() == {}


def test_most_calls_were_answered_within_a_bound() -> None:
    assert Measure().within_ms(0.95) is None
    assert Measure(calls=100, within_half=95, longer=5).within_ms(0.95) == 500
    assert Measure(calls=100, within_half=94, within_five=6).within_ms(0.95) == 5_000
    assert Measure(calls=100, within_half=94, longer=6).within_ms(0.95) is None
    assert Measure(calls=4, latency_ms=10).mean_ms == 2.5
