"""What Anthropic's replies mean: flaws, usage at the published prices, errors, and limits."""

import json
from typing import Any

import pytest

from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.prices import LanePrices
from backstay.llm.provider import ProviderReply
from backstay.llm.providers.anthropic.calls import limit_hints, read_reply
from backstay.llm.rate_limits import NO_HINTS, LimitHints, Pacer

REMOTE = "https://api.anthropic.com"
NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1_000, "output_tokens": 700},
}


def read(value: Any, status: int = 200, lane: Lane = Lane.CALL, **headers: str) -> Succeeded | Failed:
    text = value if isinstance(value, str) else json.dumps(value)
    named = {name.replace("_", "-"): header for name, header in headers.items()}
    reply = ProviderReply(status, named, text)
    return read_reply(reply, limit_hints(reply, NOW_MS), LanePrices(Endpoint(REMOTE, lane, api="anthropic")))


def succeeded(value: Any, lane: Lane = Lane.CALL) -> Succeeded:
    outcome = read(value, lane=lane)
    assert isinstance(outcome, Succeeded), outcome
    return outcome


def failed(value: Any, status: int, **headers: str) -> Failed:
    outcome = read(value, status, Lane.CALL, **headers)
    assert isinstance(outcome, Failed), outcome
    return outcome


def refusal(kind: str, message: str = "no", code: str | None = None) -> dict[str, Any]:
    details = {} if code is None else {"details": {"error_code": code}}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("reason", "flaw"),
    [
        ("end_turn", None),
        ("stop_sequence", None),
        ("tool_use", None),
        ("max_tokens", Flaw.TRUNCATED),
        ("model_context_window_exceeded", Flaw.TRUNCATED),
        ("pause_turn", Flaw.UNFINISHED),
        ("refusal", Flaw.REFUSED),
        ("something_new", None),
        ([], None),
    ],
)
def test_the_reason_of_the_end_tells_the_flaw(reason: Any, flaw: Flaw | None) -> None:
    assert succeeded({**MESSAGE, "stop_reason": reason}).flaw is flaw


def test_the_result_keeps_the_message_byte_for_byte_with_its_request_id() -> None:
    text = '{"type": "message",  "content": [{"type":"new_kind","x":1.50}], "model": "m"}'
    outcome = read(text, request_id="req_9")
    assert isinstance(outcome, Succeeded)
    assert outcome.result == f'{{"status_code":200,"request_id":"req_9","body":{text}}}'


# claude-sonnet-5: 2 dollars a million in, 10 out, 0.20 read from the cache; 2.50 written to it for five minutes, and 4
# for an hour. A search costs a cent.
CACHED: dict[str, Any] = {
    "input_tokens": 1_000,
    "cache_creation_input_tokens": 3_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 2_000},
    "cache_read_input_tokens": 5_000,
    "output_tokens": 700,
    "output_tokens_details": {"thinking_tokens": 300},
    "service_tier": "standard",
}


@pytest.mark.parametrize(
    ("usage", "lane", "used"),
    [
        ({"input_tokens": 1_000, "output_tokens": 700}, Lane.CALL, Usage(1_000, 700, 2_000 + 7_000)),
        ({"input_tokens": 1_000, "output_tokens": 700}, Lane.BATCH, Usage(1_000, 700, 1_000 + 3_500)),
        (CACHED, Lane.CALL, Usage(9_000, 700, 2_000 + 2_500 + 8_000 + 1_000 + 7_000)),
        (CACHED, Lane.BATCH, Usage(9_000, 700, (2_000 + 2_500 + 8_000 + 1_000 + 7_000) // 2)),
        (
            {**CACHED, "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1}},
            Lane.CALL,
            Usage(9_000, 700, 20_500 + 30_000),
        ),
        (
            {"input_tokens": 1_000, "cache_creation_input_tokens": 1_000, "cache_creation": None, "output_tokens": 0},
            Lane.CALL,
            Usage(2_000, 0, 2_000 + 2_500),
        ),
        ({**CACHED, "service_tier": "priority"}, Lane.CALL, Usage(9_000, 700, None)),
        ({**CACHED, "speed": "fast"}, Lane.CALL, Usage(9_000, 700, None)),
        ({"output_tokens": 700}, Lane.CALL, Usage()),
        ({"input_tokens": 10**10, "output_tokens": 1}, Lane.CALL, Usage()),
        ({"input_tokens": "many", "output_tokens": []}, Lane.CALL, Usage()),
        (None, Lane.CALL, Usage()),
    ],
)
def test_usage_is_priced_by_the_published_list(usage: Any, lane: Lane, used: Usage) -> None:
    assert succeeded({**MESSAGE, "usage": usage}, lane).usage == used


def test_a_model_that_is_on_no_list_has_no_price() -> None:
    assert succeeded({**MESSAGE, "model": "claude-none-such"}).usage == Usage(1_000, 700, None)


@pytest.mark.parametrize(
    ("status", "kind", "code", "meaning"),
    [
        (400, "invalid_request_error", None, "GW_4XX business"),
        (400, "invalid_request_error", "organization_on_hold", "FORBIDDEN held"),
        (400, "billing_error", None, "FORBIDDEN held"),
        (401, "authentication_error", None, "FORBIDDEN held"),
        (402, "billing_error", None, "FORBIDDEN held"),
        (403, "permission_error", None, "FORBIDDEN refused"),
        (404, "not_found_error", None, "GW_4XX business"),
        (408, "timeout_error", None, "GW_TIMEOUT infrastructure"),
        (409, "conflict_error", None, "GW_4XX infrastructure"),
        (413, "request_too_large", None, "TOO_LARGE business"),
        (429, "rate_limit_error", None, "GW_4XX throttled"),
        (429, "rate_limit_error", "ramp_limit_exceeded", "GW_4XX throttled"),
        (429, "rate_limit_error", "enforced_spend_limit_reached", "FORBIDDEN held"),
        (500, "api_error", None, "GW_5XX infrastructure"),
        (504, "timeout_error", None, "GW_TIMEOUT infrastructure"),
        (529, "overloaded_error", None, "GW_5XX infrastructure"),
    ],
)
def test_an_error_means_what_the_table_says(status: int, kind: str, code: str | None, meaning: str) -> None:
    failure = failed(refusal(kind, code=code), status).failure
    assert f"{failure.code} {failure.kind}" == meaning
    assert (failure.provider_status, failure.message) == (status, f"no ({code or kind})")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("You have reached your specified API usage limits. You will regain access on 2027-02-01.", "held"),
        ("You have reached your specified workspace API usage limits.", "held"),
        ("Your credit balance is too low to access the Anthropic API.", "held"),
        ("messages.0: the text 'You have reached your specified API usage limits' is odd", "business"),
    ],
)
def test_a_spend_limit_without_a_code_pauses_the_run(message: str, kind: str) -> None:
    assert failed(refusal("invalid_request_error", message), 400).failure.kind == kind


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [
        (500, "false", "business"),
        (529, "false", "business"),
        (409, "false", "business"),
        (429, "false", "held"),
        (429, "true", "throttled"),
        (400, "true", "infrastructure"),
        (401, "true", "held"),
    ],
)
def test_the_provider_itself_can_tell_whether_to_try_again(status: int, told: str, kind: str) -> None:
    outcome = failed(refusal("api_error"), status, x_should_retry=told)
    assert outcome.failure.kind == kind


def test_a_refusal_waits_as_long_as_it_says_and_one_that_ends_the_month_does_not() -> None:
    assert failed(refusal("rate_limit_error"), 429, retry_after="17").failure.retry_after_ms == 17_000
    assert failed(refusal("overloaded_error"), 529, retry_after="3").failure.retry_after_ms == 3_000
    held = failed(refusal("rate_limit_error", code="enforced_spend_limit_reached"), 429, retry_after="17")
    assert held.failure.retry_after_ms is None


def test_a_page_of_the_edge_is_a_refusal_by_its_status() -> None:
    assert failed("<html>413 Request Entity Too Large</html>", 413).failure.code == "TOO_LARGE"
    assert failed("", 502).failure.kind == "infrastructure"


@pytest.mark.parametrize("status", [200, 400, 429, 500])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "7",
        '"text"',
        "{}",
        "{",
        "\udcff",
        '{"error":7}',
        '{"error":"text"}',
        "[" * 100_000,
        '{"type":"error","error":{"type":[],"message":{},"details":{"error_code":{}}}}',
        '{"type":"error","error":{"type":"rate_limit_error","details":[]}}',
        '{"content":[7],"model":{},"usage":{"input_tokens":1,"output_tokens":1},"stop_reason":{}}',
        '{"content":[],"model":"claude-sonnet-5","usage":{"input_tokens":1,"output_tokens":1,"cache_creation":[1]}}',
        '{"content":[],"usage":{"input_tokens":-1,"output_tokens":1e400,"server_tool_use":7}}',
    ],
)
def test_any_content_has_a_meaning(body: str, status: int) -> None:
    read(body, status)


@pytest.mark.parametrize("body", ["<html>", "", "[1]", '{"id": "msg_1"}', '{"content": "text", "type": "message"}'])
def test_a_success_that_is_not_a_message_may_have_been_paid(body: str) -> None:
    assert failed(body, 200).failure.kind == "unknown"


def test_an_error_inside_a_success_is_an_error() -> None:
    assert failed(refusal("overloaded_error"), 200).failure.kind == "infrastructure"


def hints(**headers: str) -> LimitHints:
    named = {f"anthropic-ratelimit-{name.replace('_', '-')}": value for name, value in headers.items()}
    return limit_hints(ProviderReply(200, named, ""), NOW_MS)


def test_limits_are_read_with_their_times() -> None:
    found = hints(
        requests_remaining="49",
        requests_reset="2027-01-15T08:00:02Z",
        tokens_remaining="8000",
        tokens_reset="2027-01-15T08:00:30+00:00",
        input_tokens_remaining="40000",
        input_tokens_reset="2027-01-15T08:00:10Z",
    )
    assert found == LimitHints(None, 49, 2_000, 8_000, 30_000)


@pytest.mark.parametrize("kind", ["tokens", "input_tokens", "output_tokens"])
def test_a_limit_that_is_used_up_makes_all_wait_until_its_reset(kind: str) -> None:
    full = {"tokens": "9000", "input_tokens": "9000", "output_tokens": "9000"}
    left = {f"{name}_remaining": "0" if name == kind else value for name, value in full.items()}
    resets = {f"{name}_reset": f"2027-01-15T08:00:{20 if name == kind else 50}Z" for name in full}
    found = hints(**left, **resets)
    assert found.wait_ms == 20_000
    pacer = Pacer()
    pacer.note_answer(200, 0.1, found)
    assert pacer.answers.pause_ms == 20_000


def test_a_reply_without_limits_has_no_hints() -> None:
    assert limit_hints(ProviderReply(200, {}, ""), NOW_MS) == NO_HINTS
