"""What Gemini's replies mean: answers and their flaws, usage with cache and thinking, errors, and waits in bodies."""

import json
from typing import Any

import pytest

from backstay.core.models import Failed, Succeeded, Usage
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.prices import LanePrices
from backstay.llm.provider import ProviderReply
from backstay.llm.providers.gemini.calls import failure_of_error, flaw_of, limit_hints, read_reply, usage_of
from backstay.llm.rate_limits import NO_HINTS

NOW_MS = 1_800_000_000_000
ODD: list[Any] = [None, 7, -1, True, 1.5, "", "text", [], {}, [[]], [{}], {"a": {}}, [None, "x"], 10**30]
REMOTE = "https://generativelanguage.googleapis.com"
PRICES = LanePrices(Endpoint(REMOTE, api="gemini"))
USED = {"promptTokenCount": 1_000, "candidatesTokenCount": 100, "totalTokenCount": 1_100}
ANSWER: dict[str, Any] = {
    "candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": USED,
    "modelVersion": "gemini-2.5-flash",
    "responseId": "r-1",
}
RPC = "type.googleapis.com/google.rpc."


def read(body: Any, status: int = 200, **headers: str) -> Succeeded | Failed:
    text = body if isinstance(body, str) else json.dumps(body)
    reply = ProviderReply(status, {name.replace("_", "-"): value for name, value in headers.items()}, text)
    return read_reply(reply, limit_hints(reply, NOW_MS), PRICES)


def error(status: int, name: str, message: str = "no", *details: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": name, "details": list(details)}}


def quota(*ids: str, value: str = "10") -> dict[str, Any]:
    return {"@type": f"{RPC}QuotaFailure", "violations": [{"quotaId": each, "quotaValue": value} for each in ids]}


def reason(name: str) -> dict[str, Any]:
    return {"@type": f"{RPC}ErrorInfo", "reason": name, "domain": "googleapis.com"}


def retry(delay: Any) -> dict[str, Any]:
    return {"@type": f"{RPC}RetryInfo", "retryDelay": delay}


def test_an_answer_is_kept_as_it_came_with_its_usage_and_cost() -> None:
    outcome = read(ANSWER)
    assert isinstance(outcome, Succeeded)
    assert json.loads(outcome.result or "")["body"] == ANSWER
    assert outcome.usage == Usage(1_000, 100, 550)  # 0.30 and 2.50 dollars a million
    assert outcome.flaw is None


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({**USED, "thoughtsTokenCount": 900, "totalTokenCount": 2_000}, Usage(1_000, 1_000, 2_800)),
        ({**USED, "cachedContentTokenCount": 500}, Usage(1_000, 100, 415)),  # cached at a tenth
        ({**USED, "toolUsePromptTokenCount": 200, "totalTokenCount": 1_300}, Usage(1_200, 100, 610)),
        ({"promptTokenCount": 1_000}, Usage(1_000, 0, 300)),  # zero is left out
        (
            {"promptTokenCount": 1_000, "candidatesTokenCount": 100, "thoughtsTokenCount": 900},
            Usage(1_000, 1_000, 2_800),
        ),
        ({"promptTokenCount": "1000", "candidatesTokenCount": 100}, Usage(1_000, 100, 550)),
        ({**USED, "totalTokenCount": 1_500}, Usage(1_000, 500, 1_550)),  # what only the total has was written
        (
            {**USED, "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 1_000}]},
            Usage(1_000, 100, 1_250),  # a sound costs 1 dollar a million
        ),
        ({}, Usage()),
        ({"promptTokenCount": -1}, Usage()),
        ({**USED, "thoughtsTokenCount": 10**12}, Usage()),
        ({**USED, "candidatesTokenCount": "many"}, Usage()),
        ("odd", Usage()),
    ],
)
def test_usage_is_read_as_it_is_billed(said: Any, usage: Usage) -> None:
    assert usage_of({**ANSWER, "usageMetadata": said}, PRICES) == usage


def test_a_batch_costs_half_and_an_unknown_model_has_no_cost() -> None:
    halved = LanePrices(Endpoint(REMOTE, Lane.BATCH, api="gemini"))
    assert usage_of(ANSWER, halved) == Usage(1_000, 100, 275)
    assert usage_of({**ANSWER, "modelVersion": "mystery"}, PRICES) == Usage(1_000, 100)
    assert usage_of({**ANSWER, "modelVersion": None}, PRICES) == Usage(1_000, 100)


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        ({"candidates": [{"finishReason": "STOP"}]}, None),
        ({"candidates": [{"finishReason": "MAX_TOKENS"}]}, "truncated"),
        ({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}, "truncated"),
        ({"candidates": [{"finishReason": "SAFETY"}]}, "filtered"),
        ({"candidates": [{"finishReason": "MAX_TOKENS"}, {"finishReason": "RECITATION"}]}, "filtered"),
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, "filtered"),
        ({"candidates": [], "promptFeedback": {}}, "truncated"),
        ({"candidates": [7, {"finishReason": []}]}, None),
    ],
)
def test_a_flaw_is_found_in_the_reason(body: dict[str, Any], flaw: str | None) -> None:
    assert flaw_of(body) == flaw
    outcome = read({**body, "usageMetadata": USED, "modelVersion": "gemini-2.5-flash"})
    assert isinstance(outcome, Succeeded)
    assert (outcome.flaw, outcome.usage.cost_micros if outcome.usage else None) == (flaw, 550)  # it is paid for


@pytest.mark.parametrize(
    ("status", "said", "kind", "code"),
    [
        (400, error(400, "INVALID_ARGUMENT"), "business", "GW_4XX"),
        (400, error(400, "INVALID_ARGUMENT", "API key not valid.", reason("API_KEY_INVALID")), "held", "FORBIDDEN"),
        (400, error(400, "FAILED_PRECONDITION", "User location is not supported"), "held", "FORBIDDEN"),
        (400, error(400, "FAILED_PRECONDITION", "The File x is not in an ACTIVE state"), "infrastructure", "GW_4XX"),
        (401, error(401, "UNAUTHENTICATED"), "held", "FORBIDDEN"),
        (403, error(403, "PERMISSION_DENIED"), "refused", "FORBIDDEN"),
        (403, error(403, "PERMISSION_DENIED", "off", reason("SERVICE_DISABLED")), "held", "FORBIDDEN"),
        (404, error(404, "NOT_FOUND"), "business", "GW_4XX"),
        (409, error(409, "ABORTED"), "infrastructure", "GW_4XX"),
        (429, error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (check quota)."), "throttled", "GW_4XX"),
        (429, error(429, "RESOURCE_EXHAUSTED", "slow", quota("RequestsPerMinutePerProject")), "throttled", "GW_4XX"),
        (429, error(429, "RESOURCE_EXHAUSTED", "x", quota("PerMinute", "GenerateRequestsPerDay")), "held", "FORBIDDEN"),
        (429, error(429, "RESOURCE_EXHAUSTED", "x", quota("PerMinute", value="0")), "held", "FORBIDDEN"),
        (429, error(429, "RESOURCE_EXHAUSTED", "exceeded its monthly spending cap"), "held", "FORBIDDEN"),
        (499, error(499, "CANCELLED"), "infrastructure", "GW_4XX"),
        (500, error(500, "INTERNAL"), "infrastructure", "GW_5XX"),
        (503, error(503, "UNAVAILABLE"), "infrastructure", "GW_5XX"),
        (504, error(504, "DEADLINE_EXCEEDED"), "infrastructure", "GW_TIMEOUT"),
        (503, "<html>", "infrastructure", "GW_5XX"),
        (302, "", "business", "UNKNOWN"),
    ],
)  # fmt: skip
def test_an_error_has_its_kind(status: int, said: Any, kind: str, code: str) -> None:
    for body in (said, [said]) if isinstance(said, dict) else (said,):
        outcome = read(body, status)
        assert isinstance(outcome, Failed)
        assert (outcome.failure.kind, outcome.failure.code) == (kind, code)
        assert outcome.failure.provider_status == status


def test_the_wait_is_in_the_body_of_an_error() -> None:
    body = error(429, "RESOURCE_EXHAUSTED", "x", quota("PerMinute"), retry("34.074824224s"))
    outcome = read(body, 429)
    assert isinstance(outcome, Failed)
    assert outcome.failure.retry_after_ms == 34_075
    later = read(error(503, "UNAVAILABLE", "x", retry("7s")), 503, retry_after="90")
    assert isinstance(later, Failed)
    assert later.failure.retry_after_ms == 7_000
    for odd in ("soon", 7, None, "-3s"):
        reply = ProviderReply(429, {}, json.dumps(error(429, "RESOURCE_EXHAUSTED", "x", retry(odd))))
        assert limit_hints(reply, NOW_MS) == NO_HINTS
    held = read(error(429, "RESOURCE_EXHAUSTED", "x", quota("PerDay"), retry("34s")), 429)
    assert isinstance(held, Failed)
    assert held.failure.retry_after_ms is None  # in half a minute it is still the same day


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"code": 8}, 429),
        ({"code": 3}, 400),
        ({"code": 14}, 503),
        ({"code": 429, "status": "X"}, 429),
        ({"status": "NOT_FOUND"}, 404),
    ],
)
def test_an_error_without_a_reply_of_its_own_has_a_number_or_a_name(said: dict[str, Any], status: int) -> None:
    assert failure_of_error(said).provider_status == status
    assert failure_of_error({**said, "message": "m"}).message.startswith("m (")


@pytest.mark.parametrize("body", ["", "nonsense", "[]", "{}", '{"candidates": 7}', '{"text": "hi"}'])
def test_a_success_that_is_no_answer_may_have_been_paid(body: str) -> None:
    outcome = read(body)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind == "unknown"


@pytest.mark.parametrize("odd", ODD)
def test_anything_can_be_in_a_reply(odd: Any) -> None:
    for name in ("candidates", "usageMetadata", "promptFeedback", "modelVersion", "error"):
        assert isinstance(read({**ANSWER, name: odd}), Succeeded | Failed)
    assert isinstance(read({"error": odd}, 429), Failed)
    assert isinstance(read({"error": {"code": odd, "status": odd, "message": odd, "details": odd}}), Failed)
    assert isinstance(read({"error": {"details": [odd, {"violations": [odd], "reason": odd}]}}, 429), Failed)
