"""Requests in the Batch format: what is sent of a line, and why one is refused."""

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.llm import row_files
from backstay.llm.formats import BatchLines, InputOptions
from backstay.llm.intake import open_source, requests, survey
from backstay.llm.lines import LlmRequest, number_lines
from tests.llm.request_files import Write, batch_line, look, reason, sent


@pytest.mark.parametrize(
    "body",
    [
        '{"model":"m","messages":[]}',
        '{ "model" : "m" ,\t"x":1.10, "y": 1E400, "z":12345678901234567890 }',
        '{"model":"m","a":"\\u00e9é\\ud83d\\ude00😀\\/","stream":false}',
        '{"model":"m","b":1,"b":2}',
        '{"model":"m","messages":[{"role":"user","content":"},\\"body\\":{"}]}',
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        '{"custom_id": "a", "method": "POST", "url": "/v1/x", "body": %s}',
        '{"custom_id":"a","method":"POST","url":"/v1/x","body":%s}',
        '{"custom_id": "a", "method": "POST", "url": "/v1/x", "body": %s , "more": {"body": {}}}',
        '{"body": %s, "custom_id": "a", "method": "POST", "url": "/v1/x"}',
        '  { "url":"/v1/x" ,"body" :%s,"method":"post","custom_id":"\\u0061" }\t',
        '{"custom_id": "a", "url": "/v1/x", "body": %s}',
    ],
)
def test_a_body_is_sent_byte_for_byte(write: Write, line: str, body: str) -> None:
    assert sent(write(line % body)) == [LlmRequest("a", "/v1/x", body)]


def test_blank_lines_line_ends_and_marks_are_no_matter(write: Write) -> None:
    one, two, three = (batch_line(name) for name in "abc")
    plain = write(f"{one}\n{two}\n{three}\n", "plain.jsonl")
    odd = write(b"\xef\xbb\xbf" + f"\r\n{one}\r\n\n  {two}  \n\ufeff{three}".encode(), "odd.jsonl")
    assert sent(odd) == sent(plain)
    assert look(odd).digest == look(plain).digest
    with open_source(odd, InputOptions()) as source:
        assert [one.line for one in requests(source, survey(source))] == [2, 4, 5]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"\xff", "is not UTF-8: invalid start byte at byte 1"),
        (b"{oops", "is not JSON: Expecting property name"),
        (batch_line(body='{"model":"m","x":NaN}').encode(), "is not JSON: NaN is not a JSON number"),
        (b"[1]", "is not a JSON object"),
        (b'{"url": "/v1/x", "body": {}}', "has no custom_id"),
        (batch_line(None).encode(), "has no custom_id"),
        (batch_line("").encode(), "has no custom_id"),
        (batch_line(7).encode(), "has the custom_id 7, which is not a text"),
        (batch_line("x" * 513).encode(), "has a custom_id of 513 characters; the limit is 512"),
        (batch_line("a\nb").encode(), 'has the custom_id "a\\nb", with characters that cannot be printed'),
        (batch_line("a\x7f").encode(), 'has the custom_id "a\\u007f", with characters that cannot be printed'),
        (batch_line("\ud800").encode(), 'has the custom_id "\\ud800", with characters that cannot be printed'),
        (batch_line(method="GET").encode(), 'has the method "GET"; only POST is sent'),
        (b'{"custom_id": "a", "body": {"model": "m"}}', "has no url"),
        (b'{"custom_id": "a", "url": 7, "body": {"model": "m"}}', "has the url 7, which is not a text"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1/x"}', "has no body"),
        (batch_line(body="[]").encode(), "has a body that is not an object"),
        (batch_line(body='{"model":"m","stream":true}').encode(), "asks for a stream"),
        (batch_line(body='{"model":"m","background":true}').encode(), "asks for a background response; use --lane"),
        (batch_line(body='{"messages":[]}').encode(), "names no model"),
        (batch_line(body='{"model":3}').encode(), "names no model"),
        (
            batch_line(body='{"model":"m","x":' + "[" * 200 + "]" * 200 + "}").encode(),
            "is nested more than 128 levels deep",
        ),
        (b'{"custom_id": "a", "custom_id": "b", "url": "/v1/x", "body": {}}', 'has "custom_id" twice'),
        (b'{"custom_id": "a", "url": "/v1/x", "body": {}, "body": {}}', 'has "body" twice'),
    ],
)
def test_a_bad_line_is_named_with_why(write: Write, line: bytes, says: str) -> None:
    good = batch_line("good").encode()
    surveyed = look(write(good + b"\n\n" + line + b"\n" + batch_line("better").encode()))
    assert surveyed.requests == 2
    assert [bad.line for bad in surveyed.bad] == [3]
    assert surveyed.bad[0].reason.startswith(says)


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/v1/chat/completions",
        "//elsewhere.example/v1/chat/completions",
        "http://api.example/v1/chat/completions",
        "https://api.example@elsewhere.example/v1",
        "v1/chat/completions",
        "/v1/../../admin",
        "/v1/a b",
        "/v1/é",
        "/v1/x#y",
        "http://[bad",
        "",
    ],
)
def test_a_url_cannot_lead_elsewhere(write: Write, url: str) -> None:
    assert reason(write(batch_line(url=url)), InputOptions(base_url="https://api.example/v1")).startswith("has the url")


def test_a_whole_url_of_the_service_itself_is_a_path(write: Write) -> None:
    file = write(batch_line(url="https://API.example/v1/x?y=1"))
    assert sent(file, InputOptions(base_url="https://api.example/v1"))[0].url == "/v1/x?y=1"
    assert "another host" in reason(file)


def test_a_line_without_url_goes_to_the_endpoint_given(write: Write) -> None:
    file = write('{"custom_id": "a", "body": {"model": "m", "input": "x"}}')
    assert sent(file, InputOptions(endpoint="/v1/responses"))[0].url == "/v1/responses"
    with pytest.raises(UsageError, match="--endpoint has the url"):
        look(file, InputOptions(endpoint="https://elsewhere.example/v1/responses"))


def test_a_model_is_not_asked_for_where_none_is_needed(write: Write) -> None:
    assert sent(write(batch_line(body="{}", url="/v1/other")))
    assert sent(write(batch_line(body='{"prompt":{"id":"p"}}', url="/v1/responses")))
    assert reason(write(batch_line(body='{"input":"x"}', url="/v1/responses"))) == "names no model"


def test_a_line_too_long_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "number_lines", partial(number_lines, bytes_max=1000))
    surveyed = look(write(f"{batch_line('a')}\n{'x' * 5000}\n{batch_line('b')}"))
    assert surveyed.requests == 2
    assert [(bad.line, bad.reason) for bad in surveyed.bad] == [(2, "has more than 62,914,560 bytes")]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)
FIELDS = st.dictionaries(
    st.text(max_size=5), st.text(max_size=20) | st.integers() | st.lists(st.integers()), max_size=4
)


@given(NAMES, FIELDS, st.permutations(["custom_id", "method", "url", "body"]), st.booleans())
def test_any_order_of_members_makes_the_same_request(
    custom_id: str, fields: dict[str, Any], order: list[str], ascii_only: bool
) -> None:
    body = json.dumps({**fields, "stream": False}, ensure_ascii=ascii_only)
    values = {"custom_id": json.dumps(custom_id), "method": '"POST"', "url": '"/v1/x"', "body": body}
    parsed = BatchLines(InputOptions())(1, "{" + ", ".join(f'"{name}": {values[name]}' for name in order) + "}")
    assert parsed.request == LlmRequest(custom_id, "/v1/x", body)
    assert parsed.fields == json.loads(body)
