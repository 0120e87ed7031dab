"""The text of an answer and of a prompt, in the form of every provider; nothing that a model said is lost."""

import json
from typing import Any

import pytest

from backstay.llm.bodies import answer_text, prompt_text

CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"choices": [{"message": {"content": "hi"}}, {"message": {"content": "second"}}]}, "hi"),
        ({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}]}, "ab"),
        ({"choices": [{"message": {"content": None, "tool_calls": [CALL]}}]}, json.dumps(CALL["function"])),
        ({"choices": [{"message": {"content": ""}}]}, ""),
        ({"choices": [{"text": "completed"}]}, "completed"),
        ({"output": [{"type": "reasoning"}, {"content": [{"type": "output_text", "text": "hi"}]}]}, "hi"),
        ({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}]}, "hi"),
        ({"content": [{"type": "tool_use", "name": "f"}]}, '{"type": "tool_use", "name": "f"}'),
        ({"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}, {"text": "hi"}]}}]}, "hi"),
        ({"candidates": [{"finishReason": "SAFETY"}]}, ""),
        ({"output": {"message": {"content": [{"text": "hi"}]}}}, "hi"),
        ({"data": [{"embedding": [0.5, 1]}]}, "[0.5, 1]"),
        ({"data": [{"embedding": [0]}, {"embedding": [1]}]}, "[[0], [1]]"),
        ({"results": "ä"}, '{"results": "ä"}'),
        ("nonsense", '"nonsense"'),
        (None, None),
        ({"choices": [7], "output": [None]}, ""),
    ],
)
def test_the_answer_is_found_in_every_form(body: Any, text: str | None):
    assert answer_text(body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "a"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
            "a\n[attachment]",
        ),
        ({"input": "a"}, "a"),
        ({"prompt": "a"}, "a"),
        ({"contents": [{"parts": [{"text": "a"}]}]}, "a"),
        ({"other": 1}, '{"other": 1}'),
        (None, None),
    ],
)
def test_the_prompt_is_found_in_every_form(body: Any, text: str | None):
    assert prompt_text(body) == text
