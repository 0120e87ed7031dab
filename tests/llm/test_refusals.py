"""What an error inside a reply and a refusal by its status mean for the item, and what is shown of them."""

import json

import pytest

from backstay.core.models import Succeeded, Usage
from backstay.llm.provider import ProviderReply
from backstay.llm.providers.openai.replies import SHOWN_CHARACTERS_MAX, failure_of_error, preview_reply
from backstay.llm.rate_limits import NO_HINTS, LimitHints
from tests.llm.reply_rig import CHAT, error, failed, read, verdict


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"message": "Upstream error", "code": 502}, "GW_5XX unknown"),
        ({"message": "slow down", "code": "429"}, "GW_4XX throttled"),
        ({"message": "bad key", "code": 401}, "FORBIDDEN held"),
        ({"message": "no", "code": 400}, "GW_4XX business"),
        ({"message": "oops", "code": "server_error"}, "GW_5XX unknown"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "GW_4XX throttled"),
        ({"message": "pay first", "code": "insufficient_quota"}, "FORBIDDEN held"),
        ({"message": "no such prompt", "code": "invalid_prompt"}, "GW_4XX business"),
        ({"message": "bad", "type": "invalid_request_error", "code": None}, "GW_4XX business"),
        ({"message": "no model", "code": "model_not_found"}, "GW_4XX business"),
        ({"code": 700}, "GW_5XX unknown"),
        ("upstream timed out", "GW_5XX unknown"),
        (["what", "ever"], "GW_5XX unknown"),
        (7, "GW_5XX unknown"),
    ],
)
def test_an_error_inside_a_200_is_a_failure_by_what_it_says_and_one_of_the_provider_may_have_been_paid(said, expected):
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
    assert failure_of_error(None).message == "the provider reports an error without a message"
    assert failure_of_error({}).message == "the provider reports an error without a message"


@pytest.mark.parametrize(
    ("status", "text", "expected", "message"),
    [
        (400, error("No such thing", "unknown_parameter"), "GW_4XX business", "No such thing (unknown_parameter)"),
        (401, error("Incorrect API key", "invalid_api_key"), "FORBIDDEN held", "Incorrect API key (invalid_api_key)"),
        (403, error("Not in your country"), "FORBIDDEN refused", "Not in your country (invalid_request_error)"),
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
        (429, LimitHints(retry_after_ms=7_000), 7_000),
        (429, LimitHints(requests_remaining=0, requests_reset_ms=900), 900),
        (503, LimitHints(retry_after_ms=7_000), 7_000),
        (429, NO_HINTS, None),
        (400, LimitHints(retry_after_ms=7_000), None),
    ],
)
def test_the_wait_that_a_refusal_asks_for_travels_with_it(status, learned, expected):
    assert failed(error("no"), status, learned).failure.retry_after_ms == expected


def test_a_failure_shows_the_providers_own_answer_in_the_shape_of_a_result():
    text = error("No such model", "model_not_found")
    assert failed(text, 404, x_request_id="req_9").reply == f'{{"status_code":404,"request_id":"req_9","body":{text}}}'


def test_what_is_no_json_is_shown_as_text_and_what_is_long_only_in_its_beginning():
    assert json.loads(preview_reply(ProviderReply(502, {}, "<html>\udcff\x00")))["body"] == "<html>?\x00"
    long = json.dumps({"error": "x" * SHOWN_CHARACTERS_MAX})
    assert json.loads(preview_reply(ProviderReply(500, {}, long)))["body"] == long[:SHOWN_CHARACTERS_MAX]


def test_a_request_id_cannot_break_the_result():
    outcome = read('{"id":"x"}', x_request_id='a"b\\\n\udcff' + "x" * 1_000)
    assert isinstance(outcome, Succeeded)
    assert len(json.loads(outcome.result)["request_id"]) == 200
    outcome.result.encode()
