"""The set of positions that are written: exact, and small for a million of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.ids import POSITIONS_MAX
from backstay.run.result_file import Positions


def test_the_memory_for_a_million_positions_is_125_kb() -> None:
    positions = Positions()
    for position in range(1_000_000):
        positions.add(position)
    assert (positions.bytes_used, len(positions)) == (125_000, 1_000_000)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300))))
def test_positions_are_a_set(acts: list[tuple[bool, int]]) -> None:
    positions, model = Positions(), set()
    for adds, position in acts:
        if adds:
            assert positions.add(position) == (position not in model)
            model.add(position)
        else:
            positions.discard(position)
            model.discard(position)
    assert [position for position in range(400) if position in positions] == sorted(model)
    assert len(positions) == len(model)


@pytest.mark.parametrize("position", [-1, POSITIONS_MAX])
def test_there_is_no_position_out_of_range(position: int) -> None:
    with pytest.raises(ValueError, match="not a position"):
        Positions().add(position)
