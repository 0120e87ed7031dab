"""What becomes of an item by the reply that came: hostile ones end in a code and a line, never in a crash."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.models import Usage
from backstay.core.outcomes import Failed, Succeeded
from backstay.llm.headers import NOTHING, Learned
from backstay.llm.prices import Price
from backstay.llm.replies import SHOWN_CHARACTERS_MAX, failure_of_error, read_reply, shown, usage_of
from backstay.llm.wire import Reply

PRICE = Price(150_000, 600_000, 75_000)
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-4o-mini-2024-07-18",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1_000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}},
}


DEAR = Price(300_000, 1_200_000, 150_000)
MODEL = "gpt-4o-mini"


def priced(model: str, tier: str | None = None) -> Price | None:
    if not model.startswith(MODEL):
        return None
    return DEAR if tier == "priority" else PRICE


def read(text: str, status: int = 200, learned: Learned = NOTHING, **headers: str) -> Succeeded | Failed:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_reply(Reply(status, named, text), learned, priced)


def failed(text: str, status: int = 200, learned: Learned = NOTHING, **headers: str) -> Failed:
    outcome = read(text, status, learned, **headers)
    assert isinstance(outcome, Failed)
    return outcome


def verdict(outcome: Failed) -> str:
    return f"{outcome.failure.code} {outcome.failure.kind}"


def error(message: str, code: Any = None, kind: str = "invalid_request_error") -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


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
    ("used", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}, Usage(10, 20, 14)),
        ({"input_tokens": 10, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 10}}, Usage(10, 20, 13)),
        ({"prompt_tokens": 10, "total_tokens": 10}, Usage(10, 0, 2)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": None}, Usage(10, 20, 14)),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 99}}, None),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": -1}}, None),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": "1"}}, None),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": [1]}, None),
    ],
)
def test_usage_is_read_of_chat_responses_and_embeddings(used, expected):
    assert usage_of({"model": MODEL, "usage": used}, priced) == (expected or Usage(10, 20, 14))


@pytest.mark.parametrize(
    "used",
    [
        None,
        [],
        "10",
        {},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": None},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": 1.5, "completion_tokens": 1},
        {"prompt_tokens": "1", "completion_tokens": 1},
        {"prompt_tokens": 10**11, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 10**30},
        {"input_tokens": 5},
        {"output_tokens": 5},
        {"total_tokens": 5},
    ],
)
def test_usage_that_is_missing_or_makes_no_sense_has_no_cost(used):
    assert usage_of({"model": MODEL, "usage": used}, priced) == Usage()
    assert isinstance(read(json.dumps({"id": "x", "model": "gpt-4o-mini", "usage": used})), Succeeded)


def test_what_was_done_in_a_dear_tier_is_paid_at_its_price():
    cheap, dear = (usage_of({**CHAT, "service_tier": tier}, priced).cost_micros for tier in ("default", "priority"))
    assert (cheap, dear) == (180, 360)


def test_an_unknown_price_is_no_cost_and_not_a_cost_of_nothing():
    assert usage_of({**CHAT, "model": "mine"}, priced) == Usage(1_000, 100, None)
    assert read(json.dumps({**CHAT, "model": "mine"})).usage == Usage(1_000, 100, None)
    assert read(json.dumps({**CHAT, "model": 4})).usage == Usage(1_000, 100, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "an empty body"),
        ("\ufeff", "an empty body"),
        (" \r\n\t", "an empty body"),
        ("<html><body>502 Bad Gateway</body></html>", "what is not JSON: '<html>"),
        ('{"id": "chatcmpl-1", "choices": [{"mess', "what is not JSON"),
        ('{"id": 1}{"id": 2}', "what is not JSON"),
        ('data: {"id": 1}\n\ndata: [DONE]\n\n', "what is not JSON"),
        ('{"id": NaN}', "what is not JSON"),
        ('{"id": -Infinity}', "what is not JSON"),
        ("{'id': 1}", "what is not JSON"),
        ('{"id": "a\x00b"}', "what is not JSON"),
        ('{"id": "a\nb"}', "what is not JSON"),
        ('{"id": 1}\x00', "what is not JSON"),
        ('{"id": 01}', "what is not JSON"),
        ("[" * 100_000, "what is not JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "what is not JSON"),
        ('{"id": "\udcff\udcfe"}', "what is not UTF-8"),
        ('["choices"]', "JSON that is no object but list"),
        ("42", "JSON that is no object but int"),
        ("null", "JSON that is no object but NoneType"),
        ('"text"', "JSON that is no object but str"),
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
    outcome = read_reply(Reply(200, {}, '{"id": "' + "x" * 100, cut=True), NOTHING, priced)
    assert isinstance(outcome, Failed)
    assert (verdict(outcome), outcome.failure.provider_status) == ("TOO_LARGE unknown", 200)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"message": "Upstream error", "code": 502}, "GW_5XX infrastructure"),
        ({"message": "slow down", "code": "429"}, "GW_4XX throttled"),
        ({"message": "bad key", "code": 401}, "FORBIDDEN held"),
        ({"message": "no", "code": 400}, "GW_4XX business"),
        ({"message": "oops", "code": "server_error"}, "GW_5XX infrastructure"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "GW_4XX throttled"),
        ({"message": "pay first", "code": "insufficient_quota"}, "FORBIDDEN held"),
        ({"message": "no such prompt", "code": "invalid_prompt"}, "GW_4XX business"),
        ({"message": "bad", "type": "invalid_request_error", "code": None}, "GW_4XX business"),
        ({"message": "no model", "code": "model_not_found"}, "GW_4XX business"),
        ({"code": 700}, "GW_5XX infrastructure"),
        ("upstream timed out", "GW_5XX infrastructure"),
        (["what", "ever"], "GW_5XX infrastructure"),
        (7, "GW_5XX infrastructure"),
    ],
)
def test_an_error_inside_a_200_is_a_failure_by_what_it_says(said, expected):
    outcome = failed(json.dumps({"error": said}))
    assert (verdict(outcome), outcome.failure.provider_status) == (expected, 200)
    assert outcome.failure.message
    assert outcome.usage is None


def test_an_error_inside_a_200_keeps_what_was_used():
    said = json.dumps({**CHAT, "error": {"message": "broke off", "code": "server_error"}})
    assert failed(said).usage == Usage(1_000, 100, 180)


def test_an_error_that_is_null_is_none():
    assert isinstance(read(json.dumps({**CHAT, "error": None})), Succeeded)


def test_an_error_without_a_word_has_words_all_the_same():
    assert failure_of_error(None).message == "the provider reports an error without a word"
    assert failure_of_error({}).message == "the provider reports an error without a word"


@pytest.mark.parametrize(
    ("status", "text", "expected", "message"),
    [
        (400, error("No such thing", "unknown_parameter"), "GW_4XX business", "No such thing (unknown_parameter)"),
        (401, error("Incorrect API key", "invalid_api_key"), "FORBIDDEN held", "Incorrect API key (invalid_api_key)"),
        (403, error("Not in your country"), "FORBIDDEN held", "Not in your country (invalid_request_error)"),
        (404, error("No such model", "model_not_found"), "GW_4XX business", "No such model (model_not_found)"),
        (404, "<html>nginx</html>", "GW_4XX business", "the provider answered 404 Not Found"),
        (413, "", "TOO_LARGE business", "the provider answered 413 Request Entity Too Large"),
        (422, '{"detail": "messages missing"}', "GW_4XX business", "messages missing"),
        (422, '{"detail": [{"loc": ["body"]}]}', "GW_4XX business", '[{"loc": ["body"]}]'),
        (429, error("Slow down", "rate_limit_exceeded"), "GW_4XX throttled", "Slow down (rate_limit_exceeded)"),
        (429, error("Pay", "insufficient_quota"), "FORBIDDEN held", "Pay (insufficient_quota)"),
        (429, error("Pay", None, "insufficient_quota"), "FORBIDDEN held", "Pay (insufficient_quota)"),
        (429, error("Pay", "429", "insufficient_quota"), "FORBIDDEN held", "Pay (insufficient_quota)"),
        (429, error("Pay", "billing_hard_limit_reached"), "FORBIDDEN held", "Pay (billing_hard_limit_reached)"),
        (429, error("Request too large for gpt-4o: Limit 3, Requested 4", "tokens"), "TOO_LARGE business", None),
        (500, error("Oops", None, "server_error"), "GW_5XX infrastructure", "Oops (server_error)"),
        (502, "<html>", "GW_5XX infrastructure", "the provider answered 502 Bad Gateway"),
        (503, '{"error": "overloaded"}', "GW_5XX infrastructure", "overloaded"),
        (503, '{"message": "overloaded"}', "GW_5XX infrastructure", "overloaded"),
        (504, "[1]", "GW_TIMEOUT infrastructure", "the provider answered 504 Gateway Timeout"),
        (529, '{"error": {"message": {"deep": 1}}}', "GW_5XX infrastructure", '{"deep": 1}'),
        (302, "", "UNKNOWN business", None),
    ],
)
def test_a_refusal_is_told_by_its_status_and_its_own_words(status, text, expected, message):
    outcome = failed(text, status)
    assert (verdict(outcome), outcome.failure.provider_status) == (expected, status)
    assert message is None or outcome.failure.message == message


def test_a_redirect_is_refused_with_its_target_and_what_to_do():
    message = failed("", 307, location="https://other.example/v1/chat").failure.message
    assert message == (
        "the provider redirects to https://other.example/v1/chat, where nothing is sent; check the base URL"
    )


@pytest.mark.parametrize(
    ("status", "learned", "expected"),
    [
        (429, Learned(retry_after_ms=7_000), 7_000),
        (429, Learned(requests_remaining=0, requests_reset_ms=900), 900),
        (503, Learned(retry_after_ms=7_000), 7_000),
        (429, NOTHING, None),
        (400, Learned(retry_after_ms=7_000), None),
    ],
)
def test_the_wait_that_a_refusal_asks_for_travels_with_it(status, learned, expected):
    assert failed(error("no"), status, learned).failure.retry_after_ms == expected


def test_a_failure_shows_the_providers_own_answer_in_the_shape_of_a_result():
    text = error("No such model", "model_not_found")
    assert failed(text, 404, x_request_id="req_9").reply == f'{{"status_code":404,"request_id":"req_9","body":{text}}}'


def test_what_is_no_json_is_shown_as_text_and_what_is_long_only_in_its_beginning():
    assert json.loads(shown(Reply(502, {}, "<html>\udcff\x00")))["body"] == "<html>?\x00"
    long = json.dumps({"error": "x" * SHOWN_CHARACTERS_MAX})
    assert json.loads(shown(Reply(500, {}, long)))["body"] == long[:SHOWN_CHARACTERS_MAX]


def test_a_request_id_cannot_break_the_result():
    outcome = read('{"id":"x"}', x_request_id='a"b\\\n\udcff' + "x" * 1_000)
    assert isinstance(outcome, Succeeded)
    assert len(json.loads(outcome.result)["request_id"]) == 200
    outcome.result.encode()


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
    outcome = read_reply(Reply(status, {"x-request-id": text[:20], "location": text}, text, cut), NOTHING, priced)
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
