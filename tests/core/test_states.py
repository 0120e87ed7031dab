"""The one table of what may follow what, item ids and the order of claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.core.ids import POSITIONS_MAX, item_id, item_range, job_of, position_of, read_item, show_item
from backstay.core.states import TERMINAL, TRANSITIONS, UNFINISHED, ItemState

DAY = 86_400_000


def test_every_state_has_its_row_in_the_table():
    assert set(TRANSITIONS) == set(ItemState)


def test_ends_are_final_but_a_failure_can_be_retried_or_mended_by_a_late_result():
    assert {state: set(TRANSITIONS[state]) for state in TERMINAL if TRANSITIONS[state]} == {
        ItemState.FAILED: {ItemState.QUEUED, ItemState.PROCESSING, ItemState.SUCCEEDED}
    }


def test_nothing_gets_to_the_provider_but_through_a_claim():
    assert [state for state in ItemState if ItemState.PROCESSING in TRANSITIONS[state]] == [
        ItemState.SUBMITTING,
        ItemState.PROCESSING,
        ItemState.FAILED,  # a person retries an item whose task is still at the provider: nothing is sent
    ]
    claimed_from = {state for state in ItemState if ItemState.SUBMITTING in TRANSITIONS[state]}
    assert claimed_from == {ItemState.QUEUED, ItemState.SUBMITTING}


@pytest.mark.parametrize("state", sorted(UNFINISHED))
def test_every_unfinished_state_can_fail_and_be_cancelled(state):
    assert {ItemState.FAILED, ItemState.CANCELLED} <= TRANSITIONS[state]


jobs = st.integers(min_value=1, max_value=(1 << 35) - 1)
positions = st.integers(min_value=0, max_value=POSITIONS_MAX - 1)


@given(jobs, positions)
def test_an_item_id_is_its_job_and_its_position(job, position):
    item = item_id(job, position)
    assert (job_of(item), position_of(item)) == (job, position)
    assert read_item(show_item(item)) == item < 1 << 63
    first, after = item_range(job)
    assert first <= item < after


@pytest.mark.parametrize(
    "text",
    ["", "12", "12-", "-3", "a-1", "1-b", "1-2-3", "\u0661-\u0662", "1 -2", f"1-{POSITIONS_MAX}", f"{1 << 35}-0"],
)
def test_what_is_no_item_id_is_refused(text):
    with pytest.raises(UsageError):
        read_item(text)
