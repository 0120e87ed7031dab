"""The lines of the results of Anthropic's batches, and batches as it shows them."""

import json
from typing import Any

import pytest

from backstay.core.models import Failed
from backstay.llm.providers.anthropic.batches import AnthropicResultReader, read_batch, reference_of
from tests.llm.reply_rig import priced

REF = "0123456789abcdef0123456789abcdef01234567"


def read(result: Any) -> Any:
    line = json.dumps({"custom_id": f"backstay-{REF}", "result": result})
    found = AnthropicResultReader(True, priced).read_line(line)
    return None if found is None else found.answer


@pytest.mark.parametrize(
    ("line", "ref"),
    [
        (f'{{"custom_id":"backstay-{REF}","result":{{}}}}', REF),
        (f'{{"result":{{}}, "custom_id" : "backstay-{REF}"}}', REF),
        (f'{{"custom_id":"{REF}"}}', None),
        ('{"custom_id":"backstay-x"}', None),
        ('{"custom_id":7}', None),
        ("<html>", None),
        ("[]", None),
    ],
)
def test_a_line_names_its_request(line: str, ref: str | None) -> None:
    assert reference_of(line.encode()) == ref


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}, 400, "business"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, 529, "infrastructure"),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}}, 429, "throttled"),
        ({"type": "error", "error": {"type": "billing_error", "message": "m"}}, 402, "held"),
        ({"type": "api_error", "message": "m"}, 500, "infrastructure"),
        ({"type": ["odd"]}, 500, "infrastructure"),
        (None, 500, "infrastructure"),
    ],
)
def test_an_error_of_one_request_is_that_of_a_reply(error: Any, status: int, kind: str) -> None:
    outcome = read({"type": "errored", "error": error})
    assert (outcome.failure.provider_status, outcome.failure.kind, outcome.task_ended) == (status, kind, True)
    assert json.loads(outcome.reply)["status_code"] == status


@pytest.mark.parametrize("result", [None, 7, {}, {"type": "new"}, {"type": []}])
def test_a_result_of_an_unknown_kind_is_no_answer(result: Any) -> None:
    assert read(result) is None


@pytest.mark.parametrize("message", [None, 7, "<html>", {}, {"type": "message"}])
def test_a_success_without_a_message_may_have_been_paid(message: Any) -> None:
    outcome = read({"type": "succeeded", "message": message})
    assert (outcome.failure.kind, outcome.task_ended) == ("unknown", True)


def test_a_batch_is_read_leniently() -> None:
    found = read_batch({"id": "b", "processing_status": "new", "created_at": "soon", "request_counts": [1]})
    assert (found.ended, found.created_ms, found.total) == (False, None, 0)


@pytest.mark.parametrize(
    ("kind", "code", "cancelled"), [("canceled", "GW_5XX", True), ("expired", "GW_TIMEOUT", False)]
)
def test_what_was_not_run_is_tried_again(kind: str, code: str, cancelled: bool) -> None:
    """It costs nothing. What this process cancelled itself costs no attempt either, so it is told apart."""
    found = AnthropicResultReader(True, priced).read_line(json.dumps({"result": {"type": kind}}))
    assert found is not None
    assert isinstance(found.answer, Failed)
    assert (found.answer.failure.kind, found.answer.failure.code) == ("infrastructure", code)
    assert (found.answer.task_ended, found.cancelled) == (True, cancelled)
