"""What Bedrock's replies mean: flaws, usage at the published prices, and errors."""

import json
from typing import Any

import pytest

from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.prices import LanePrices
from backstay.llm.provider import ProviderReply
from backstay.llm.providers.bedrock.calls import limit_hints, path_to, read_reply

REMOTE = "https://bedrock-runtime.us-east-1.amazonaws.com"
MODEL = "amazon.nova-pro-v1:0"  # 0.8 and 3.2 dollars for a million tokens, 0.2 from the cache
REPLY: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1_000, "outputTokens": 700, "totalTokens": 1_700},
}
ANTHROPIC = {"content": [], "stop_reason": "refusal", "usage": {"input_tokens": 10, "output_tokens": 5}}
LLAMA = {"generation": "x", "prompt_token_count": 10, "generation_token_count": 5, "stop_reason": "length"}
CHAT = {
    "choices": [{"message": {"content": "x"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
}


def read(
    value: Any, status: int = 200, path: str = path_to(MODEL), lane: Lane = Lane.CALL, **headers: str
) -> Succeeded | Failed:
    text = value if isinstance(value, str) else json.dumps(value)
    named = {name.replace("_", "-"): header for name, header in headers.items()}
    reply = ProviderReply(status, named, text, path=path)
    return read_reply(reply, limit_hints(reply, 0), LanePrices(Endpoint(REMOTE, lane, api="bedrock")))


def succeeded(value: Any, **more: Any) -> Succeeded:
    outcome = read(value, **more)
    assert isinstance(outcome, Succeeded), outcome
    return outcome


def failed(value: Any, status: int, **headers: str) -> Failed:
    outcome = read(value, status, path_to(MODEL), Lane.CALL, **headers)
    assert isinstance(outcome, Failed), outcome
    return outcome


@pytest.mark.parametrize(
    ("reason", "flaw"),
    [
        ("end_turn", None),
        ("tool_use", None),
        ("stop_sequence", None),
        ("max_tokens", Flaw.TRUNCATED),
        ("model_context_window_exceeded", Flaw.TRUNCATED),
        ("malformed_model_output", Flaw.TRUNCATED),
        ("malformed_tool_use", Flaw.TRUNCATED),
        ("guardrail_intervened", Flaw.FILTERED),
        ("content_filtered", Flaw.FILTERED),
        ("refusal", Flaw.REFUSED),
        ("what_comes_next", None),
        (7, None),
    ],
)
def test_the_reason_of_the_end_is_a_flaw(reason: Any, flaw: Flaw | None) -> None:
    assert succeeded({**REPLY, "stopReason": reason}).flaw is flaw


def test_the_model_of_the_path_gives_the_price() -> None:
    assert succeeded(REPLY).usage == Usage(1_000, 700, 800 + 2_240)
    assert succeeded(REPLY, lane=Lane.BATCH).usage == Usage(1_000, 700, 400 + 1_120)
    assert succeeded(REPLY, path=path_to("us." + MODEL)).usage == Usage(1_000, 700, 800 + 2_240)
    assert succeeded(REPLY, path=path_to("nobody.knows-it")).usage == Usage(1_000, 700)
    assert succeeded(REPLY, path="").usage == Usage(1_000, 700)


def test_tokens_of_the_cache_are_read_and_cost_less() -> None:
    usage = {**REPLY["usage"], "cacheReadInputTokens": 2_000, "cacheWriteInputTokens": 500}
    assert succeeded({**REPLY, "usage": usage}).usage == Usage(3_500, 700, 800 + 400 + 400 + 2_240)


def test_what_is_written_to_the_cache_of_an_hour_costs_more() -> None:
    path = path_to("us.anthropic.claude-sonnet-4-5-20250929-v1:0")
    usage = {"inputTokens": 0, "outputTokens": 0, "cacheWriteInputTokens": 1_000}
    short = succeeded({**REPLY, "usage": usage}, path=path).usage
    details = {"cacheDetails": [{"ttl": "1h", "inputTokens": 1_000}]}
    hour = succeeded({**REPLY, "usage": {**usage, **details}}, path=path).usage
    assert (short, hour) == (Usage(1_000, 0, 4_125), Usage(1_000, 0, 6_600))


@pytest.mark.parametrize(
    ("body", "flaw"),
    [(ANTHROPIC, Flaw.REFUSED), (LLAMA, Flaw.TRUNCATED), (CHAT, Flaw.TRUNCATED)],
    ids=["anthropic", "llama", "chat"],
)
def test_the_models_own_bodies_are_read(body: dict[str, Any], flaw: Flaw) -> None:
    found = succeeded(body, path=path_to(MODEL, "invoke"))
    assert (found.usage, found.flaw) == (Usage(10, 5, 8 + 16), flaw)


def test_tokens_in_headers_count_where_the_body_tells_none() -> None:
    headers = {"x_amzn_bedrock_input_token_count": "10", "x_amzn_bedrock_output_token_count": "5"}
    assert succeeded({"outputs": []}, path=path_to(MODEL, "invoke"), **headers).usage == Usage(10, 5, 24)
    headers["x_amzn_bedrock_output_token_count"] = "9" * 30
    assert succeeded({"outputs": []}, path=path_to(MODEL, "invoke"), **headers).usage == Usage()


@pytest.mark.parametrize("usage", [None, 7, [], {}, {"inputTokens": -1, "outputTokens": 2}, {"inputTokens": 10**12}])
def test_odd_usage_is_no_usage(usage: Any) -> None:
    assert succeeded({**REPLY, "usage": usage}).usage == Usage()


@pytest.mark.parametrize("body", ["", "[]", "<html>", '{"message": "?"}', '{"output": 3}'])
def test_an_odd_success_is_an_unknown_outcome(body: str) -> None:
    assert failed(body, 200).failure.kind == "unknown"


@pytest.mark.parametrize(
    ("status", "kind", "verdict"),
    [
        (400, "ValidationException", "GW_4XX business"),
        (400, "ServiceQuotaExceededException", "GW_4XX throttled"),
        (403, "AccessDeniedException", "FORBIDDEN refused"),
        (403, "UnrecognizedClientException", "FORBIDDEN held"),
        (403, "ExpiredTokenException", "FORBIDDEN held"),
        (403, "InvalidSignatureException", "FORBIDDEN held"),
        (404, "ResourceNotFoundException", "GW_4XX business"),
        (408, "ModelTimeoutException", "GW_TIMEOUT infrastructure"),
        (424, "ModelErrorException", "GW_4XX infrastructure"),
        (429, "ThrottlingException", "GW_4XX throttled"),
        (429, "ModelNotReadyException", "GW_4XX throttled"),
        (500, "InternalServerException", "GW_5XX infrastructure"),
        (503, "ServiceUnavailableException", "GW_5XX infrastructure"),
    ],
)
def test_an_error_is_known_by_its_type(status: int, kind: str, verdict: str) -> None:
    url = ":http://internal.amazon.com/coral/com.amazon.bedrock/"
    for outcome in (
        failed({"message": "no"}, status, x_amzn_errortype=kind + url),
        failed({"__type": f"com.amazon.coral#{kind}", "Message": "no"}, status),
    ):
        failure = outcome.failure
        assert (f"{failure.code} {failure.kind}", failure.provider_status) == (verdict, status)
        assert failure.message == f"no ({kind})"


def test_a_model_that_is_not_open_to_the_account_fails_its_own_requests() -> None:
    said = {"message": "You don't have access to the model with the specified model ID."}
    assert failed(said, 403, x_amzn_errortype="AccessDeniedException").failure.kind == "business"


def test_the_wait_is_as_told_or_a_minute_for_a_quota() -> None:
    told = failed({}, 429, x_amzn_errortype="ThrottlingException", retry_after="7").failure
    assert told.retry_after_ms == 7_000
    assert failed({}, 400, x_amzn_errortype="ServiceQuotaExceededException").failure.retry_after_ms == 60_000


def test_a_result_has_the_body_as_it_came_and_the_id_of_the_request() -> None:
    text = json.dumps(REPLY, indent=1)
    found = json.loads(succeeded(text, x_amzn_requestid="abc").result)
    assert (found["status_code"], found["request_id"], found["body"]) == (200, "abc", REPLY)
