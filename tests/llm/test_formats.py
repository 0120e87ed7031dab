"""Requests in the formats other than that of the Batch API: what is sent of a line, and why one is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.llm.formats import Format, InputOptions, Rows
from backstay.llm.intake import open_source, requests, survey
from backstay.llm.lines import LlmRequest
from backstay.llm.repeated_requests import Originals
from tests.llm.request_files import CHAT, Write, batch_line, look, reason, sent


def test_the_format_is_told_from_the_file(write: Write) -> None:
    def told(content: str, name: str = "requests.jsonl", template: str | None = None) -> Format:
        with open_source(write(content, name), InputOptions(template=template)) as source:
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
    with open_source(write("prompt\nx"), InputOptions(format=Format.CSV)) as source:
        assert source.format is Format.CSV


def test_a_body_of_its_own_is_the_line_itself(write: Write) -> None:
    line = '{ "model":"m", "messages" : [ ] ,"x":1.10}'
    assert sent(write(f"\n{line}\n")) == [LlmRequest("request-2", CHAT, line)]


def test_a_body_loses_its_id_and_gets_the_model_it_lacks(write: Write) -> None:
    lines = [
        '{"id": 17, "messages": [ ],"a\\u0062":1.10}',
        '{"custom_id":"x","model":"own","input":"é"}',
        '{"input":[]}',
    ]
    assert sent(write("\n".join(lines)), InputOptions(model='the "model"')) == [
        LlmRequest("17", CHAT, '{"model":"the \\"model\\"","messages": [ ],"a\\u0062":1.10}'),
        LlmRequest("x", "/v1/responses", '{"model":"own","input":"é"}'),
        LlmRequest("request-3", "/v1/responses", '{"model":"the \\"model\\"","input":[]}'),
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
    assert sent(write(body), InputOptions(endpoint="/v1/elsewhere"))[0].url == "/v1/elsewhere"


@pytest.mark.parametrize(
    ("line", "body", "metadata"),
    [
        ('{"model": "m", "input": "x", "metadata": {"row_id": 1}}', '{"model": "m","input": "x"}', '{"row_id": 1}'),
        ('{"metadata": {"a":"b"}, "model": "m", "input": "x"}', '{"model": "m","input": "x"}', '{"a":"b"}'),
        (
            '{"model": "m", "input": "x", "metadata": [1.50, "\\u00e9"]}',
            '{"model": "m","input": "x"}',
            '[1.50, "\\u00e9"]',
        ),
        ('{"model": "m", "input": "x", "metadata": 0}', '{"model": "m","input": "x"}', "0"),
        ('{"model": "m", "input": "x", "metadata": null}', '{"model": "m","input": "x"}', None),
        ('{"model": "m", "input": "x"}', '{"model": "m", "input": "x"}', None),
        ('{"model": "m", "input": "x", "store": false, "metadata": {"a":"b"}}', None, '{"a":"b"}'),
        ('{"model": "m", "input": "x", "store": true, "metadata": {"a":"b"}}', "as it is", None),
    ],
)
def test_the_metadata_of_a_body_is_kept_and_not_sent_unless_it_is_to_be_stored(
    write: Write, line: str, body: str | None, metadata: str | None
) -> None:
    (request,) = sent(write(line))
    assert request.metadata == metadata
    if body is None:
        assert "metadata" not in json.loads(request.body)
    else:
        assert request.body == (line if body == "as it is" else body)


def test_the_metadata_of_batch_lines_and_prompts_is_sent(write: Write) -> None:
    body = '{"model": "m", "messages": [], "metadata": {"row_id": 1}}'
    assert sent(write(batch_line("a", body))) == [LlmRequest("a", CHAT, body)]
    (request,) = sent(write('{"prompt": "x", "metadata": {"a": "b"}}'), InputOptions(model="m"))
    assert (json.loads(request.body)["metadata"], request.metadata) == ({"a": "b"}, None)


def test_metadata_that_is_too_long_makes_a_bad_line_among_good_ones(write: Write) -> None:
    lines = [json.dumps({"model": "m", "input": "x", "metadata": "y" * size}) for size in (10, 65_535, 65_534)]
    assert [bad[:2] for bad in look(write("\n".join(lines))).bad] == [
        (2, "has metadata of 65,537 characters; the limit is 65,536")
    ]


def test_other_metadata_makes_another_run_and_another_request(write: Write) -> None:
    files = [write(json.dumps({"model": "m", "input": "x", "metadata": n}), f"{n}.jsonl") for n in (1, 2)]
    assert look(files[0]).digest != look(files[1]).digest
    (first,), (second,) = sent(files[0]), sent(files[1])
    with Originals() as originals:
        assert [originals.first(request, at) for at, request in enumerate((first, second, first))] == [0, 1, 0]


def test_a_prompt_becomes_a_chat(write: Write) -> None:
    lines = ['{"prompt": "Say \\"hi\\" \\u00e9é", "temperature": 0.50}', '{"id": "b", "prompt": [{"role": "user"}]}']
    assert sent(write("\n".join(lines)), InputOptions(model="m")) == [
        LlmRequest(
            "request-1",
            CHAT,
            '{"model":"m","messages":[{"role":"user","content":"Say \\"hi\\" \\u00e9é"}],"temperature": 0.50}',
        ),
        LlmRequest("b", CHAT, '{"model":"m","messages":[{"role": "user"}]}'),
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
    (request,) = sent(write('{"prompt":"x"}'), InputOptions(model="m", endpoint=endpoint))
    assert request == LlmRequest("request-1", endpoint, f'{{"model":"m",{asked}}}')


def test_prompts_need_a_model_and_a_prompt(write: Write) -> None:
    assert reason(write('{"prompt": "x"}')) == "names no model; --model gives one"
    bad = look(
        write('{"prompt": "x"}\n{"text": "y"}\n{"prompt": 3}\n{"id": true, "prompt": "x"}'), InputOptions(model="m")
    ).bad
    assert [each[:2] for each in bad] == [
        (2, "has no prompt"),
        (3, "has a prompt that is neither text nor messages"),
        (4, "has the custom_id true, which is not a text"),
    ]


def test_an_id_of_its_own_may_stand_before_a_line_number(write: Write) -> None:
    """The two can meet, and then they are two of one name like any others."""
    surveyed = look(write('{"id": "request-2", "prompt": "x"}\n{"prompt": "y"}'), InputOptions(model="m"))
    assert [(bad.line, bad.reason) for bad in surveyed.bad] == [(2, "has the custom_id of line 1 again")]


# Templates


def test_rows_of_a_table_fill_a_prompt(write: Write) -> None:
    table = 'id,text\na,"one, ""two""\nthree"\n,plain\n\nc,{text}\n'
    found = sent(write(table, "rows.csv"), InputOptions(model="m", template="Say {{it}}: { text } ({id})"))
    assert [request.custom_id for request in found] == ["a", "request-4", "c"]
    prompts = [json.loads(request.body)["messages"][0]["content"] for request in found]
    assert prompts == ['Say {it}: one, "two"\nthree (a)', "Say {it}: plain ()", "Say {it}: {text} (c)"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_told_from_the_header(write: Write, delimiter: str) -> None:
    table = "\ufeff" + delimiter.join(["custom_id", "prompt", "note"]) + "\r\n" + delimiter.join(["a", "é", "x"])
    (request,) = sent(write(table, "rows.csv"), InputOptions(model="m"))
    assert (request.custom_id, json.loads(request.body)["messages"][0]["content"]) == ("a", "é")


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_whatever_fills_a_json_body_is_escaped(value: str) -> None:
    template = (
        '{\n "model": "m",\n "messages": [{"role": "user", "content": "Say {x}, {{really}}: \\"{x}\\""}], "n": 1.0 }'
    )
    parsed = Rows(InputOptions(template=template)).fill(1, {"x": value})
    assert parsed.fields["messages"][0]["content"] == f'Say {value}, {{really}}: "{value}"'
    assert "\n" not in parsed.body
    assert parsed.body.endswith('"n": 1.0 }')
    assert parsed.fields == json.loads(parsed.body)


def test_objects_fill_a_template_too(write: Write) -> None:
    reading = InputOptions(model="m", template="{a} and {b}")
    file = write('{"a": "x", "b": [1]}\n{"a": "y"}\n[]')
    with open_source(file, reading) as source:
        surveyed = survey(source)
        (one,) = requests(source, surveyed)
    assert json.loads(one.request.body)["messages"][0]["content"] == "x and [1]"
    assert [surveyed.describe(bad) for bad in surveyed.bad] == [
        "line 2 has no 'b', which the template names",
        "line 3 is not a JSON object",
    ]


def test_a_body_in_a_template_gets_the_model_it_lacks(write: Write) -> None:
    reading = InputOptions(model="m", template='{"input": "{text}"}')
    assert sent(write("text\nx", "rows.csv"), reading) == [
        LlmRequest("request-2", "/v1/responses", '{"model":"m","input": "x"}')
    ]


def test_bad_rows_are_named_by_the_line_they_start_on(write: Write) -> None:
    table = b'text,b\nfine,1\n"two\nlines",1\nshort\n\xff,1\n"a"b,1\nfine,2\n"never ends,1\n'
    surveyed = look(write(table, "rows.csv"), InputOptions(model="m", template="{text}"))
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
        ("text\nx", None, "needs --prompt, or a column named prompt"),
        ("text\nx", "{texts}", "the template has {texts}, which is not a column"),
        ("text,text\nx,y", "{text}", "the header has the column 'text' twice"),
        ("\xff\nx", "{text}", "the header is not UTF-8"),
        ("", "{text}", "there are no requests in"),
        ("text\n", "{text}", "there are no requests in"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(write: Write, table: str, template: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("{", r"\{")):
        look(write(table.encode("latin-1"), "rows.csv"), InputOptions(model="m", template=template))


def test_a_field_may_be_longer_than_python_takes_by_itself(write: Write) -> None:
    (request,) = sent(write(f'prompt\n"{"x" * 200_000}"', "rows.csv"), InputOptions(model="m"))
    assert len(request.body) > 200_000


def test_a_template_is_for_rows(write: Write) -> None:
    with pytest.raises(UsageError, match="--prompt cannot be used with the format batch"):
        look(write(batch_line()), InputOptions(format=Format.BATCH, template="{x}"))
