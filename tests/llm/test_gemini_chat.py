"""OpenAI's chat format for Gemini: what is translated, what is refused by its name, and what comes back."""

import json
from typing import Any

import pytest
from google.genai import types
from openai.types.chat import ChatCompletion

from backstay.llm.formats import Format, InputOptions
from backstay.llm.lines import LineRefused
from backstay.llm.providers.gemini.chat import is_chat, reply, request
from tests.llm.request_files import CHAT, Write, batch_line, reason, sent

MODEL = "gemini-3-flash-preview"
URL = f"/v1beta/models/{MODEL}:generateContent"
USER = {"role": "user", "content": "hi"}
SAID = {"role": "user", "parts": [{"text": "hi"}]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
OWN_CALL = {"functionCall": {"name": "f", "args": {"x": 1}, "id": "call_1"}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
OWN_TOOL = {"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": {"type": "object"}}]}
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}  # type: ignore[dict-item]
LOW = {"url": "", "detail": "low"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def translate(model: str = MODEL, **fields: Any) -> dict[str, Any]:
    url, body = request({"model": model, "messages": [USER], **fields}, None, None)
    assert url == f"/v1beta/models/{model}:generateContent"
    types._GenerateContentParameters.model_validate({"model": model, "contents": body["contents"]})
    if body["contents"] == [SAID]:
        del body["contents"]
    return body


def turns(*messages: Any) -> Any:
    return translate(messages=list(messages))


def setting(**config: Any) -> dict[str, Any]:
    return {"generationConfig": config}


def calling(**config: Any) -> dict[str, Any]:
    return {"tools": [OWN_TOOL], "toolConfig": {"functionCallingConfig": config}}


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ({}, {}),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 5}, setting(temperature=0.5, topP=0.9, topK=5)),
        ({"temperature": None, "stop": None, "tools": None, "n": None}, {}),
        ({"seed": 7, "presence_penalty": 0.1}, setting(seed=7, presencePenalty=0.1)),
        ({"stop": "END"}, setting(stopSequences=["END"])),
        ({"stop": ["A", "B"]}, setting(stopSequences=["A", "B"])),
        ({"max_tokens": 9, "max_completion_tokens": 9}, setting(maxOutputTokens=9)),
        ({"n": 3}, setting(candidateCount=3)),
        ({"reasoning_effort": "high"}, setting(thinkingConfig={"thinkingLevel": "high"})),
        ({"service_tier": "flex"}, {"serviceTier": "flex"}),
        ({"service_tier": "default"}, {"serviceTier": "standard"}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, setting(responseMimeType="application/json")),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "strict": True, "schema": SCHEMA},
                }
            },
            setting(responseMimeType="application/json", responseJsonSchema=SCHEMA),
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"description": "d", "schema": SCHEMA}}},
            setting(responseMimeType="application/json", responseJsonSchema={"description": "d", **SCHEMA}),
        ),
        ({"tools": [TOOL], "parallel_tool_calls": True}, {"tools": [OWN_TOOL]}),
        ({"tools": [TOOL], "tool_choice": "auto"}, calling(mode="AUTO")),
        ({"tools": [TOOL], "tool_choice": "none"}, calling(mode="NONE")),
        ({"tool_choice": "required", "tools": [TOOL]}, calling(mode="ANY")),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            calling(mode="ANY", allowedFunctionNames=["f"]),
        ),
        ({"tools": [STRICT]}, calling(mode="VALIDATED")),
        ({"tools": [STRICT], "tool_choice": "required"}, calling(mode="ANY")),
        ({"n": 1, "logprobs": False, "logit_bias": {}, "store": False, "service_tier": "auto"}, {}),
    ],
)
def test_a_member_is_said_in_the_other_format(asked: dict[str, Any], body: dict[str, Any]) -> None:
    assert translate(**asked) == body


def test_an_older_model_is_told_how_many_tokens_it_may_think() -> None:
    for effort, tokens in (("none", 0), ("low", 1_024), ("high", 24_576)):
        body = translate("gemini-2.5-flash", reasoning_effort=effort)
        assert body == setting(thinkingConfig={"thinkingBudget": tokens})


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"logprobs": True}, "has logprobs true"),
        ({"top_logprobs": 3}, "has top_logprobs 3"),
        ({"logit_bias": {"1": 2}}, "has logit_bias"),
        ({"modalities": ["text", "audio"]}, "has modalities"),
        ({"store": True}, "has store true"),
        ({"stream": True}, "has stream true: streams are not supported"),
        ({"metadata": {"a": "b"}}, "has metadata"),
        ({"user": "u"}, 'has user "u": that is not in the format of Gemini'),
        ({"parallel_tool_calls": False}, "has parallel_tool_calls false"),
        ({"reasoning_effort": "none"}, "has the reasoning_effort"),
        ({"service_tier": "scale"}, "has the service_tier"),
        ({"service_tier": []}, "has the service_tier"),
        ({"response_format": "json"}, "has the response_format"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "has the tool"),
        ({"tools": "odd"}, "has the tool"),
        ({"tools": [{"type": "function", "function": {"name": "f", "new": 1}}]}, "has new 1"),
        ({"tool_choice": {"type": "allowed_tools"}}, "has the tool_choice"),
        ({"max_tokens": 9, "max_completion_tokens": 10}, "are not the same"),
        ({"contents": []}, "has messages and contents"),
        ({"messages": "hi"}, "has no messages"),
        ({"messages": [7]}, "which is not an object"),
        ({"messages": [{"role": "system", "content": "x"}]}, "has no message besides the system prompt"),
        ({"messages": [{"role": "function", "content": "x"}]}, 'the role "function"'),
        ({"messages": [USER, {"role": "system", "content": "x"}]}, "has a system prompt after the first message"),
        ({"messages": [{**USER, "name": "bob"}]}, 'has name "bob"'),
        ({"messages": [{"role": "user", "content": 7}]}, "neither text nor parts"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}, "which is not a text"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, '"video"'),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}]},
            "Gemini takes it as data: with base64",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": LOW}]}]},
            'has detail "low"',
        ),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}, "has file_id"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "has an input_audio without data"),
        ({"messages": [{"role": "assistant", "content": "x", "refusal": "no"}]}, 'has refusal "no"'),
        ({"messages": [USER, {"role": "tool", "tool_call_id": "c", "content": "x"}]}, "which no message before"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "extra_content": {"other": 1}}]}]},
            "has the extra_content",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "whose arguments are not a JSON object",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused_by_its_name(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(LineRefused) as refused:
        translate(**asked)
    assert named in str(refused.value)


def test_system_prompts_are_a_member_of_their_own() -> None:
    body = turns({"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, USER)
    assert body == {"systemInstruction": {"parts": [{"text": "a"}, {"text": "b"}]}}


def test_pictures_sounds_and_files_are_data() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ==", "detail": "auto"}},
        {"type": "image_url", "image_url": "gs://bucket/x.png"},
        {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,QQ==", "filename": "a.pdf"}},
    ]
    [turn] = turns({"role": "user", "content": parts})["contents"]
    assert turn["parts"] == [
        {"text": "look"},
        {"inlineData": {"mimeType": "image/png", "data": "QQ=="}},
        {"fileData": {"mimeType": "image/png", "fileUri": "gs://bucket/x.png"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "QQ=="}},
        {"text": "File: a.pdf"},
        {"inlineData": {"mimeType": "application/pdf", "data": "QQ=="}},
    ]


def test_calls_of_tools_and_their_results_are_turns_of_model_and_user() -> None:
    signed = {**CALL, "id": "call_2", "extra_content": {"google": {"thought_signature": "UzE="}}}
    body = turns(
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL, signed]},
        {"role": "tool", "tool_call_id": "call_2", "content": '{"y": 2}'},
        {"role": "tool", "tool_call_id": "call_1", "content": "plain"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "so"},
    )
    second = {"functionCall": {**OWN_CALL["functionCall"], "id": "call_2"}, "thoughtSignature": "UzE="}
    results = [
        {"functionResponse": {"id": "call_2", "name": "f", "response": {"y": 2}}},
        {"functionResponse": {"id": "call_1", "name": "f", "response": {"result": "plain"}}},
        {"text": "and?"},
    ]
    assert body["contents"] == [
        SAID,
        {"role": "model", "parts": [OWN_CALL, second]},
        {"role": "user", "parts": results},
        {"role": "model", "parts": [{"text": "so"}]},
    ]


def test_a_file_for_openai_becomes_one_for_gemini(write: Write) -> None:
    body = json.dumps({"model": MODEL, "messages": [USER], "stop": "END"})
    [made] = sent(write(batch_line(body=body, url=CHAT)), InputOptions(api="gemini"))
    assert (made.url, json.loads(made.body)) == (URL, {"contents": [SAID], **setting(stopSequences=["END"])})
    bounded = InputOptions(Format.PROMPTS, api="gemini", model=MODEL, output_tokens_default=50)
    [made] = sent(write('{"prompt": "hi"}'), bounded)
    assert (made.url, json.loads(made.body)) == (URL, {"contents": [SAID], **setting(maxOutputTokens=50)})
    bad = json.dumps({"model": MODEL, "messages": [USER], "user": "u"})
    assert 'has user "u"' in reason(write(batch_line(body=bad, url=CHAT)), InputOptions(api="gemini"))


def test_a_body_in_its_own_format_stays_as_it_is_unless_it_names_its_model() -> None:
    assert not is_chat({"contents": [SAID]})
    assert is_chat({"contents": [SAID], "model": MODEL})
    assert is_chat({"messages": [USER]})
    assert request({"contents": [SAID], "model": f"models/{MODEL}", "labels": {}}, None, 9) == (
        URL,
        {"contents": [SAID], "labels": {}},
    )


def answer(*candidates: Any, **more: Any) -> dict[str, Any]:
    used = {"promptTokenCount": 10, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "cachedContentTokenCount": 2}
    made = {"candidates": list(candidates), "usageMetadata": used, "modelVersion": MODEL, "responseId": "r-1", **more}
    types.GenerateContentResponse.model_validate(made)
    made = reply(made)
    ChatCompletion.model_validate(made, strict=True)
    return made


def candidate(*parts: Any, why: str = "STOP") -> dict[str, Any]:
    return {"content": {"role": "model", "parts": list(parts)}, "finishReason": why}


def test_an_answer_comes_back_as_a_completion() -> None:
    made = answer(candidate({"text": "hm", "thought": True}, {"text": "a"}, {"text": "b"}), candidate({"text": "c"}))
    assert [choice["message"]["content"] for choice in made["choices"]] == ["ab", "c"]
    assert made["choices"][0]["message"]["reasoning_content"] == "hm"
    assert (made["id"], made["model"], made["choices"][1]["index"]) == ("r-1", MODEL, 1)
    assert made["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }


def test_a_call_comes_back_with_its_signature_so_that_it_can_be_repeated() -> None:
    part = {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "UzE="}
    [choice] = answer(candidate(part))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    [again] = turns(choice["message"])["contents"]
    assert again["parts"] == [{"functionCall": {**part["functionCall"], "id": "call_0"}, "thoughtSignature": "UzE="}]  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("why", "finish"),
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("MALFORMED_RESPONSE", "length")],
)
def test_the_end_of_an_answer_has_its_reason(why: str, finish: str) -> None:
    assert answer(candidate({"text": "a"}, why=why))["choices"][0]["finish_reason"] == finish


def test_a_blocked_prompt_is_a_filtered_answer_and_a_picture_is_kept() -> None:
    [choice] = answer(promptFeedback={"blockReason": "SAFETY"})["choices"]
    assert (choice["finish_reason"], choice["message"]["refusal"]) == (
        "content_filter",
        "The prompt was blocked: SAFETY.",
    )
    [choice] = answer(candidate({"inlineData": {"mimeType": "image/png", "data": "QQ=="}}))["choices"]
    assert choice["message"]["images"][0]["image_url"]["url"] == "data:image/png;base64,QQ=="


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [None], [{}], {"parts": 7}])
def test_any_reply_becomes_a_completion(odd: Any) -> None:
    for name in ("candidates", "promptFeedback", "usageMetadata"):
        assert reply({name: odd})["object"] == "chat.completion"
    assert reply({"candidates": [{"content": odd, "finishReason": odd}]})["choices"]
    assert reply({"candidates": [{"content": {"parts": [{"functionCall": {"args": odd}}]}}]})["choices"]
