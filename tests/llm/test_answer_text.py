"""The text of an answer and of a prompt, in the form of every provider; nothing that a model said is lost."""

import json
import subprocess
import sys
from typing import Any

import pytest

from backstay.llm.chat_format import answer_text, prompt_text
from backstay.llm.providers import CHAT
from tests.cli.shell import ROOT

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
        ({"content": [{"type": "tool_use", "name": "f"}]}, '{"name": "f", "arguments": "{}"}'),
        ({"choices": [{"message": {"content": "hm", "tool_calls": [CALL]}}]}, f"hm\n{json.dumps(CALL['function'])}"),
        ({"choices": [{"message": {"content": None, "refusal": "no"}}]}, "no"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "The prompt was blocked: SAFETY."),
        ({"output": [{"type": "function_call", "name": "f"}]}, '{"type": "function_call", "name": "f"}'),
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


OTHER_ROLES = {"messages": [7, {"role": "system", "content": "b"}]}


@pytest.mark.parametrize(
    ("url", "body", "text"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "a"),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]},
            "a\n[attachment]",
        ),
        ("/model/m/converse", {"messages": [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}]}, "a\nb"),
        ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "a"}]}]}, "a"),
        ("/v1/responses", {"input": "a"}, "a"),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}, "a"),
        ("/v1/completions", {"prompt": "a"}, "a"),
        (CHAT, {"other": 1}, '{"other": 1}'),
        (CHAT, OTHER_ROLES, json.dumps(OTHER_ROLES)),
        (CHAT, None, "null"),
    ],
)
def test_the_prompt_is_found_in_every_form(url: str, body: Any, text: str):
    assert prompt_text(url, json.dumps(body)) == text


def test_bodies_of_openai_load_no_other_provider():
    code = """if True:
        import sys
        from backstay.llm.chat_format import answer_text, foreign_member, prompt_text
        from backstay.llm.providers import CHAT
        body = {"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 9, "temperature": 0}
        assert foreign_member(body) is None
        assert prompt_text(CHAT, '{"messages": [{"role": "user", "content": "a"}]}') == "a"
        assert answer_text({"choices": [{"message": {"content": "b"}}]}) == "b"
        print(*(name for name in sys.modules if name.startswith("backstay.llm.providers.")))
    """
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name.split(".")[3] for name in ran.stdout.split()} == {"openai"}
