"""Anthropic's requests: where they go, what is refused before it is sent, and what one can cost at most."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from backstay.core.errors import UsageError
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.formats import Format, InputOptions
from backstay.llm.intake import open_source, survey
from backstay.llm.lines import LineRefused, LlmRequest
from backstay.llm.prices import PriceList
from backstay.llm.providers import check_base_url
from backstay.llm.providers.anthropic.calls import MESSAGES, address, auth_headers, check_body, estimate
from backstay.run.submission import Order, Scales
from tests.llm.request_files import Write, sent

BODY = {"model": "claude-sonnet-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
REMOTE = "https://api.anthropic.com"


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {**{name: value for name, value in BODY.items() if name not in names}, **more}


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/messages"),
        ("https://gateway.example/anthropic/", "https://gateway.example/anthropic/v1/messages"),
        ("https://gateway.example/a/v1?team=7", "https://gateway.example/a/v1/messages?team=7"),
    ],
)
def test_a_request_goes_below_the_base_url(base: str, url: str) -> None:
    assert str(address(urlsplit(base), MESSAGES)) == url


def test_a_base_url_with_the_path_of_a_request_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="must not end in /v1/messages") as refused:
        check_base_url("https://api.anthropic.com/v1/messages", "anthropic")
    assert refused.value.hint == "give https://api.anthropic.com"


def test_the_key_has_a_header_of_its_own_and_the_version_is_always_named() -> None:
    base = urlsplit(REMOTE)
    assert auth_headers(base, "k") == {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    assert auth_headers(base, None) == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("url", "body", "reason"),
    [
        (MESSAGES, without("max_tokens"), "has no max_tokens, which Anthropic requires; add it to the body"),
        (MESSAGES, without(max_tokens=0), "has max_tokens 0; it must be a whole number above 0"),
        (MESSAGES, without(max_tokens=True), "has max_tokens true"),
        (MESSAGES, without(max_tokens="9"), 'has max_tokens "9"'),
        (MESSAGES, without("model"), "names no model"),
        (MESSAGES, without(model=7), "names no model"),
        (MESSAGES, without("messages"), "has no messages"),
        (MESSAGES, without(messages=[]), "has no messages"),
        (MESSAGES, without(stream=True), "asks for a stream"),
        ("/v1/embeddings", BODY, "is for /v1/embeddings; Anthropic takes /v1/messages, and chat requests"),
    ],
)
def test_what_can_only_fail_is_refused(url: str, body: dict[str, Any], reason: str) -> None:
    with pytest.raises(LineRefused) as refused:
        check_body(url, body, False)
    assert reason in str(refused.value)


def test_the_bodies_of_a_file_are_sent_as_they_are_written(write: Write) -> None:
    bodies = [json.dumps(without(system="be brief", max_tokens=n)) for n in (1, 2)]
    file = write("".join(f"{body}\n" for body in bodies))
    assert [(request.url, request.body) for request in sent(file, InputOptions(api="anthropic"))] == [
        (MESSAGES, body) for body in bodies
    ]


def test_one_line_that_cannot_be_sent_does_not_stop_the_others(write: Write) -> None:
    lines = [{"custom_id": f"r{n}", "method": "POST", "url": MESSAGES, "body": BODY} for n in range(3)]
    lines[1] = {**lines[1], "body": without("max_tokens")}
    file = write("".join(json.dumps(line) + "\n" for line in lines))
    with open_source(file, InputOptions(Format.BATCH, api="anthropic")) as source:
        found = survey(source)
    assert found.requests == 2
    assert [bad.line for bad in found.bad] == [2]
    assert "--max-output-tokens" in found.bad[0].reason


def of(**more: Any) -> Any:
    body = without(**more)
    return estimate(MESSAGES, json.dumps(body), body)


def test_a_reply_is_bounded_by_max_tokens_and_the_input_by_its_bytes() -> None:
    plain = of()
    assert (plain.output_tokens_max, plain.output_tokens_expected) == (100, 100)
    assert plain.input_tokens <= plain.input_tokens_max <= len(json.dumps(BODY)) + 64
    longer = of(system="x" * 4_000)
    assert longer.input_tokens == plain.input_tokens + 1_000


def test_a_picture_is_not_counted_as_text_and_a_document_has_no_bound() -> None:
    data = "A" * 1_000_000
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
    seen = of(messages=[{"role": "user", "content": [image]}])
    assert seen.input_tokens < 2_000
    assert 1_600 < seen.input_tokens_max < 12_000
    assert of(messages=[{"role": "user", "content": [pdf]}]).input_tokens_max is None


@pytest.mark.parametrize(
    ("tool", "bounded"),
    [
        ({"name": "f", "input_schema": {"type": "object"}}, True),
        ({"type": "custom", "name": "f", "input_schema": {"type": "object"}}, True),
        ({"type": "bash_20250124", "name": "bash"}, True),
        ({"type": "web_search_20250305", "name": "web_search"}, False),
        ({"type": "code_execution_20250825", "name": "code_execution"}, False),
    ],
)
def test_what_tools_of_the_provider_read_has_no_bound(tool: dict[str, Any], bounded: bool) -> None:
    found = of(tools=[tool])
    assert (found.input_tokens_max is not None, found.one_pass) == (bounded, bounded)


def test_the_most_that_a_call_can_cost_counts_every_token_as_written_to_the_cache_of_an_hour() -> None:
    found = of()
    # claude-sonnet-5 costs 2 and 10 dollars a million; 4 dollars for what is cached for an hour.
    assert PriceList(REMOTE).worst_micros(found) == found.input_tokens_max * 4 + 100 * 10
    # Half of that in a batch.
    assert PriceList(REMOTE, Lane.BATCH).worst_micros(found) == found.input_tokens_max * 2 + 100 * 5


def test_a_faster_mode_has_no_published_price_so_a_budget_refuses_it() -> None:
    scales = Scales.of(Order(Endpoint(REMOTE, api="anthropic"), Path("out.jsonl"), budget_micros=1_000_000))
    plain, fast = without(), without(speed="fast")
    assert scales.weigh(LlmRequest("r", MESSAGES, json.dumps(plain)), plain)[0] is not None
    with pytest.raises(UsageError, match="has no limit"):
        scales.weigh(LlmRequest("r", MESSAGES, json.dumps(fast)), fast)
