"""Tokens are estimated from the body; the most is never below what can be true."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.llm.lines import LlmRequest
from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, TokenEstimate
from backstay.llm.providers.openai import requests as tokens
from backstay.llm.providers.openai.requests import IMAGE_TOKENS_MAX

CHAT, RESPONSES, EMBEDDINGS, COMPLETIONS = (
    f"/v1/{name}" for name in ("chat/completions", "responses", "embeddings", "completions")
)
USER = {"role": "user", "content": "x" * 400}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
TEXTS = st.text(st.characters(codec="utf-8"))


def estimate(request: LlmRequest, output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED) -> TokenEstimate:
    return tokens.estimate(request.url, request.body, json.loads(request.body), output_tokens_expected)


def of(url: str = CHAT, **body: Any) -> TokenEstimate:
    return estimate(LlmRequest("a", url, json.dumps({"model": "m", **body})))


def test_four_bytes_are_about_a_token() -> None:
    assert of(messages=[USER]).input_tokens == 104
    assert of(messages=[USER, USER]).input_tokens == 208
    assert of(messages=[{"role": "user", "content": [{"type": "text", "text": "x" * 400}]}]).input_tokens == 104
    assert of(RESPONSES, input="x" * 400).input_tokens == 100
    assert of(RESPONSES, input=[USER], instructions="x" * 40).input_tokens == 114
    assert of(EMBEDDINGS, input=["x" * 40, "x" * 40]).input_tokens == 20
    assert of(COMPLETIONS, prompt="x" * 40).input_tokens == 10


def test_scripts_with_more_bytes_have_more_tokens() -> None:
    assert of(RESPONSES, input="語" * 400).input_tokens == 300
    escaped = LlmRequest("a", RESPONSES, json.dumps({"input": "語" * 400}, ensure_ascii=True))
    plain = LlmRequest("a", RESPONSES, json.dumps({"input": "語" * 400}, ensure_ascii=False))
    assert estimate(escaped).input_tokens == estimate(plain).input_tokens


def test_numbers_in_an_input_are_tokens_themselves() -> None:
    assert of(EMBEDDINGS, input=[1, 22, 333]).input_tokens == 3
    assert of(EMBEDDINGS, input=[[1, 22], [333]]).input_tokens == 3
    assert of(COMPLETIONS, prompt=[1, 22]).input_tokens == 2


def test_tools_are_read_too() -> None:
    tool = {
        "type": "function",
        "function": {"name": "weather", "parameters": {"properties": {"city": {"x": "y" * 80}}}},
    }
    with_tools, without = of(messages=[USER], tools=[tool]), of(messages=[USER])
    assert with_tools.input_tokens > without.input_tokens + 20
    assert (with_tools.input_tokens_max or 0) > (without.input_tokens_max or 0) + 1000


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=6), st.booleans())
def test_the_most_is_above_every_byte_that_is_read(texts: list[tuple[str, bool]], ascii_only: bool) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": text}] if in_parts else text} for text, in_parts in texts
    ]
    body = json.dumps({"model": "m", "messages": messages}, ensure_ascii=ascii_only)
    found = estimate(LlmRequest("a", CHAT, body))
    assert found.input_tokens_max is not None
    assert found.input_tokens_max >= sum(len(text.encode()) + 8 for text, _ in texts) + 8
    assert found.input_tokens_max >= found.input_tokens


@given(st.lists(st.integers(0, 200_000), min_size=1))
def test_the_most_is_above_every_token_that_is_given(tokens: list[int]) -> None:
    found = of(EMBEDDINGS, input=tokens)
    assert found.input_tokens == len(tokens) < (found.input_tokens_max or 0)


def test_pictures_and_sound_are_not_read_as_text() -> None:
    found = of(messages=[{"role": "user", "content": [{"type": "text", "text": "what?"}, IMAGE]}])
    assert found.input_tokens == 4 + 2 + 1000
    assert found.input_tokens_max is not None
    assert IMAGE_TOKENS_MAX < found.input_tokens_max < IMAGE_TOKENS_MAX + 500
    by_address = of(RESPONSES, input=[{"role": "user", "content": [{"type": "input_image", "image_url": "https://x"}]}])
    assert (by_address.input_tokens_max or 0) > IMAGE_TOKENS_MAX
    sound = {"type": "input_audio", "input_audio": {"data": "A" * 160_000, "format": "mp3"}}
    heard = of(messages=[{"role": "user", "content": [sound]}])
    assert heard.input_tokens == 4 + 320
    assert 10_000 < (heard.input_tokens_max or 0) < 10_500


@pytest.mark.parametrize(
    "body",
    [
        {"input": "x", "previous_response_id": "resp_1"},
        {"input": "x", "conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "AAAA"}}]}]},
    ],
)
def test_what_the_provider_keeps_has_no_bound_here(body: dict[str, Any]) -> None:
    found = of(RESPONSES, **body)
    assert found.input_tokens_max is None
    assert found.one_pass


@pytest.mark.parametrize(
    "body",
    [
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": "x", "tools": [{"type": "function", "name": "f"}, {"type": "code_interpreter"}]},
        {"messages": [USER], "web_search_options": {}},
        {"messages": [USER], "tools": ["odd"]},
    ],
)
def test_tools_that_the_provider_runs_may_read_again_and_again(body: dict[str, Any]) -> None:
    found = of(RESPONSES, **body)
    assert (found.input_tokens_max, found.one_pass) == (None, False)


def test_a_bound_on_the_reply_is_found_under_every_name() -> None:
    assert of(messages=[], max_tokens=100).output_tokens_max == 100
    assert of(messages=[], max_completion_tokens=100).output_tokens_max == 100
    assert of(RESPONSES, input="x", max_output_tokens=100).output_tokens_max == 100
    assert of(messages=[], max_tokens=100, max_completion_tokens=200).output_tokens_max == 200
    assert of(messages=[], max_tokens=10.5).output_tokens_max == 11
    assert of("/v1/messages", messages=[], max_tokens=100).output_tokens_max == 100
    assert of(messages=[]).output_tokens_max is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (CHAT, "max_output_tokens"),
        (f"{CHAT}?api-version=1", "max_output_tokens"),
        (COMPLETIONS, "max_completion_tokens"),
        (RESPONSES, "max_tokens"),
        (RESPONSES, "max_completion_tokens"),
    ],
)
def test_a_bound_under_the_name_of_another_endpoint_bounds_nothing(url: str, name: str) -> None:
    assert of(url, **{name: 100}).output_tokens_max is None


@pytest.mark.parametrize("bound", [None, True, 0, -1, "100", [100], float("1e999")])
def test_a_bound_that_is_none_bounds_nothing(bound: object) -> None:
    body = json.dumps({"messages": [], "max_tokens": bound}).replace("Infinity", "1e999")
    assert estimate(LlmRequest("a", CHAT, body)).output_tokens_max is None


def test_replies_are_as_long_as_usual_but_no_longer_than_their_bound() -> None:
    assert of(messages=[]).output_tokens_expected == OUTPUT_TOKENS_EXPECTED
    assert of(messages=[], max_tokens=100).output_tokens_expected == 100
    assert of(messages=[], max_tokens=4000).output_tokens_expected == OUTPUT_TOKENS_EXPECTED
    request = LlmRequest("a", CHAT, '{"max_tokens": 4000}')
    assert estimate(request, output_tokens_expected=2000).output_tokens_expected == 2000


@pytest.mark.parametrize(
    ("body", "replies"),
    [
        ({"n": 3}, 3),
        ({"n": 0}, 1),
        ({"n": "10"}, 10),
        ({"n": "many"}, 1),
        ({"n": 2, "best_of": 5}, 5),
        ({"best_of": 5, "prompt": "x"}, 5),
        ({"prompt": ["x", "y"]}, 2),
        ({"prompt": ["x", "y"], "n": 3}, 6),
        ({"prompt": ["x", "y"], "best_of": 4}, 8),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": []}, 1),
    ],
)
def test_every_reply_asked_for_counts(body: dict[str, Any], replies: int) -> None:
    found = of(COMPLETIONS, max_tokens=100, **body)
    assert (found.replies, found.output_tokens_max, found.output_tokens_expected) == (
        replies,
        100 * replies,
        100 * replies,
    )


def test_what_is_predicted_may_be_paid_as_output() -> None:
    assert of(messages=[], max_tokens=100, prediction={"type": "content", "content": "x" * 50}).output_tokens_max == 150


@pytest.mark.parametrize("url", [EMBEDDINGS, "/v1/moderations", "/openai/embeddings?api-version=1"])
def test_embeddings_have_no_output(url: str) -> None:
    found = of(url, input="x")
    assert (found.output_tokens_expected, found.output_tokens_max) == (0, 0)


NAMES = ["type", "role", "content", "text", "image_url", "file_id", "tools", "messages", "input", "prompt", "name"]
NAMES += ["n", "best_of", "max_tokens", "prediction", "conversation", "web_search_options", "functions", "data"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["text", "image", "file", "function"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING), st.sampled_from([CHAT, RESPONSES, EMBEDDINGS, COMPLETIONS]))
def test_whatever_a_body_says_it_is_estimated(fields: dict[str, Any], url: str) -> None:
    found = tokens.estimate(url, json.dumps(fields), fields)
    assert min(found.input_tokens, found.output_tokens_expected, found.output_tokens_max or 0) >= 0
    assert found.replies >= 1


def test_a_tool_may_take_more_types_than_one() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": ["string", "null"]}}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    assert of(messages=[USER], tools=[tool]).input_tokens_max is not None
