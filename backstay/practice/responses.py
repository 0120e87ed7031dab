"""Responses: the object that OpenAI's newer endpoint answers with."""

import json
from typing import Any

from backstay.practice.generated import Body, Generated, Stamp, model_of
from backstay.practice.prompt import (
    MESSAGE_TOKENS,
    Answer,
    Prompt,
    answer,
    bound_of,
    read_messages,
    tokens_of,
    tool_tokens,
)
from backstay.practice.refusals import Refused, missing

_ECHOED = ("instructions", "max_output_tokens", "metadata", "previous_response_id", "temperature", "top_p")


def generate(body: Body, stamp: Stamp) -> Generated:
    model = model_of(body)
    if body.get("stream") and not body.get("background"):
        raise Refused(400, "Streaming can be practised in the background only.", "unsupported_parameter", "stream")
    prompt = read_prompt(body)
    bound = bound_of(body, "max_output_tokens")
    said = answer(prompt, bound, stamp.answer_tokens)
    value = _object(body, stamp, model, said)
    value["usage"] = usage_of(prompt.tokens, said.tokens)
    if stamp.mishap == "failed":
        error = {"code": "server_error", "message": "The model could not finish (practice)."}
        value |= {"status": "failed", "error": error, "output": [], "usage": None}
        return Generated(json.dumps(value), prompt.tokens, said.tokens, prompt.tokens, free=True)
    if stamp.mishap == "incomplete" or not said.whole:
        value |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return Generated(json.dumps(value), prompt.tokens, said.tokens, prompt.tokens + (bound or said.tokens))


def read_prompt(body: Body) -> Prompt:
    given, instructions = body.get("input"), body.get("instructions")
    if not given:
        raise missing("input")
    messages = [{"content": given}] if isinstance(given, str) else given
    prompt = read_messages(messages, "input")
    extra = tool_tokens(body)
    if isinstance(instructions, str):
        extra += MESSAGE_TOKENS + tokens_of(instructions)
    return prompt._replace(tokens=prompt.tokens + extra)


def _object(body: Body, stamp: Stamp, model: str, said: Answer) -> dict[str, Any]:
    part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
    message = {
        "id": f"msg_{stamp.mark}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": f"resp_{stamp.mark}",
        "object": "response",
        "created_at": stamp.created,
        "status": "completed",
        "background": bool(body.get("background")),
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [message],
        "parallel_tool_calls": True,
        "store": body.get("store", True),
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "usage": None,
        **{name: body.get(name) for name in _ECHOED},
    }


def usage_of(asked: int, made: int) -> dict[str, Any]:
    return {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": asked + made,
    }
