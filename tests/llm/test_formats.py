"""Requests in every format: what is sent of a line, and why one is refused."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.llm import intake
from backstay.llm.envelope import Request
from backstay.llm.formats import BatchLines, Format, Reading, Rows
from backstay.llm.intake import open_source, requests, survey
from backstay.llm.lines import numbered
from tests.llm.request_files import CHAT, batch_line, look, reason, sent

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str | bytes, name: str = "requests.jsonl") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return written


# The Batch format


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
    assert sent(write(line % body)) == [Request("a", "/v1/x", body)]


def test_blank_lines_line_ends_and_marks_are_no_matter(write: Write) -> None:
    one, two, three = (batch_line(name) for name in "abc")
    plain = write(f"{one}\n{two}\n{three}\n", "plain.jsonl")
    odd = write(b"\xef\xbb\xbf" + f"\r\n{one}\r\n\n  {two}  \n\ufeff{three}".encode(), "odd.jsonl")
    assert sent(odd) == sent(plain)
    assert look(odd).digest == look(plain).digest
    with open_source(odd, Reading()) as source:
        assert [one.line for one in requests(source, survey(source))] == [2, 4, 5]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"\xff", "is not UTF-8: invalid start byte at byte 1"),
        (b"{oops", "is not JSON: Expecting property name"),
        (batch_line(body='{"model":"m","x":NaN}').encode(), "is not JSON: NaN is no JSON number"),
        (b"[1]", "is no JSON object"),
        (b'{"url": "/v1/x", "body": {}}', "has no custom_id"),
        (batch_line(None).encode(), "has no custom_id"),
        (batch_line("").encode(), "has no custom_id"),
        (batch_line(7).encode(), "has the custom_id 7, which is no text"),
        (batch_line("x" * 513).encode(), "has a custom_id of 513 characters; at most 512 are taken"),
        (batch_line("a\nb").encode(), 'has the custom_id "a\\nb", with characters that cannot be printed'),
        (batch_line("a\x7f").encode(), 'has the custom_id "a\\u007f", with characters that cannot be printed'),
        (batch_line("\ud800").encode(), 'has the custom_id "\\ud800", with characters that cannot be printed'),
        (batch_line(method="GET").encode(), 'has the method "GET"; only POST is sent'),
        (b'{"custom_id": "a", "body": {"model": "m"}}', "has no url"),
        (b'{"custom_id": "a", "url": 7, "body": {"model": "m"}}', "has the url 7, which is no text"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1/x"}', "has no body"),
        (batch_line(body="[]").encode(), "has a body that is no object"),
        (batch_line(body='{"model":"m","stream":true}').encode(), "asks for a stream"),
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
    assert reason(write(batch_line(url=url)), Reading(base_url="https://api.example/v1")).startswith("has the url")


def test_a_whole_url_of_the_service_itself_is_a_path(write: Write) -> None:
    file = write(batch_line(url="https://API.example/v1/x?y=1"))
    assert sent(file, Reading(base_url="https://api.example/v1"))[0].url == "/v1/x?y=1"
    assert "another host" in reason(file)


def test_a_line_without_url_goes_to_the_endpoint_given(write: Write) -> None:
    file = write('{"custom_id": "a", "body": {"model": "m"}}')
    assert sent(file, Reading(endpoint="/v1/responses"))[0].url == "/v1/responses"
    with pytest.raises(UsageError, match="--endpoint has the url"):
        look(file, Reading(endpoint="https://elsewhere.example/v1/responses"))


def test_a_model_is_not_asked_for_where_none_is_needed(write: Write) -> None:
    assert sent(write(batch_line(body="{}", url="/v1/other")))
    assert sent(write(batch_line(body='{"prompt":{"id":"p"}}', url="/v1/responses")))
    assert reason(write(batch_line(body='{"input":"x"}', url="/v1/responses"))) == "names no model"


def test_a_line_too_long_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "numbered", partial(numbered, bytes_max=1000))
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
    parsed = BatchLines(Reading())(1, "{" + ", ".join(f'"{name}": {values[name]}' for name in order) + "}")
    assert parsed.request == Request(custom_id, "/v1/x", body)
    assert parsed.fields == json.loads(body)


# Other formats


def test_the_format_is_told_from_the_file(write: Write) -> None:
    def told(content: str, name: str = "requests.jsonl", template: str | None = None) -> Format:
        with open_source(write(content, name), Reading(template=template)) as source:
            return source.format

    assert told(batch_line()) is Format.BATCH
    assert told("\n\n" + batch_line()) is Format.BATCH
    assert told('{"custom_id": "a", "url": "/v1/x"}') is Format.BATCH
    assert told("{broken") is Format.BATCH
    assert told('{"model": "m", "messages": []}') is Format.BODIES
    assert told('{"id": 1, "model": "m", "input": "x"}') is Format.BODIES
    assert told('{"model": "m", "prompt": "x"}') is Format.BODIES
    assert told('{"prompt": "x", "temperature": 0}') is Format.PROMPTS
    assert told("prompt\nx", "rows.csv") is Format.CSV
    assert told("prompt\nx", "rows.TSV") is Format.CSV
    assert told("text\nx", "-rows", "{text}") is Format.CSV
    assert told('{"text": "x"}', template="{text}") is Format.ROWS
    with open_source(write("prompt\nx"), Reading(format=Format.CSV)) as source:
        assert source.format is Format.CSV


def test_a_body_of_its_own_is_the_line_itself(write: Write) -> None:
    line = '{ "model":"m", "messages" : [ ] ,"x":1.10}'
    assert sent(write(f"\n{line}\n")) == [Request("request-2", CHAT, line)]


def test_a_body_loses_its_id_and_gets_the_model_it_lacks(write: Write) -> None:
    lines = [
        '{"id": 17, "messages": [ ],"a\\u0062":1.10}',
        '{"custom_id":"x","model":"own","input":"é"}',
        '{"input":[]}',
    ]
    assert sent(write("\n".join(lines)), Reading(model='the "model"')) == [
        Request("17", CHAT, '{"model":"the \\"model\\"","messages": [ ],"a\\u0062":1.10}'),
        Request("x", "/v1/responses", '{"model":"own","input":"é"}'),
        Request("request-3", "/v1/responses", '{"model":"the \\"model\\"","input":[]}'),
    ]


@pytest.mark.parametrize(
    ("body", "url"),
    [
        ('{"model": "m", "messages": []}', CHAT),
        ('{"model": "m", "input": "x"}', "/v1/responses"),
        ('{"model": "text-embedding-3-small", "input": "x"}', "/v1/embeddings"),
        ('{"model": "m", "prompt": "x"}', "/v1/completions"),
        ('{"model": "m", "prompt": {"id": "p"}}', "/v1/responses"),
    ],
)
def test_a_body_goes_where_its_shape_says(write: Write, body: str, url: str) -> None:
    assert sent(write(body))[0].url == url
    assert sent(write(body), Reading(endpoint="/v1/elsewhere"))[0].url == "/v1/elsewhere"


def test_a_prompt_becomes_a_chat(write: Write) -> None:
    lines = ['{"prompt": "Say \\"hi\\" \\u00e9é", "temperature": 0.50}', '{"id": "b", "prompt": [{"role": "user"}]}']
    assert sent(write("\n".join(lines)), Reading(model="m")) == [
        Request(
            "request-1",
            CHAT,
            '{"model":"m","messages":[{"role":"user","content":"Say \\"hi\\" \\u00e9é"}],"temperature": 0.50}',
        ),
        Request("b", CHAT, '{"model":"m","messages":[{"role": "user"}]}'),
    ]


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [
        ("/v1/responses", '"input":"x"'),
        ("/v1/embeddings", '"input":"x"'),
        ("/v1/completions", '"prompt":"x"'),
        ("/openai/d/chat/completions?api-version=1", '"messages":[{"role":"user","content":"x"}]'),
    ],
)
def test_a_prompt_is_asked_in_the_words_of_its_endpoint(write: Write, endpoint: str, asked: str) -> None:
    (request,) = sent(write('{"prompt":"x"}'), Reading(model="m", endpoint=endpoint))
    assert request == Request("request-1", endpoint, f'{{"model":"m",{asked}}}')


def test_prompts_need_a_model_and_a_prompt(write: Write) -> None:
    assert reason(write('{"prompt": "x"}')) == "names no model; --model gives one"
    bad = look(
        write('{"prompt": "x"}\n{"text": "y"}\n{"prompt": 3}\n{"id": true, "prompt": "x"}'), Reading(model="m")
    ).bad
    assert [(line, why) for line, why in bad] == [
        (2, "has no prompt"),
        (3, "has a prompt that is neither text nor messages"),
        (4, "has the custom_id true, which is no text"),
    ]


def test_an_id_of_its_own_may_stand_before_a_line_number(write: Write) -> None:
    """The two can meet, and then they are two of one name like any others."""
    surveyed = look(write('{"id": "request-2", "prompt": "x"}\n{"prompt": "y"}'), Reading(model="m"))
    assert [(bad.line, bad.reason) for bad in surveyed.bad] == [(2, "has the custom_id of line 1 again")]


# Templates


def test_rows_of_a_table_fill_a_prompt(write: Write) -> None:
    table = 'id,text\na,"one, ""two""\nthree"\n,plain\n\nc,{text}\n'
    found = sent(write(table, "rows.csv"), Reading(model="m", template="Say {{it}}: { text } ({id})"))
    assert [request.custom_id for request in found] == ["a", "request-4", "c"]
    prompts = [json.loads(request.body)["messages"][0]["content"] for request in found]
    assert prompts == ['Say {it}: one, "two"\nthree (a)', "Say {it}: plain ()", "Say {it}: {text} (c)"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_told_from_the_header(write: Write, delimiter: str) -> None:
    table = "\ufeff" + delimiter.join(["custom_id", "prompt", "note"]) + "\r\n" + delimiter.join(["a", "é", "x"])
    (request,) = sent(write(table, "rows.csv"), Reading(model="m"))
    assert (request.custom_id, json.loads(request.body)["messages"][0]["content"]) == ("a", "é")


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_whatever_fills_a_json_body_is_escaped(value: str) -> None:
    template = (
        '{\n "model": "m",\n "messages": [{"role": "user", "content": "Say {x}, {{really}}: \\"{x}\\""}], "n": 1.0 }'
    )
    parsed = Rows(Reading(template=template)).fill(1, {"x": value})
    assert parsed.fields["messages"][0]["content"] == f'Say {value}, {{really}}: "{value}"'
    assert "\n" not in parsed.body
    assert parsed.body.endswith('"n": 1.0 }')
    assert parsed.fields == json.loads(parsed.body)


def test_objects_fill_a_template_too(write: Write) -> None:
    reading = Reading(model="m", template="{a} and {b}")
    file = write('{"a": "x", "b": [1]}\n{"a": "y"}\n[]')
    with open_source(file, reading) as source:
        surveyed = survey(source)
        (one,) = requests(source, surveyed)
    assert json.loads(one.request.body)["messages"][0]["content"] == "x and [1]"
    assert [str(bad) for bad in surveyed.bad] == [
        "line 2 has no 'b', which the template names",
        "line 3 is no JSON object",
    ]


def test_a_body_in_a_template_gets_the_model_it_lacks(write: Write) -> None:
    reading = Reading(model="m", template='{"input": "{text}"}')
    assert sent(write("text\nx", "rows.csv"), reading) == [
        Request("request-2", "/v1/responses", '{"model":"m","input": "x"}')
    ]


def test_bad_rows_are_named_by_the_line_they_start_on(write: Write) -> None:
    table = b'text,b\nfine,1\n"two\nlines",1\nshort\n\xff,1\n"a"b,1\nfine,2\n"never ends,1\n'
    surveyed = look(write(table, "rows.csv"), Reading(model="m", template="{text}"))
    assert surveyed.requests == 3
    assert [(bad.line, bad.reason) for bad in surveyed.bad] == [
        (5, "has 1 fields where the header has 2"),
        (6, "is not UTF-8"),
        (7, "is not CSV: ',' expected after '\"'"),
        (9, "is not CSV: unexpected end of data"),
    ]


@pytest.mark.parametrize(
    ("table", "template", "says"),
    [
        ("text\nx", None, "needs --template, or a column named prompt"),
        ("text\nx", "{texts}", "the template has {texts}, which is no column of the file"),
        ("text,text\nx,y", "{text}", "the header has the column 'text' twice"),
        ("\xff\nx", "{text}", "the header is not UTF-8"),
        ("", "{text}", "there are no requests in"),
        ("text\n", "{text}", "there are no requests in"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(write: Write, table: str, template: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("{", r"\{")):
        look(write(table.encode("latin-1"), "rows.csv"), Reading(model="m", template=template))


def test_a_field_may_be_longer_than_python_takes_by_itself(write: Write) -> None:
    (request,) = sent(write(f'prompt\n"{"x" * 200_000}"', "rows.csv"), Reading(model="m"))
    assert len(request.body) > 200_000


def test_a_template_is_for_rows(write: Write) -> None:
    with pytest.raises(UsageError, match="--template does not go with the format batch"):
        look(write(batch_line()), Reading(format=Format.BATCH, template="{x}"))
