"""A request is stored with its body as its author wrote it, and comes out as it went in."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.llm.lines import LlmRequest, require_request, seal, unseal

TRICKY = st.text() | st.sampled_from(['","url":"', ',"body":', '"', "\\", '\\","url":"x', "é", "\x00", "\ud800"])
BODIES = st.sampled_from(['{"body":1,"url":"x"}', '{ "a" : 1.10 }', "{}", '{"a":"\\u00e9 é"}', '{"a":",\\"body\\":"}'])


METADATA = st.none() | st.sampled_from(["5", '"x"', '{"body":1}', '{"a":1,"body":{"url":"x"}}', '[",\\"body\\":"]'])


@example("a", "/v1/x", "{}", "5")
@given(TRICKY, TRICKY, BODIES, METADATA)
def test_a_request_comes_out_as_it_went_in_and_is_json_meanwhile(custom_id, url, body, metadata):
    request = LlmRequest(custom_id, url, body, metadata)
    assert unseal(seal(request)) == request
    kept = {} if metadata is None else {"metadata": metadata}
    assert json.loads(seal(request)) == {"custom_id": custom_id, "url": url, **kept, "body": json.loads(body)}


@pytest.mark.parametrize(
    "text",
    ['{"custom_id":"a","url":"/v1/x","body":{"b":1}}', '{"url":"/v1/x","custom_id":"a","body":{"b":1}}'],
)
def test_the_order_of_the_names_does_not_matter_as_long_as_the_body_is_last(text):
    assert unseal(text) == LlmRequest("a", "/v1/x", '{"b":1}')


@pytest.mark.parametrize("metadata", [None, '{"row": 1}'])
def test_what_seal_writes_is_a_request_as_text_and_as_what_it_says(metadata):
    request = LlmRequest("a", "/v1/x", '{"b": 1}', metadata)
    assert require_request(seal(request)) == request
    assert require_request(json.loads(seal(request))) == request


@pytest.mark.parametrize(
    "payload",
    [
        None,
        7,
        "",
        "[]",
        "{",
        {},
        ["custom_id", "url", "body"],
        {"custom_id": "a", "url": "/v1/x"},
        {"custom_id": "a", "body": {}, "url": "/v1/x"},
        {"custom_id": "a", "url": "/v1/x", "body": {}, "more": 1},
        {"custom_id": "a", "url": "/v1/x", "body": {}, "metadata": "1"},
        {"custom_id": "a", "url": "/v1/x", "metadata": {"row": 1}, "body": {}},
        {"custom_id": "a", "url": "/v1/x", "metadata": "no JSON", "body": {}},
        {"custom_id": 1, "url": "/v1/x", "body": {}},
        {"custom_id": "a", "url": None, "body": {}},
        {"custom_id": "a", "url": "/v1/x", "body": "{}"},
    ],
)
def test_what_is_no_request_is_refused(payload):
    with pytest.raises(UsageError, match=r"of a request|a request must have"):
        require_request(payload)
