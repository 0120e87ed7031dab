"""Where items stand in the queue, by priority and turn."""

from random import Random

import pytest

from backstay.core.ids import LOW_PRIORITY_SHARE, PRIORITY_MAX, TURN_BITS, draw_start, level_key, level_of


@pytest.mark.parametrize("turn", [0, 1, (1 << TURN_BITS) - 1])
def test_a_higher_priority_goes_before_every_turn_of_a_lower_one(turn):
    levels = [level_key(priority) for priority in range(PRIORITY_MAX + 1)]
    assert levels == sorted(levels, reverse=True)
    for level, lower in zip(levels[1:], levels, strict=False):
        assert level + turn < lower
        assert level_of(level + turn) == level


def test_the_last_key_fits_into_a_database():
    assert level_key(0) + (1 << TURN_BITS) - 1 < 1 << 63


def test_most_claims_start_at_the_head_and_some_at_every_lower_priority():
    rng = Random(1)
    starts = [draw_start(rng) for _ in range(20_000)]
    assert 0.9 < starts.count(0) / len(starts) < 1 - 0.9 / LOW_PRIORITY_SHARE
    assert set(starts) - {0} == {level_key(priority) for priority in range(PRIORITY_MAX)}
