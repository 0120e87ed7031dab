"""What the files of an ended batch say: read whole, whatever is odd about them."""

import hashlib
import io
import json
from typing import Any

import pytest

from backstay.core.failures import ErrorCode, FailureKind
from backstay.core.models import Failed, Succeeded
from backstay.llm.batch_results import BatchResultFile, BatchResults, LineIndex, references_by_number
from backstay.llm.endpoint import Endpoint, Veil
from backstay.llm.prices import LanePrices
from backstay.llm.providers.openai.batch_api import LineError, OpenAiBatch, read_batch, reference_of
from backstay.llm.providers.openai.batches import OpenAiResultReader

KEY = "sk-Zm9v/YmFy"
A, B, C = (hashlib.sha256(name.encode()).hexdigest()[:40] for name in "abc")
CHAT = {"model": "m", "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
GOOD = {"status_code": 200, "request_id": "req_1", "body": CHAT}


def view(status: str = "completed", *errors: LineError) -> OpenAiBatch:
    return OpenAiBatch("batch_1", status, "file-in", None, None, 0, "m", 3, 3, errors, True)


def line(ref: str, response: Any = None, error: Any = None) -> bytes:
    return json.dumps({"id": "batch_req_1", "custom_id": ref, "response": response, "error": error}).encode() + b"\n"


def result_file(content: bytes) -> BatchResultFile:
    file = io.BytesIO(content)
    return BatchResultFile(file, reference_of)


def results(
    *contents: bytes, batch: OpenAiBatch | None = None, whole: bool = True, named: LineIndex | None = None
) -> BatchResults:
    prices, veil = LanePrices(Endpoint("http://127.0.0.1/v1", price=(1_000_000, 2_000_000))), Veil([KEY])
    batch = batch or view()
    reader = OpenAiResultReader(batch, whole, named, prices)
    return BatchResults(batch, list(map(result_file, contents)), reader, veil)


def failed(of: BatchResults, ref: str = A) -> Failed:
    answer = of.answer(ref, 60_000)
    assert isinstance(answer, Failed)
    assert answer.task_ended
    return answer


def test_a_result_is_the_response_of_its_line_byte_for_byte_with_what_it_cost() -> None:
    response = (
        '{"body" : {"model":"m", "n":1.00, "usage":{"prompt_tokens":10,"completion_tokens":5}}, "status_code":200}'
    )
    text = f'{{"custom_id": "{A}", "error": null, "response": {response}}}\r\n'
    answer = results(line(B, GOOD) + text.encode()).answer(A, 0)
    assert isinstance(answer, Succeeded)
    body = '{"model":"m", "n":1.00, "usage":{"prompt_tokens":10,"completion_tokens":5}}'
    assert answer.result == f'{{"status_code":200,"request_id":"","body":{body}}}'
    assert answer.usage == (10, 5, 20)


def test_a_key_that_a_file_of_results_repeats_is_in_no_answer_however_it_is_written() -> None:
    spelt = "".join(f"\\u{ord(each):04X}" for each in KEY)
    repeated = f'{{"model":"m","said":"{KEY} {spelt}"}}'
    good = f'{{"custom_id":"{A}","response":{{"status_code":200,"request_id":"{spelt}","body":{repeated}}}}}\n'
    bad = f'{{"custom_id":"{B}","response":null,"error":{{"code":"invalid_key","message":"no {spelt}"}}}}\n'
    ended = results((good + bad).encode())
    answer = ended.answer(A, 0)
    assert isinstance(answer, Succeeded)
    assert answer.result == (
        '{"status_code":200,"request_id":"<secret>","body":{"model":"m","said":"<secret> <secret>"}}'
    )
    assert failed(ended, B).failure.message == "no <secret> (invalid_key)"


def test_both_files_are_read_and_a_success_wins_over_all_else() -> None:
    refused = {"status_code": 400, "request_id": "", "body": {"error": {"message": "no", "code": "invalid"}}}
    ended = results(line(A, refused) + line(A, GOOD), line(B, refused) + line(A, None, {"code": "x"}))
    assert isinstance(ended.answer(A, 0), Succeeded)
    assert (failed(ended, B).failure.kind, failed(ended, B).failure.provider_status) == (FailureKind.BUSINESS, 400)


@pytest.mark.parametrize(
    ("response", "error", "code", "kind"),
    [
        ({"status_code": 0, "request_id": "", "body": {}}, None, "GW_5XX", FailureKind.INFRASTRUCTURE),
        ({"status_code": None, "body": None}, None, "GW_5XX", FailureKind.INFRASTRUCTURE),
        ({"status_code": 200, "request_id": None, "body": None}, None, "GW_5XX", FailureKind.UNKNOWN),
        ({"status_code": 429, "body": {"error": {"message": "slow"}}}, None, "GW_4XX", FailureKind.THROTTLED),
        ({"status_code": 500, "body": "oh"}, None, "GW_5XX", FailureKind.INFRASTRUCTURE),
        ({"status_code": 401, "body": {}}, None, "FORBIDDEN", FailureKind.HELD),
        (None, {"code": "batch_expired", "message": "late"}, "GW_TIMEOUT", FailureKind.INFRASTRUCTURE),
        (None, {"code": "batch_cancelled", "message": None}, "GW_5XX", FailureKind.INFRASTRUCTURE),
        (None, {"code": "invalid_prompt", "message": "no"}, "GW_4XX", FailureKind.BUSINESS),
        (None, "words", "GW_5XX", FailureKind.INFRASTRUCTURE),
        (None, None, "UNKNOWN", FailureKind.UNKNOWN),
        ("words", None, "UNKNOWN", FailureKind.UNKNOWN),
    ],
)
def test_a_line_that_is_no_success_says_what_it_stands_for(
    response: Any, error: Any, code: str, kind: FailureKind
) -> None:
    failure = failed(results(line(A, response, error))).failure
    assert (failure.code, failure.kind) == (code, kind)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"no json\n",
        b"[1]\n",
        b'{"custom_id": 7}\n',
        b'{"custom_id": "someone else\'s", "response": null}\n',
        b"\xff\xfe\n",
        line(B, GOOD),
        line("G" + A[1:], GOOD),
    ],
)
def test_a_request_without_a_line_may_have_been_paid_for(content: bytes) -> None:
    assert failed(results(content)).failure.kind is FailureKind.UNKNOWN


@pytest.mark.parametrize("cut", [60, 90, 150])
def test_a_line_that_breaks_off_is_an_unknown_outcome(cut: int) -> None:
    assert failed(results(line(A, GOOD)[:cut])).failure.kind is FailureKind.UNKNOWN


@pytest.mark.parametrize("status", ["expired", "cancelled"])
def test_what_a_batch_left_undone_was_not_paid_for_unless_its_results_are_gone(status: str) -> None:
    assert failed(results(batch=view(status))).failure.kind is FailureKind.INFRASTRUCTURE
    assert failed(results(batch=view(status), whole=False)).failure.kind is FailureKind.UNKNOWN


def test_a_batch_that_was_cancelled_here_costs_its_requests_no_attempt() -> None:
    undone = line(A, None, {"code": "batch_cancelled", "message": "stop"}) + line(C, None, {"code": "server_error"})
    ended = results(undone, batch=view("cancelled"))
    kinds = [ended.answer(ref, 0, cancelled_here=True) for ref in (A, B, C)]
    assert [each.failure.kind for each in kinds if isinstance(each, Failed)] == [
        FailureKind.THROTTLED, FailureKind.THROTTLED, FailureKind.INFRASTRUCTURE
    ]  # fmt: skip


def test_only_a_code_says_that_a_request_was_cancelled_whatever_its_message_says() -> None:
    odd = line(A, None, {"message": "odd (batch_cancelled)"}) + line(B, None, {"code": "batch_cancelled"})
    kinds = [results(odd, batch=view("cancelled")).answer(ref, 0, cancelled_here=True) for ref in (A, B)]
    found = [each.failure.kind for each in kinds if isinstance(each, Failed)]
    assert found == [FailureKind.INFRASTRUCTURE, FailureKind.THROTTLED]


INPUT = LineIndex([(A, 1), (B, 2), (C, 3)])


def test_of_a_batch_that_is_not_valid_only_the_named_requests_fail() -> None:
    batch = view("failed", LineError("invalid_url", "wrong", 2), LineError("model_not_found", "none", 9))
    ended = results(batch=batch, named=INPUT)
    assert failed(ended, B).failure.kind is FailureKind.BUSINESS
    assert failed(ended, B).failure.message == "wrong (invalid_url)"
    assert failed(ended, A).failure.kind is FailureKind.THROTTLED


@pytest.mark.parametrize("errors", [(), (LineError("empty_file", "none", None),), (LineError("odd", "line", 7),)])
def test_a_batch_refused_for_no_request_of_its_own_costs_each_an_attempt(errors: tuple[LineError, ...]) -> None:
    ended = results(batch=view("failed", *errors), named=INPUT)
    assert {failed(ended, ref).failure.kind for ref in (A, B, C)} == {FailureKind.INFRASTRUCTURE}


def test_a_batch_over_the_limit_of_tokens_waits() -> None:
    ended = results(batch=view("failed", LineError("token_limit_exceeded", "Enqueued token limit reached", None)))
    failure = failed(ended).failure
    assert (ended.too_many_tokens, failure.kind, failure.retry_after_ms) == (True, FailureKind.THROTTLED, 60_000)
    assert failure.code is ErrorCode.GW_4XX


def test_a_batch_is_read_with_nulls_and_empty_texts_where_others_have_values() -> None:
    said = {"id": "b", "status": "completed", "output_file_id": "f", "error_file_id": "", "errors": None}
    odd = {**said, "request_counts": {"total": None, "completed": None, "failed": None}, "metadata": None}
    read = read_batch(odd)
    assert (read.output_file_id, read.error_file_id, read.total, read.percent, read.marked) == (
        "f",
        None,
        0,
        None,
        False,
    )


def test_an_index_knows_every_place_of_a_reference_and_no_other() -> None:
    index = LineIndex([(A, 7), (B, 1), (A, 3)])
    assert (index.spots(A), index.spots(B), index.spots(C), len(index)) == ([3, 7], [1], [], 3)
    assert A in index
    assert C not in index


def test_requests_are_numbered_as_the_provider_counts_their_lines() -> None:
    content = "".join(f'{{"custom_id":"{ref}","method":"POST","url":"/v1/x","body":{{}}}}\n' for ref in (A, B, C))
    index = LineIndex(references_by_number(io.BytesIO(content.encode()), reference_of))
    assert [index.spots(ref) for ref in (A, B, C)] == [[1], [2], [3]]
