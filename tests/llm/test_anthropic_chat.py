"""OpenAI's chat format for Anthropic: what is translated, what is refused by its name, and what comes back."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from backstay.llm.formats import Format, InputOptions
from backstay.llm.lines import LineRefused
from backstay.llm.providers.anthropic.chat import is_chat, reply, request
from tests.llm.request_files import CHAT, Write, batch_line, look, reason, sent

MESSAGES = "/v1/messages"
USER = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
USE = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"x": 1}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
OWN_TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def translate(**fields: Any) -> dict[str, Any]:
    url, body = request({"model": "claude-m", "messages": [USER], "max_tokens": 9, **fields}, None, None)
    assert url == MESSAGES
    assert body.pop("model") == "claude-m"
    assert body.pop("max_tokens") == 9
    if body["messages"] == [USER]:
        del body["messages"]
    return body


def turns(*messages: Any) -> Any:
    return translate(messages=list(messages))


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ({}, {}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        ({"temperature": None, "stop": None, "tools": None, "n": None}, {}),
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["A", "B"]}, {"stop_sequences": ["A", "B"]}),
        ({"max_completion_tokens": 9}, {}),
        ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        ({"user": "u-1"}, {"metadata": {"user_id": "u-1"}}),
        ({"service_tier": "default"}, {"service_tier": "standard_only"}),
        ({"response_format": {"type": "text"}}, {}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "strict": True, "schema": SCHEMA},
                }
            },
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        ),
        (
            {
                "reasoning_effort": "low",
                "response_format": {"type": "json_schema", "json_schema": {"description": "d", "schema": SCHEMA}},
            },
            {
                "output_config": {
                    "effort": "low",
                    "format": {"type": "json_schema", "schema": {"description": "d", **SCHEMA}},
                }
            },
        ),
        ({"tools": [TOOL]}, {"tools": [OWN_TOOL]}),
        ({"tools": [TOOL], "tool_choice": "auto"}, {"tools": [OWN_TOOL], "tool_choice": {"type": "auto"}}),
        ({"tools": [TOOL], "tool_choice": "required"}, {"tools": [OWN_TOOL], "tool_choice": {"type": "any"}}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [TOOL]},
            {"tools": [OWN_TOOL], "tool_choice": {"type": "tool", "name": "f"}},
        ),
        (
            {"tools": [TOOL], "parallel_tool_calls": False},
            {"tools": [OWN_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
        ({"tools": [TOOL], "parallel_tool_calls": True}, {"tools": [OWN_TOOL]}),
        (
            {"tools": [TOOL], "tool_choice": "none", "parallel_tool_calls": False},
            {"tools": [OWN_TOOL], "tool_choice": {"type": "none"}},
        ),
        ({"cache_control": {"type": "ephemeral"}}, {"cache_control": {"type": "ephemeral"}}),
        ({"n": 1, "seed": None, "logprobs": False, "presence_penalty": 0.0, "logit_bias": {}, "store": False}, {}),
    ],
)
def test_a_member_is_said_in_the_other_format(asked: dict[str, Any], body: dict[str, Any]) -> None:
    assert translate(**asked) == body


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"n": 2}, "has n 2: one reply for each request"),
        ({"seed": 7}, "has seed 7"),
        ({"logprobs": True}, "has logprobs true"),
        ({"top_logprobs": 3}, "has top_logprobs 3"),
        ({"logit_bias": {"1": 2}}, "has logit_bias"),
        ({"presence_penalty": 0.1}, "has presence_penalty"),
        ({"frequency_penalty": -1}, "has frequency_penalty"),
        ({"modalities": ["text", "audio"]}, "has modalities"),
        ({"audio": {"voice": "x"}}, "has audio"),
        ({"prediction": {"type": "content", "content": "x"}}, "has prediction"),
        ({"store": True}, "has store true"),
        ({"metadata": {"a": "b"}}, "has metadata"),
        ({"stream": True}, "has stream true"),
        ({"web_search_options": {}}, "has web_search_options"),
        ({"functions": [{}]}, "has functions"),
        ({"prompt_cache_key": "k"}, "has prompt_cache_key"),
        ({"something_new": 1}, "has something_new 1: that is not in Anthropic's format"),
        ({"temperature": 1.5}, "has the temperature 1.5"),
        ({"reasoning_effort": "minimal"}, "has the reasoning_effort"),
        ({"reasoning_effort": "none", "thinking": {"type": "adaptive"}}, "has a reasoning_effort and thinking"),
        ({"service_tier": "flex"}, "has the service_tier"),
        ({"service_tier": []}, "has the service_tier"),
        ({"response_format": {"type": "json_object"}}, "has the response_format"),
        ({"response_format": "json"}, "has the response_format"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "has the tool"),
        ({"tools": [{"type": "function", "function": {"name": "f", "new": 1}}]}, "has new 1"),
        ({"tool_choice": {"type": "allowed_tools"}}, "has the tool_choice"),
        ({"max_completion_tokens": 10}, "are not the same"),
        ({"user": "a", "safety_identifier": "b"}, "are not the same"),
        ({"messages": "hi"}, "has no messages"),
        ({"messages": [7]}, "which is not an object"),
        ({"messages": [{"role": "function", "content": "x"}]}, 'the role "function"'),
        ({"messages": [USER, {"role": "system", "content": "x"}]}, "has a system prompt after the first message"),
        ({"messages": [{**USER, "name": "bob"}]}, 'has name "bob"'),
        ({"messages": [{"role": "user", "content": 7}]}, "neither text nor parts"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, '"input_audio"'),
        ({"messages": [{"role": "user", "content": ["text"]}]}, "null"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "ftp://x"}}]}]},
            "has the image",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}}],
                    }
                ]
            },
            'has detail "low"',
        ),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}, "has file_id"),
        ({"messages": [{"role": "assistant", "content": "x", "refusal": "no"}]}, 'has refusal "no"'),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}
                ]
            },
            "not a JSON object",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{**CALL, "extra_content": {}}]}]}, "has extra_content"),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_name(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(LineRefused) as refused:
        translate(**asked)
    assert named in str(refused.value)


def test_system_prompts_become_the_system_prompt() -> None:
    assert turns({"role": "system", "content": "be brief"}, USER) == {"system": "be brief"}
    two = turns(
        {"role": "developer", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "b"}]}, USER
    )
    assert two == {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}


def test_pictures_and_files_become_blocks() -> None:
    said = [
        {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
    ]
    [message] = turns({"role": "user", "content": said})["messages"]
    assert message["content"] == [
        {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.jpg"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
            "title": "a.pdf",
        },
    ]


def test_calls_of_tools_and_their_results_belong_together() -> None:
    said = turns(
        USER,
        {"role": "assistant", "content": "one moment", "tool_calls": [CALL, {**CALL, "id": "call_2"}], "refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "7"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "8"}]},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "15", "annotations": []},
        {"role": "user", "content": "why"},
    )["messages"]
    assert said == [
        USER,
        {"role": "assistant", "content": [{"type": "text", "text": "one moment"}, USE, {**USE, "id": "call_2"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "7"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": [{"type": "text", "text": "8"}]},
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "assistant", "content": "15"},
        {"role": "user", "content": "why"},
    ]


@pytest.mark.parametrize(
    ("body", "chat"),
    [
        ({"messages": [USER]}, True),  # in Anthropic's format it would have max_tokens
        ({"messages": [USER], "max_tokens": 9}, False),  # the same in both
        ({"messages": [USER], "max_tokens": 9, "metadata": {"user_id": "u"}}, False),
        ({"messages": [USER], "max_completion_tokens": 9}, True),
        ({"messages": [{"role": "system", "content": "s"}, USER], "max_tokens": 9}, True),
        ({"messages": [USER], "max_tokens": 9, "tools": [TOOL]}, True),
        ({"messages": [USER], "max_tokens": 9, "tools": [OWN_TOOL]}, False),
        ({"messages": [USER], "system": "s"}, False),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "max_tokens": 9}, True),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, False),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}], "max_tokens": 9}, True),
        ({}, False),
        ({"messages": 7}, False),
        ({"messages": [7, {"content": [7]}], "tools": 7}, True),
    ],
)
def test_a_chat_request_is_recognised(body: dict[str, Any], chat: bool) -> None:
    assert is_chat(body) is chat


def reading(**more: Any) -> InputOptions:
    return InputOptions(api="anthropic", **more)


def bodies_of(file: str, options: InputOptions) -> list[dict[str, Any]]:
    requests = sent(file, options)
    assert {one.url for one in requests} == {MESSAGES}
    return [json.loads(one.body) for one in requests]


def test_a_line_for_the_chat_path_is_translated(write: Write) -> None:
    chat = {"model": "claude-m", "messages": [{"role": "system", "content": "s ü"}, USER], "max_tokens": 9}
    own = {"model": "claude-m", "system": "s ü", "messages": [USER], "max_tokens": 9}
    file = write(batch_line("a", json.dumps(chat)) + "\n" + batch_line("b", json.dumps(own), MESSAGES))
    first, second = bodies_of(file, reading(format=Format.BATCH))
    assert (first, second) == (own, own)


@pytest.mark.parametrize(
    ("name", "content", "more"),
    [
        ("bodies.jsonl", '{"id": "x", "messages": [{"role": "user", "content": "hi"}], "stop": "E"}', {}),
        ("prompts.jsonl", '{"id": "x", "prompt": "hi", "stop": "E"}', {}),
        ("rows.csv", "id,who\nx,hi\n", {"template": "{who}"}),
        (
            "rows.csv",
            "id,who\nx,hi\n",
            {"template": '{"messages": [{"role": "user", "content": "{who}"}], "stop": "E"}'},
        ),
    ],
)
def test_prompts_rows_and_bodies_get_the_bound_of_a_reply_from_the_option(
    write: Write, name: str, content: str, more: dict[str, Any]
) -> None:
    file = write(content, name)
    [body] = bodies_of(file, reading(model="claude-m", output_tokens_default=77, **more))
    stop = {} if more.get("template") == "{who}" else {"stop_sequences": ["E"]}
    assert body == {"model": "claude-m", "messages": [USER], "max_tokens": 77, **stop}
    assert "--max-output-tokens" in look(file, reading(model="claude-m", **more)).bad[0].reason


def test_prompts_for_anthropics_own_path_are_written_in_its_own_form(write: Write) -> None:
    file = write('{"prompt": "hi", "max_tokens": 5, "system": "s"}')
    [body] = bodies_of(file, reading(model="claude-m", endpoint=MESSAGES, format=Format.PROMPTS))
    assert body == {"model": "claude-m", "messages": [USER], "max_tokens": 5, "system": "s"}


def test_a_text_that_has_no_utf8_form_can_be_sent(write: Write) -> None:
    file = write('{"prompt": "half \\ud83d", "max_tokens": 5}')
    [one] = sent(file, reading(model="claude-m"))
    assert one.body.encode().isascii()
    assert json.loads(one.body)["messages"][0]["content"] == "half \ud83d"


def test_a_line_that_cannot_be_translated_is_a_bad_line(write: Write) -> None:
    chat = json.dumps({"model": "claude-m", "messages": [USER], "max_tokens": 9, "n": 3})
    assert (
        reason(write(batch_line("a", chat)), reading())
        == "has n 3: one reply for each request: write the line several times"
    )


def test_openai_gets_its_lines_byte_for_byte(write: Write) -> None:
    body = '{"messages" : [ ], "model":"m", "n":3}'
    [one] = sent(write(batch_line("a", body)))
    assert (one.url, one.body) == (CHAT, body)


# Replies

SAID: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-m",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo"},
    ],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 30,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 2},
    },
}


def completion(**more: Any) -> ChatCompletion:
    return ChatCompletion.model_validate(reply({**SAID, **more}), strict=True)


def test_a_message_becomes_a_completion() -> None:
    found = completion()
    assert found.choices[0].message.content == "Hello"
    assert found.choices[0].finish_reason == "stop"
    assert reply(SAID)["choices"][0]["message"]["reasoning_content"] == "hm"
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (60, 5, 65)
    assert found.usage.prompt_tokens_details is not None
    assert found.usage.prompt_tokens_details.cached_tokens == 30
    assert found.usage.completion_tokens_details is not None
    assert found.usage.completion_tokens_details.reasoning_tokens == 2


def test_a_call_of_a_tool_becomes_a_tool_call() -> None:
    found = completion(content=[USE], stop_reason="tool_use").choices[0]
    assert (found.finish_reason, found.message.content) == ("tool_calls", None)
    assert found.message.tool_calls is not None
    [call] = found.message.tool_calls
    assert call.model_dump() == {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "content_filter"),
    ],
)
def test_the_reason_of_the_end_is_translated(stop: str, finish: str) -> None:
    found = completion(stop_reason=stop, stop_details={"type": "refusal", "explanation": "no"}).choices[0]
    assert found.finish_reason == finish
    assert found.message.refusal == ("no" if stop == "refusal" else None)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"content": 7, "usage": [], "stop_reason": {}, "model": None},
        {"content": [7, {}, {"type": "text", "text": 7}, {"type": "tool_use"}], "usage": {"input_tokens": "x"}},
        {"stop_reason": "refusal", "stop_details": 7},
    ],
)
def test_any_content_becomes_a_completion(odd: dict[str, Any]) -> None:
    assert reply(odd)["object"] == "chat.completion"
