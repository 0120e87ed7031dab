"""A request as its fallbacks get it: translated, with their model, or refused before anything is sent."""

import json
from typing import Any

import pytest

from backstay.core.errors import UsageError
from backstay.llm.endpoint import Endpoint, load_endpoint
from backstay.llm.fallbacks import Fallback, FallbackPlace, Route, parse_fallbacks, request_for, route_of
from backstay.llm.formats import BatchLines, InputOptions
from backstay.llm.lines import LineRefused, LlmRequest, seal, unseal

CHAT, MESSAGES, GENERATE = "/v1/chat/completions", "/v1/messages", "/v1beta/models/gemini-2.5-pro:generateContent"
ASKED = {"model": "gpt-4o", "messages": [{"role": "user", "content": "why"}], "max_tokens": 9}
OLD_AZURE = "https://x.openai.azure.com?api-version=2024-10-21"


def place(api: str, model: str, base_url: str = "https://there", default: int | None = None) -> FallbackPlace:
    return FallbackPlace(api, model, base_url, default)


def asks(url: str, **body: Any) -> LlmRequest:
    return LlmRequest("a", url, json.dumps(body))


@pytest.mark.parametrize(
    ("request_", "there", "url", "expected"),
    [
        (asks(CHAT, **ASKED), place("groq", "llama"), CHAT, {**ASKED, "model": "llama"}),
        (asks(CHAT, **ASKED), place("anthropic", "claude-x"), MESSAGES, {**ASKED, "model": "claude-x"}),
        (
            asks(CHAT, **ASKED),
            place("gemini", "gemini-x"),
            "/v1beta/models/gemini-x:generateContent",
            {"contents": [{"role": "user", "parts": [{"text": "why"}]}], "generationConfig": {"maxOutputTokens": 9}},
        ),
        (
            asks(CHAT, **ASKED),
            place("azure", "my deploy", OLD_AZURE),
            "/deployments/my%20deploy/chat/completions",
            {**ASKED, "model": "my deploy"},
        ),
        (
            asks("/deployments/mine/chat/completions", **ASKED),
            place("openai", "gpt-4o-mini"),
            CHAT,
            {**ASKED, "model": "gpt-4o-mini"},
        ),
        (
            asks("/v1/responses", input="why", prompt={"id": "p"}),
            place("openai", "gpt-x"),
            "/v1/responses",
            {"model": "gpt-x", "input": "why", "prompt": {"id": "p"}},
        ),
        (asks(MESSAGES, **ASKED), place("anthropic", "claude-x"), MESSAGES, {**ASKED, "model": "claude-x"}),
        (
            asks(GENERATE, model="models/gemini-2.5-pro", contents=[{"parts": []}]),
            place("vertex", "gemini-x"),
            "/v1beta/models/gemini-x:generateContent",
            {"model": "gemini-x", "contents": [{"parts": []}]},
        ),
        (
            asks("/model/amazon.nova/invoke", inputText="why"),
            place("bedrock", "amazon.titan:0"),
            "/model/amazon.titan%3A0/invoke",
            {"inputText": "why"},
        ),
        (
            LlmRequest("a", MESSAGES, "{}", chat=json.dumps(ASKED)),
            place("openai", "gpt-x"),
            CHAT,
            {**ASKED, "model": "gpt-x"},
        ),
    ],
)
def test_a_chat_request_is_written_for_the_fallback_and_any_other_gets_its_model(
    request_: LlmRequest, there: FallbackPlace, url: str, expected: dict[str, Any]
) -> None:
    found = request_for(there, request_)
    assert (found.url, json.loads(found.body), found.fields) == (url, expected, expected)
    assert found == request_for(there, request_, None if request_.chat else json.loads(request_.body))
    assert found == request_for(there, unseal(seal(request_))), "a worker sends what was checked"


@pytest.mark.parametrize(
    ("request_", "there", "said"),
    [
        (asks(CHAT, **ASKED, logprobs=True), place("anthropic", "c"), "logprobs"),
        (asks(CHAT, model="m", messages=ASKED["messages"]), place("anthropic", "c"), "max_tokens"),
        (asks(MESSAGES, **ASKED), place("openai", "m"), "in the format of anthropic, and openai takes another"),
        (asks(MESSAGES, **ASKED), place("bedrock", "m"), "in the format of anthropic, and bedrock takes another"),
        (asks(GENERATE, contents=[{}]), place("anthropic", "m"), "in the format of gemini"),
        (asks("/v1/embeddings", input="x"), place("gemini", "m"), "in the format of openai, and gemini takes another"),
    ],
)
def test_what_a_fallback_cannot_take_is_refused(request_: LlmRequest, there: FallbackPlace, said: str) -> None:
    with pytest.raises(LineRefused, match=said):
        request_for(there, request_)


def test_the_bound_of_a_reply_that_a_fallback_needs_comes_from_the_run() -> None:
    asked = asks(CHAT, model="m", messages=ASKED["messages"])
    assert request_for(place("anthropic", "c", default=77), asked).fields["max_tokens"] == 77


def parse(line: dict[str, Any], api: str, *places: FallbackPlace) -> Any:
    reading = InputOptions(api=api, base_url="https://here", named=True, fallbacks=places)
    return BatchLines(reading)(1, json.dumps({"custom_id": "a", "method": "POST", **line}))


def test_a_line_has_all_its_fallbacks_except_the_one_that_it_asks_for_itself() -> None:
    here, there = place("openai", "gpt-4o", "https://here"), place("openai", "gpt-4o")
    parsed = parse({"url": CHAT, "body": ASKED}, "openai", here, there, place("groq", "llama"))
    assert parsed.route == Route("openai", (Fallback("openai", "gpt-4o"), Fallback("groq", "llama")))
    assert parsed.chat is None, "its body is the chat request"


def test_a_translated_line_keeps_its_chat_request_only_for_fallbacks() -> None:
    line = {"url": CHAT, "body": {**ASKED, "model": "anthropic:claude-x"}}
    assert parse(line, "anthropic").chat is None
    parsed = parse(line, "anthropic", place("openai", "gpt-x"))
    assert (parsed.url, json.loads(parsed.chat)["model"]) == (MESSAGES, "claude-x")
    assert json.loads(unseal(seal(parsed.request)).chat or "") == json.loads(parsed.chat)
    assert parsed.fallbacks[0].url == CHAT


def test_a_line_that_cannot_fall_back_says_to_which() -> None:
    with pytest.raises(LineRefused, match=r"write a chat request \(for the fallback openai:m\)$"):
        parse({"url": MESSAGES, "body": ASKED}, "anthropic", place("openai", "m"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("anthropic:claude-x", [("anthropic", "claude-x")]),
        ("ollama:llama3:8b , openai:m", [("ollama", "llama3:8b"), ("openai", "m")]),
        ("openai:a,openai:b", [("openai", "a"), ("openai", "b")]),
    ],
)
def test_fallbacks_are_written_with_commas_between_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(parse_fallbacks(text)) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("anthropic", "names no model"),
        ("anthropic:", "names no model"),
        (":m", "names no provider"),
        ("", "names no provider"),
        ("openai:m,", "names no provider"),
        ("nobody:m", "there is no provider 'nobody'"),
        ("openai:m,groq:m,openai:m", "names openai:m twice"),
        (",".join(f"openai:m{n}" for n in range(6)), "6 entries; the limit is 5"),
    ],
)
def test_fallbacks_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_fallbacks(text)


def test_an_endpoint_knows_its_fallbacks_and_each_of_those_the_next() -> None:
    last = Endpoint("https://c", api="groq", model="g")
    second = Endpoint("https://b", api="anthropic", model="c", output_tokens_default=5)
    first = load_endpoint(Endpoint("https://a", then=(second.dump(), last.dump())).dump())
    beside = Endpoint("https://d", api="groq", then=(last.dump(),))
    whole = load_endpoint(Endpoint("https://a", then=first.then, beside=(beside.dump(),)).dump())
    assert [each.base_url for each in first.chain] == ["https://a", "https://b", "https://c"]
    assert first.fallback is not None
    assert (first.fallback.fallback, first.fallback.model) == (last, "c")
    assert first.fallback.name != second.name, "with other fallbacks behind it, it is another handler"
    assert [each.base_url for each in whole.starts] == ["https://a", "https://d"]
    assert [each.base_url[-1] for each in whole.all] == ["a", "b", "c", "d"], "the last one is the same for both"
    assert route_of(first) == Route("openai", (Fallback("anthropic", "c"), Fallback("groq", "g")))


def test_an_endpoint_without_fallbacks_is_stored_as_it_always_was() -> None:
    assert Endpoint("https://a").dump() == (
        '{"base_url": "https://a", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": null,'
        ' "reconcilable": false, "timeout_seconds": null}'
    )
