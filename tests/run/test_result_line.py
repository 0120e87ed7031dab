"""A line has the Batch output format, and a provider's words in it stand as they came."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.ids import item_id
from backstay.llm.lines import LlmRequest, seal
from backstay.run.result_file import HEAD, EndedRequest, ended_request, lines_of
from backstay.store.results import ResultRow
from tests.run.results import numbered

JOB = 12
BODY = seal(LlmRequest("request-5", "/v1/chat/completions", '{"model": "m"}'))
ANSWER = '{"status_code":200,"request_id":"req_1","body":{"n": 1.50, "é": "\\u00e9"}}'
REFUSAL = '{"status_code":400,"request_id":"req_1","body":{"error":{"message":"no"}}}'


def row(
    state: str,
    code: str | None = None,
    message: str | None = None,
    result: str | None = None,
    flaw: str | None = None,
    status: int | None = None,
) -> ResultRow:
    return ResultRow(item_id(JOB, 5), state, code, 1, 0, message, result, BODY, flaw, status)


@pytest.mark.parametrize("flaw", [None, "truncated"])
def test_a_success_is_spliced_in_byte_for_byte(flaw: str | None) -> None:
    expected = f'{{"id":"batch_req_12-5","custom_id":"request-5","response":{ANSWER},"error":null}}\n'
    ended = ended_request(row("succeeded", result=ANSWER, flaw=flaw))
    assert lines_of(JOB, ended) == expected.encode()
    assert ended.code is None


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_the_metadata_of_a_request_stands_in_its_line_as_it_was_written(state: str) -> None:
    body = seal(LlmRequest("request-5", "/v1/embeddings", '{"model": "m"}', '{"row_id": 1.0, "é": "\\u00e9"}'))
    line = lines_of(JOB, ended_request(row(state, result=ANSWER)._replace(body=body)))
    assert line.endswith(',"metadata":{"row_id": 1.0, "é": "\\u00e9"}}\n'.encode())
    assert json.loads(line)["metadata"] == {"row_id": 1, "é": "é"}


@pytest.mark.parametrize(
    ("ended", "response", "code"),
    [
        (row("failed", "GW_4XX", "no", REFUSAL, status=400), 400, None),
        (row("failed", "GW_4XX", "no", REFUSAL.replace(":4", ": 4"), status=400), 400, None),
        (row("failed", "UNKNOWN", "the provider redirects", REFUSAL.replace("400", "307"), status=307), 307, "UNKNOWN"),
        (row("failed", "GW_TIMEOUT", "it took too long"), None, "GW_TIMEOUT"),
        (
            row("failed", "GW_TIMEOUT", "the deadline passed before the result arrived", ANSWER, "late", 200),
            200,
            "late_result",
        ),
        (row("failed", "UNKNOWN", "the worker was lost during the call", flaw="unknown"), None, "outcome_unknown"),
        (row("failed", "GW_TIMEOUT", "no answer within 60 s", flaw="unknown"), None, "outcome_unknown"),
        (row("failed", "UNKNOWN", "outcome unknown: the words of a handler"), None, "UNKNOWN"),
        (row("failed", "GW_4XX", "the answer is cut off", ANSWER, "truncated"), 200, "truncated"),
        (row("cancelled"), None, "batch_cancelled"),
        (row("skipped", message="not wanted"), None, "skipped"),
    ],
)
def test_a_failure_shows_the_answer_or_says_why_there_is_none(
    ended: ResultRow, response: int | None, code: str | None
) -> None:
    line = json.loads(lines_of(JOB, ended_request(ended)))
    assert (line["id"], line["custom_id"]) == ("batch_req_12-5", "request-5")
    assert (line["response"] or {}).get("status_code") == response
    assert (line["error"] or {}).get("code") == code
    assert line["error"] is None or line["error"]["message"]


@pytest.mark.parametrize(
    "pretty",
    ['{\r"status_code":200}', '{\n  "status_code": 200\n}', '{\r\n"status_code":200\r}', '{\n\n"a\\n":\n"\\r"}'],
)
def test_an_indented_answer_is_brought_to_one_line_and_means_the_same(pretty: str) -> None:
    data = lines_of(JOB, EndedRequest(0, "a", True, pretty))
    assert (data.count(b"\n"), data.count(b"\r")) == (1, 0)
    assert json.loads(data)["response"] == json.loads(pretty)


@given(
    custom_id=st.text(max_size=30),
    words=st.text(min_size=1, max_size=30),
    copies=st.lists(st.text(max_size=5), max_size=3),
    ok=st.booleans(),
)
def test_any_text_gives_lines_that_are_valid_and_known_as_ours(
    custom_id: str, words: str, copies: list[str], ok: bool
) -> None:
    answer = f'{{"status_code":200,"body":{json.dumps(words, ensure_ascii=False)}}}' if ok else None
    data = lines_of(
        JOB, EndedRequest(5, custom_id, ok, answer, None if ok else "IO_ERROR", None if ok else words, numbered(copies))
    )
    assert data.endswith(b"\n")
    lines = data[:-1].split(b"\n")
    assert [json.loads(line)["custom_id"] for line in lines] == [*copies, custom_id]
    for number, line in enumerate(lines, 2):
        head = HEAD.match(line)
        assert head is not None
        assert head.groups() == (b"12", b"5", b"%d" % number if number - 2 < len(copies) else None)
        said = json.loads(line)
        assert (said["response"]["body"] if ok else said["error"]["message"]) == words


def test_half_a_surrogate_pair_is_written_as_its_escape() -> None:
    data = lines_of(JOB, EndedRequest(0, "\ud800", True, '{"status_code":200,"body":"\udfff"}'))
    line = json.loads(data.decode())
    assert (line["custom_id"], line["response"]["body"]) == ("\ud800", "\udfff")


def test_what_was_cancelled_says_so() -> None:
    line = json.loads(lines_of(JOB, ended_request(row("cancelled"))))
    assert line["error"] == {"code": "batch_cancelled", "message": "the job was cancelled before this request was done"}


def test_a_failure_without_words_still_says_something() -> None:
    line = json.loads(lines_of(JOB, EndedRequest(0, "a", False, None)))
    assert line["error"] == {"code": "UNKNOWN", "message": "no reason was recorded"}
