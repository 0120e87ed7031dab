"""What becomes of an item by the reply that came: hostile ones end in a code and a line, never in a crash."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.models import Failed, Succeeded, Usage
from backstay.llm.provider import ProviderReply
from backstay.llm.providers.openai.replies import read_reply
from backstay.llm.rate_limits import NO_HINTS
from tests.llm.reply_rig import CHAT, failed, priced, read, verdict


def test_a_result_holds_the_providers_own_text_byte_for_byte():
    text = '{ "id":"x",\n  "b": 1.10, "a":"\\u00e9 é \\ud83d",  "n": 1E+2, "big": 123456789012345678901234567890 }\n'
    outcome = read(text, x_request_id="req_1")
    assert outcome == Succeeded('{"status_code":200,"request_id":"req_1","body":' + text + "}", Usage(), 200)
    assert json.loads(outcome.result)["body"]["n"] == 100


def test_a_mark_of_byte_order_in_front_is_not_part_of_the_result():
    assert read('\ufeff{"id":"x"}') == Succeeded('{"status_code":200,"request_id":"","body":{"id":"x"}}', Usage(), 200)


def test_tokens_and_cost_are_taken_from_what_the_reply_says_it_used():
    outcome = read(json.dumps(CHAT))
    assert isinstance(outcome, Succeeded)
    assert outcome.usage == Usage(1_000, 100, 180)  # 600 × 0.15 + 400 × 0.075 + 100 × 0.60


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "an empty body"),
        ("\ufeff", "an empty body"),
        (" \r\n\t", "an empty body"),
        ("<html><body>502 Bad Gateway</body></html>", "a body that is not JSON: '<html>"),
        ('{"id": "chatcmpl-1", "choices": [{"mess', "a body that is not JSON"),
        ('{"id": 1}{"id": 2}', "a body that is not JSON"),
        ('data: {"id": 1}\n\ndata: [DONE]\n\n', "a body that is not JSON"),
        ('{"id": NaN}', "a body that is not JSON"),
        ('{"id": -Infinity}', "a body that is not JSON"),
        ("{'id': 1}", "a body that is not JSON"),
        ('{"id": "a\x00b"}', "a body that is not JSON"),
        ('{"id": "a\nb"}', "a body that is not JSON"),
        ('{"id": 1}\x00', "a body that is not JSON"),
        ('{"id": 01}', "a body that is not JSON"),
        ("[" * 100_000, "a body that is not JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "a body that is not JSON"),
        ('{"id": "\udcff\udcfe"}', "a body that is not UTF-8"),
        ('["choices"]', "JSON that is not an object but list"),
        ("42", "JSON that is not an object but int"),
        ("null", "JSON that is not an object but NoneType"),
        ('"text"', "JSON that is not an object but str"),
    ],
)
def test_nonsense_with_a_200_was_probably_paid_for_and_ends_in_a_code_and_a_line(text, why):
    outcome = failed(text)
    assert verdict(outcome) == "GW_5XX unknown"
    assert outcome.failure.message.startswith(f"the provider answered 200 with {why}")
    assert outcome.failure.provider_status == 200
    assert outcome.usage is None
    assert json.loads(outcome.reply or "")["status_code"] == 200


def test_valid_json_that_the_quick_parser_will_not_take_is_a_result_all_the_same():
    text = '{"a": "\\ud800", "b": 1e999, "c": ' + "[" * 300 + "]" * 300 + "}"
    assert isinstance(read(text), Succeeded)


def test_a_reply_of_which_only_a_part_was_read_is_too_large():
    outcome = read_reply(ProviderReply(200, {}, '{"id": "' + "x" * 100, cut=True), NO_HINTS, priced)
    assert isinstance(outcome, Failed)
    assert (verdict(outcome), outcome.failure.provider_status) == ("TOO_LARGE unknown", 200)


TELLING = ("error", "usage", "model", "code", "message", "type", "detail", "prompt_tokens", "completion_tokens")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(TELLING), inner),
    max_leaves=12,
)
BODIES = (
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: json.dumps({"model": "gpt-4o-mini", "usage": value, "error": value}).encode())
    | st.tuples(JSON, st.integers(0, 50)).map(lambda pair: json.dumps(pair[0]).encode()[: pair[1]])
    | JSON.map(lambda value: gzip.compress(json.dumps(value).encode()))
)


@given(BODIES, st.integers(100, 999), st.booleans())
def test_whatever_comes_ends_in_an_outcome_that_every_database_takes(raw, status, cut):
    text = raw.decode("utf-8", "surrogateescape")
    outcome = read_reply(
        ProviderReply(status, {"x-request-id": text[:20], "location": text}, text, cut), NO_HINTS, priced
    )
    kept = outcome.result if isinstance(outcome, Succeeded) else outcome.reply
    assert kept is not None
    assert "\0" not in kept
    kept.encode()
    assert json.loads(kept)["status_code"] == status
    if isinstance(outcome, Failed):
        assert outcome.failure.message
        assert len(outcome.failure.message.splitlines()) == 1
    else:
        assert kept.endswith(f'"body":{text.removeprefix(chr(0xFEFF))}}}')


def test_an_error_whose_words_are_blank_is_told_by_its_status():
    outcome = read_reply(ProviderReply(400, {}, '{"error": " "}'), NO_HINTS, priced)
    assert isinstance(outcome, Failed)
    assert "400" in outcome.failure.message
