"""Answers that came, and are not whole: told apart by what each kind of reply says about its end."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.failures import FailureKind
from backstay.core.models import ANSWER_FLAWS, Failed, Flaw, Succeeded, Usage
from backstay.llm.lane_handler import fail_flawed
from backstay.llm.providers.openai.replies import flaw_of
from tests.llm.reply_rig import CHAT, failed, read, verdict


def chat(reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "Hi", "refusal": None, **message}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": said, "finish_reason": reason}]}


def response(status: str = "completed", reason: str | None = None, *content: dict[str, Any]) -> dict[str, Any]:
    output = [{"type": "reasoning", "summary": []}, {"type": "message", "content": list(content)}]
    details = None if reason is None else {"reason": reason}
    return {"object": "response", "status": status, "incomplete_details": details, "output": output, "error": None}


def gemini(reason: str, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": []}, "finishReason": reason}], **more}


REFUSAL = {"type": "refusal", "refusal": "I cannot help with that."}
TEXT = {"type": "output_text", "text": "Hi"}


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (chat(), None),
        (chat("tool_calls", content=None), None),
        (chat(None), None),
        (chat("length"), Flaw.TRUNCATED),
        (chat("model_length"), Flaw.TRUNCATED),
        (chat("content_filter"), Flaw.FILTERED),
        (chat(refusal="I cannot help with that."), Flaw.REFUSED),
        (chat(content=[REFUSAL]), Flaw.REFUSED),
        (chat(content=[{"type": "text", "text": "Hi"}]), None),
        ({"choices": [*chat()["choices"], *chat("length")["choices"]]}, Flaw.TRUNCATED),
        ({"choices": [*chat("length")["choices"], *chat("content_filter")["choices"]]}, Flaw.FILTERED),
        ({"object": "text_completion", "choices": [{"text": "Hi", "finish_reason": "length"}]}, Flaw.TRUNCATED),
        ({"object": "text_completion", "choices": [{"text": "Hi", "finish_reason": "stop"}]}, None),
        (response("completed", None, TEXT), None),
        (response("completed", None, TEXT, REFUSAL), Flaw.REFUSED),
        (response("incomplete", "max_output_tokens", TEXT), Flaw.TRUNCATED),
        (response("incomplete", "content_filter"), Flaw.FILTERED),
        (response("incomplete", "something new"), Flaw.TRUNCATED),
        (response("incomplete"), Flaw.TRUNCATED),
        ({"type": "message", "content": [], "stop_reason": "end_turn"}, None),
        ({"type": "message", "content": [], "stop_reason": "max_tokens"}, Flaw.TRUNCATED),
        ({"type": "message", "content": [], "stop_reason": "refusal"}, Flaw.REFUSED),
        (gemini("STOP"), None),
        (gemini("MAX_TOKENS"), Flaw.TRUNCATED),
        (gemini("SAFETY"), Flaw.FILTERED),
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, Flaw.FILTERED),
        ({"output": {"message": {}}, "stopReason": "guardrail_intervened"}, Flaw.FILTERED),
        ({"object": "list", "data": [{"embedding": [0.5]}]}, None),
    ],
)
def test_a_reply_says_how_its_answer_ended(body: dict[str, Any], flaw: Flaw | None) -> None:
    assert flaw_of(body) == flaw
    outcome = read(json.dumps(body))
    assert isinstance(outcome, Succeeded)
    assert outcome.flaw == flaw


NAMES = st.sampled_from(
    ["choices", "finish_reason", "message", "refusal", "content", "type", "output", "candidates", "promptFeedback"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(NAMES | st.sampled_from(["status", "incomplete_details", "stop_reason"]), JSON))
def test_whatever_a_reply_holds_it_has_a_flaw_or_none(body: dict[str, Any]) -> None:
    assert flaw_of(body) in (None, *Flaw)


def test_a_reply_of_a_million_answers_is_looked_at_for_a_moment_only() -> None:
    many = [{"finish_reason": "stop"}] * 1_000_000
    assert flaw_of({"choices": [{"finish_reason": "length"}, *many]}) is Flaw.TRUNCATED
    assert flaw_of({"choices": [*many, {"finish_reason": "length"}]}) is None


@pytest.mark.parametrize("flaw", ANSWER_FLAWS)
def test_a_flaw_fails_an_answer_only_for_who_wants_it_so(flaw: Flaw) -> None:
    came = Succeeded('{"status_code":200}', Usage(1, 2, 3), 200, flaw)
    others = tuple(other for other in Flaw if other is not flaw)
    assert fail_flawed(came, ()) is fail_flawed(came, others) is came
    whole = came._replace(flaw=None)
    assert fail_flawed(whole, tuple(Flaw)) is whole
    outcome = fail_flawed(came, tuple(map(str, ANSWER_FLAWS)))
    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.flaw) == (FailureKind.INFRASTRUCTURE, flaw)
    assert (outcome.usage, outcome.reply, outcome.failure.provider_status) == (came.usage, came.result, 200)
    assert outcome.task_ended, "the next try is a new request: under the same name the provider could repeat its answer"
    assert fail_flawed(outcome, tuple(Flaw)) is outcome


@pytest.mark.parametrize(
    ("status", "error", "code_and_kind", "words"),
    [
        ("queued", None, "NOT_READY business", "use --lane background, which waits for it"),
        ("in_progress", None, "NOT_READY business", "its status is in_progress"),
        ("failed", None, "GW_5XX unknown", "an error without a message"),
        ("failed", {"code": "server_error", "message": "oh"}, "GW_5XX unknown", "oh (server_error)"),
        ("failed", {"code": "invalid_prompt", "message": "no"}, "GW_4XX business", "no (invalid_prompt)"),
        ("failed", {"code": "rate_limit_exceeded", "message": "later"}, "GW_4XX throttled", "later"),
        ("cancelled", None, "GW_5XX infrastructure", "was cancelled at the provider"),
    ],
)
def test_a_response_is_judged_by_its_own_status(status: str, error: object, code_and_kind: str, words: str) -> None:
    body = {**response(status), "error": error, "usage": None}
    for one in (body, {name: value for name, value in body.items() if name != "object"}):
        outcome = failed(json.dumps(one))
        assert verdict(outcome) == code_and_kind
        assert words in outcome.failure.message
        assert outcome.failure.provider_status == 200, "so its money is not given back"


def test_what_a_response_that_failed_has_used_is_kept() -> None:
    used = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}
    body = {**response("cancelled"), "model": CHAT["model"], "usage": used}
    assert failed(json.dumps(body)).usage == Usage(10, 20, 14)


@pytest.mark.parametrize(
    "body", [{**chat(), "status": "queued"}, {"status": "failed"}, {"id": "x", "status": "in_progress"}]
)
def test_a_status_of_another_endpoint_says_nothing(body: dict[str, Any]) -> None:
    assert isinstance(read(json.dumps(body)), Succeeded)
