"""OpenAI's chat format for Bedrock: what is translated, what is refused by its name, and what comes back."""

import json
from typing import Any

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from openai.types.chat import ChatCompletion

from backstay.llm.formats import Format, InputOptions
from backstay.llm.lines import LineRefused
from backstay.llm.providers.bedrock.calls import estimate, path_to
from backstay.llm.providers.bedrock.chat import is_chat, reply, request
from tests.llm.request_files import CHAT, Write, batch_line, reason, sent

MODEL = "amazon.nova-pro-v1:0"
USER = {"role": "user", "content": "hi"}
SAID = {"role": "user", "content": [{"text": "hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
OWN_TOOL = {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="


@pytest.fixture(scope="module")
def shape() -> Any:
    """What AWS's own client says about a request of Converse."""
    return botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape


def translate(**fields: Any) -> dict[str, Any]:
    url, body = request({"model": MODEL, "messages": [USER], **fields}, None, None)
    assert url == "/model/amazon.nova-pro-v1%3A0/converse"
    return body


@pytest.mark.parametrize(
    ("asked", "added"),
    [
        ({}, {}),
        ({"temperature": None, "stop": None, "tools": None, "n": 1, "stream": False}, {}),
        ({"max_tokens": 9, "max_completion_tokens": 9}, {"inferenceConfig": {"maxTokens": 9}}),
        ({"temperature": 0.5, "top_p": 0.9}, {"inferenceConfig": {"temperature": 0.5, "topP": 0.9}}),
        ({"stop": "END"}, {"inferenceConfig": {"stopSequences": ["END"]}}),
        ({"reasoning_effort": "high"}, {"outputConfig": {"effort": "high"}}),
        ({"user": "u-1"}, {"requestMetadata": {"user": "u-1"}}),
        ({"service_tier": "flex"}, {"serviceTier": {"type": "flex"}}),
        ({"service_tier": "auto"}, {}),
        ({"tools": [TOOL], "tool_choice": "auto"}, {"toolConfig": {"tools": [OWN_TOOL]}}),
        (
            {"tools": [TOOL], "tool_choice": "required"},
            {"toolConfig": {"tools": [OWN_TOOL], "toolChoice": {"any": {}}}},
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            {"toolConfig": {"tools": [OWN_TOOL], "toolChoice": {"tool": {"name": "f"}}}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "strict": True, "schema": SCHEMA},
                }
            },
            {
                "outputConfig": {
                    "textFormat": {
                        "type": "json_schema",
                        "structure": {"jsonSchema": {"schema": json.dumps(SCHEMA), "name": "n"}},
                    }
                }
            },
        ),
        ({"additionalModelRequestFields": {"top_k": 5}}, {"additionalModelRequestFields": {"top_k": 5}}),
    ],
)
def test_a_request_is_translated(asked: dict[str, Any], added: dict[str, Any], shape: Any) -> None:
    body = translate(**asked)
    assert body == {"messages": [SAID], **added}
    report = ParamValidator().validate({"modelId": MODEL, **body}, shape)
    assert not report.has_errors(), report.generate_report()


def test_messages_are_translated_and_those_of_one_speaker_become_one(shape: Any) -> None:
    parts = [
        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": PNG}, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "file", "file": {"file_data": PDF, "filename": "a_b.pdf"}},
    ]
    body = translate(
        messages=[
            {"role": "system", "content": "be brief"},
            USER,
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "7"},
            {"role": "user", "content": "and?"},
        ]
    )
    assert body["system"] == [{"text": "be brief"}]
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"text": "hi"},
                {"text": "look"},
                {"cachePoint": {"type": "default"}},
                {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
                {"cachePoint": {"type": "default", "ttl": "1h"}},
                {"document": {"format": "pdf", "name": "a b pdf", "source": {"bytes": "JVBERi0="}}},
            ],
        },
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "call_1", "name": "f", "input": {"x": 1}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "call_1", "content": [{"text": "7"}]}}, {"text": "and?"}],
        },
    ]
    assert not ParamValidator().validate({"modelId": MODEL, **body}, shape).has_errors()


@pytest.mark.parametrize(
    "asked",
    [
        {"n": 2},
        {"seed": 1},
        {"logprobs": True},
        {"top_k": 3},
        {"stream": True},
        {"temperature": 1.5},
        {"max_tokens": 1, "max_completion_tokens": 2},
        {"parallel_tool_calls": False},
        {"tool_choice": "none", "tools": [TOOL]},
        {"tool_choice": "required"},
        {"service_tier": "scale"},
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{**TOOL, "cache_control": {"type": "ephemeral", "ttl": "2h"}}]},
        {"tools": [{**TOOL, "cache_control": True}]},
        {"messages": []},
        {"messages": [USER, {"role": "system", "content": "late"}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "https://example.net/a.png"}]}]},
        {"messages": [{"role": "user", "content": "x", "name": "ann"}]},
    ],
)
def test_what_converse_cannot_say_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(LineRefused):
        translate(**asked)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [USER]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, True),
        ({"messages": [SAID]}, False),
        ({"messages": [USER], "anthropic_version": "bedrock-2023-05-31"}, False),
        ({"messages": [SAID], "inferenceConfig": {}}, False),
        ({"prompt": "x"}, False),
    ],
)
def test_a_chat_request_is_told_from_the_models_own_body(body: dict[str, Any], expected: bool) -> None:
    assert is_chat(body) is expected


def options(format_: Format = Format.BATCH, **more: Any) -> InputOptions:
    return InputOptions(format_, api="bedrock", named=True, **more)


def line(body: dict[str, Any], url: str, custom_id: str = "a") -> str:
    return batch_line(custom_id, json.dumps(body), url)


def test_lines_are_read_for_bedrock(write: Write) -> None:
    own = {"messages": [SAID], "inferenceConfig": {"maxTokens": 5}}
    lines = [line({"model": MODEL, "messages": [USER]}, CHAT), line(own, path_to(MODEL), "b")]
    [chat, converse] = sent(write("\n".join(lines)), options())
    assert (chat.url, json.loads(chat.body)) == (path_to(MODEL), {"messages": [SAID]})
    assert (converse.url, json.loads(converse.body)) == (path_to(MODEL), own)
    [body] = sent(write(json.dumps(own)), options(Format.BODIES, model=MODEL))
    assert (body.url, json.loads(body.body)) == (path_to(MODEL), own)
    message = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 5, "messages": [USER]}
    [body] = sent(write(json.dumps(message)), options(Format.BODIES, model=MODEL))
    assert (body.url, json.loads(body.body)) == (path_to(MODEL, "invoke"), message)
    [prompt] = sent(write('{"prompt": "hi"}'), options(Format.PROMPTS, model=MODEL))
    assert (prompt.url, json.loads(prompt.body)) == (path_to(MODEL), {"messages": [SAID]})


@pytest.mark.parametrize(
    ("url", "body", "why"),
    [
        ("/v1/embeddings", {}, "Bedrock takes"),
        ("/model/m/converse-stream", {"messages": [SAID]}, "Bedrock takes"),
        ("/model/m/converse", {}, "no messages"),
        ("/model//converse", {"messages": [SAID]}, "names no model"),
        ("/model/m/converse", {"messages": [SAID], "modelId": "m"}, "in the url"),
        ("/model/m/invoke", {}, "empty body"),
        (CHAT, {"messages": [USER]}, "names no model"),
    ],
)
def test_a_line_that_can_only_fail_is_refused(write: Write, url: str, body: dict[str, Any], why: str) -> None:
    assert why in reason(write(line(body, url)), options())


def test_a_reply_becomes_a_chat_completion() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm"}}},
        {"text": "a"},
        {"text": "b"},
        {"toolUse": {"toolUseId": "call_1", "name": "f", "input": {"x": 1}}},
    ]
    usage = {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 3}
    made = reply({"output": {"message": {"content": content}}, "stopReason": "tool_use", "usage": usage})
    ChatCompletion.model_validate({**made, "id": "x", "model": "m"}, strict=True)
    [choice] = made["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "ab")
    assert choice["message"]["tool_calls"] == [CALL]
    assert choice["message"]["reasoning_content"] == "hm"
    assert made["usage"]["prompt_tokens"] == 8
    for odd in ({}, {"output": 3}, {"output": {"message": {"content": [1, {"toolUse": 4}]}}, "usage": 7}):
        assert reply(odd)["choices"][0]["finish_reason"] == "stop"


def test_the_tokens_of_a_request_have_bounds_where_it_is_all_text() -> None:
    body = json.dumps({"messages": [SAID], "inferenceConfig": {"maxTokens": 50}})
    found = estimate(path_to(MODEL), body, json.loads(body))
    assert (found.model, found.output_tokens_max) == (MODEL, 50)
    assert found.input_tokens_max is not None
    assert found.input_tokens_max >= len(body)
    picture = {"image": {"format": "png", "source": {"bytes": "x" * 50_000}}}
    body = json.dumps({"messages": [{"role": "user", "content": [picture]}]})
    seen = estimate(path_to(MODEL), body, json.loads(body))
    assert (seen.input_tokens_max, seen.output_tokens_max) == (None, None)
    assert 1_600 <= seen.input_tokens < 1_700
    away = {"messages": [{"role": "user", "content": [{"video": {"source": {"s3Location": {"uri": "s3://b/v"}}}}]}]}
    assert estimate(path_to(MODEL), json.dumps(away), away).input_tokens_max is None
    for own in ({"prompt": "x", "max_gen_len": 7}, {"inputText": "x", "textGenerationConfig": {"maxTokenCount": 7}}):
        assert estimate(path_to(MODEL, "invoke"), json.dumps(own), own).output_tokens_max == 7
