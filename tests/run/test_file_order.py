"""The order of a file can be told from its copies alone."""

from hypothesis import given
from hypothesis import strategies as st

from backstay.run.collector import FileOrder, LinePlace


@given(st.lists(st.integers(0, 5), max_size=40))
def test_items_and_copies_stand_as_in_the_file(choices: list[int]) -> None:
    """A choice below the number of items so far is a copy of that one, any other a new item."""
    items, order, file = 0, FileOrder(), []
    for number, choice in enumerate(choices, 1):
        if choice < items:
            order.add(choice, number)
            file.append(LinePlace(choice, number))
        else:
            file.append(LinePlace(items))
            items += 1
    assert list(order.places(items)) == file


def test_nothing_is_lost_or_doubled_while_not_all_copies_are_known() -> None:
    order = FileOrder()
    order.add(0, 9)
    assert list(order.places(3)) == [LinePlace(0), LinePlace(1), LinePlace(2), LinePlace(0, 9)]
