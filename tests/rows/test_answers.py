"""What a stored reply means for its row."""

import json

import pytest

from backstay.app import Backstay
from backstay.core.ids import item_id
from backstay.core.models import Flaw
from backstay.rows.answers import AnswerReader, AnswerType
from backstay.rows.sources import open_rows
from backstay.store.results import ROWS_FIRST, AnswerRow

REPLY = {"model": "m", "choices": [{"message": {"content": '{"stars": "many"}'}, "finish_reason": "stop"}]}


def reader(schema: object = None) -> AnswerReader[object]:
    rows = open_rows(["a"])
    return AnswerReader(lambda: Backstay("sqlite://"), 1, 1, None, (), AnswerType(schema), rows)


def ended(flaw: str | None, attempts: int = 1, micros: int | None = None) -> AnswerRow:
    result = json.dumps({"status_code": 200, "body": REPLY})
    row = AnswerRow(item_id(1, 0), "succeeded", None, attempts, None, result, "{}", flaw)
    return row._replace(input_tokens=5, output_tokens=6, cost_micros=micros)


@pytest.mark.parametrize("flaw", [Flaw.REFUSED, Flaw.FILTERED])
def test_a_refusal_is_an_error_and_its_text_is_kept(flaw: Flaw) -> None:
    answer = reader()._answer(0, {"row": "a"}, ended(flaw))
    assert answer.error is not None
    assert (answer.value, answer.error.kind, answer.error.retryable) == (None, flaw.value, False)
    assert answer.text == '{"stars": "many"}'


@pytest.mark.parametrize(("flaw", "kind"), [(Flaw.TRUNCATED, "truncated"), (None, "invalid")])
def test_a_text_that_does_not_fit_is_an_error_and_never_a_value(flaw: Flaw | None, kind: str) -> None:
    schema = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}
    answer = reader(schema)._answer(0, {"row": "a"}, ended(flaw))
    assert answer.error is not None
    assert (answer.value, answer.error.kind, answer.text) == (None, kind, '{"stars": "many"}')


def test_an_answer_of_an_earlier_run_costs_nothing_and_one_without_a_price_is_unknown() -> None:
    assert reader()._answer(0, {}, ended(None, micros=700)).cost == 0.0007
    assert reader()._answer(0, {}, ended(None)).cost is None
    earlier = reader()._answer(0, {}, ended(None, attempts=0, micros=700))
    assert (earlier.cost, earlier.reused, earlier.usage.input_tokens) == (0.0, True, 0)


def test_a_page_is_as_long_as_the_texts_of_the_page_before_allow() -> None:
    """Rows may hold images: a fixed number of them may not fit in memory."""
    found = reader()
    pages = found.pages(range(1_000))
    assert next(pages) == range(ROWS_FIRST)
    found.page_requests = 7
    assert next(pages) == range(ROWS_FIRST, ROWS_FIRST + 7)
