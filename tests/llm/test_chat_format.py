"""What is the same for every provider whose format chat requests are translated into: nothing is left out silently."""

import json
from typing import Any

import pytest

from backstay.llm.formats import InputOptions
from backstay.llm.lines import LineRefused
from backstay.llm.provider import ChatTranslation
from backstay.llm.providers import provider_named, provider_names
from tests.llm.request_files import Write, batch_line, reason, sent

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
CHOICE = {"type": "function", "function": {"name": "f"}}
TRANSLATING = [name for name in provider_names() if provider_named(name).chat is not None]


def calling(call: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}


@pytest.fixture(params=TRANSLATING)
def chat(request: pytest.FixtureRequest) -> ChatTranslation:
    found = provider_named(request.param).chat
    assert found is not None
    return found


def translate(chat: ChatTranslation, asked: dict[str, Any]) -> dict[str, Any]:
    return chat.request({"model": "m", "max_tokens": 9, "messages": [USER], "tools": [TOOL], **asked}, None, None)[1]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (calling({**CALL, "new": 1}), "has new 1"),
        (calling({**CALL, "function": {**CALL["function"], "new": 1}}), "has new 1"),  # type: ignore[dict-item]
        ({"tool_choice": {**CHOICE, "new": 1}}, "has new 1"),
        ({"tool_choice": {"type": "function", "function": {"name": "f", "new": 1}}}, "has new 1"),
        ({"tool_choice": {"type": "function", "function": {}}}, "has the tool_choice"),
        ({"response_format": {"type": "text", "new": 1}}, "has new 1"),
        ({"response_format": {**SCHEMA, "new": 1}}, "has new 1"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "has the text null"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}, "has the text 7"),
    ],
)
def test_what_would_be_lost_is_refused_by_its_name(chat: ChatTranslation, asked: dict[str, Any], named: str) -> None:
    with pytest.raises(LineRefused, match=named):
        translate(chat, asked)


OWN_PATHS = {"anthropic": "/v1/messages", "bedrock": "/model/m/converse"}


@pytest.mark.parametrize("name", OWN_PATHS)
@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"response_format": {"type": "json_object"}}, "has response_format"),
        ({"stop": ["x"]}, "has stop"),
        ({"tools": [TOOL]}, "has functions as tools"),
        (calling(CALL), "has tool_calls"),
        ({"messages": [USER, {"role": "tool", "content": "7"}]}, "has the role tool"),
    ],
)
def test_a_chat_request_at_the_path_of_another_format_is_refused(name: str, more: dict[str, Any], named: str) -> None:
    body = {"messages": [USER], **({"model": "m", "max_tokens": 9} if name == "anthropic" else {})}
    check = provider_named(name).requests.check_body
    assert check(OWN_PATHS[name], body, False) == "m"
    with pytest.raises(LineRefused, match=f"{named}, which belongs to OpenAI's chat format") as refused:
        check(OWN_PATHS[name], {**body, **more}, False)
    assert "with the url /v1/chat/completions it is translated" in str(refused.value)


@pytest.mark.parametrize("member", ["system", "stop_sequences", "contents", "generationConfig", "inferenceConfig"])
def test_a_body_of_another_format_is_refused_by_openai_itself_and_left_to_gateways(write: Write, member: str) -> None:
    file = write(batch_line("a", json.dumps({"model": "m", "messages": [USER], member: "x"})))
    assert reason(file, InputOptions(base_url="https://api.openai.com/v1")) == (
        f"has {member}, which is not in OpenAI's chat format"
    )
    assert len(sent(file, InputOptions(base_url="http://127.0.0.1:4000/v1"))) == 1


@pytest.mark.parametrize("asked", [calling({**CALL, "index": 0}), {"tool_choice": CHOICE}, {"response_format": SCHEMA}])
def test_the_same_without_the_unknown_member_is_translated(chat: ChatTranslation, asked: dict[str, Any]) -> None:
    assert translate(chat, asked)
