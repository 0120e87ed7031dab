"""Gemini's requests: where they go, what is refused before it is sent, and what one can cost at most."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from backstay.core.errors import UsageError
from backstay.llm.endpoint import Lane
from backstay.llm.formats import Format, InputOptions
from backstay.llm.intake import open_source, survey
from backstay.llm.lines import LineRefused
from backstay.llm.prices import PriceList
from backstay.llm.providers import ProviderChoice, check_base_url, provider_named, provider_of_model, provider_of_url
from backstay.llm.providers.gemini.calls import (
    address,
    auth_headers,
    check_body,
    estimate,
    model_of_url,
    trace_attributes,
    url_of_model,
)
from backstay.run.options import Destination
from tests.llm.request_files import Write, sent

URL = "/v1beta/models/gemini-2.5-flash:generateContent"
REMOTE = "https://generativelanguage.googleapis.com"
SAID = [{"role": "user", "parts": [{"text": "hi"}]}]
BODY: dict[str, Any] = {"contents": SAID, "generationConfig": {"maxOutputTokens": 100}}
GEMINI = InputOptions(api="gemini")


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        (REMOTE, URL, f"{REMOTE}{URL}"),
        ("http://127.0.0.1:81/v1beta", URL, f"http://127.0.0.1:81{URL}"),
        ("http://127.0.0.1/v1/", URL, "http://127.0.0.1/v1/models/gemini-2.5-flash:generateContent"),
        ("https://gateway.example/g?team=7", URL, f"https://gateway.example/g{URL}?team=7"),
        ("http://127.0.0.1/g/v1alpha", "/upload/v1beta/files", "http://127.0.0.1/g/upload/v1alpha/files"),
        (REMOTE, "/upload/v1beta/files", f"{REMOTE}/upload/v1beta/files"),
    ],
)
def test_a_request_goes_below_the_base_url_whose_version_counts(base: str, path: str, url: str) -> None:
    assert str(address(urlsplit(base), path)) == url


def test_a_base_url_with_the_path_of_a_request_is_a_mistake() -> None:
    for end in ("/v1beta/models", "/v1beta/openai/", "/v1/models/gemini-x:generateContent"):
        with pytest.raises(UsageError, match="must not end in") as refused:
            check_base_url(f"{REMOTE}{end}", "gemini")
        assert refused.value.hint == f"give {REMOTE}"
    check_base_url(f"{REMOTE}/v1beta", "gemini")


def test_the_key_is_in_googles_own_header() -> None:
    assert auth_headers(urlsplit(REMOTE), "k") == {"x-goog-api-key": "k"}
    assert auth_headers(urlsplit(REMOTE), None) == {}


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({}, "GEMINI_API_KEY"),
        ({"GEMINI_API_KEY": "a"}, "GEMINI_API_KEY"),
        ({"GOOGLE_API_KEY": "b"}, "GOOGLE_API_KEY"),
        ({"GEMINI_API_KEY": "a", "GOOGLE_API_KEY": "b"}, "GEMINI_API_KEY"),
    ],
)
def test_either_variable_may_hold_the_key(
    environ: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provider_named("gemini").access_in(environ).key_env == variable
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert Destination("gemini", None).key_env("gemini") == variable
    if environ:
        assert ProviderChoice(environ)(None, None) == "gemini"


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("gemini-2.5-flash", URL),
        ("models/gemini-2.5-flash", URL),
        ("tunedModels/mine", "/v1beta/tunedModels/mine:generateContent"),
        ("a/b:c", "/v1beta/models/a%2Fb%3Ac:generateContent"),
    ],
)
def test_the_model_is_in_the_path(model: str, url: str) -> None:
    assert url_of_model(model) == url
    assert model_of_url(url) == model.removeprefix("models/")


def test_a_request_finds_its_provider_by_model_or_path() -> None:
    assert provider_of_model("gemini-3-flash-preview") == "gemini"
    assert provider_of_url(URL) == provider_of_url("/v1/models/gemini-x:generateContent") == "gemini"


@pytest.mark.parametrize(
    ("url", "body", "reason"),
    [
        (URL, {}, "has no contents"),
        (URL, {"contents": []}, "has no contents"),
        (URL, {"contents": "hi"}, "has no contents"),
        (URL, {**BODY, "model": "gemini-x"}, 'has the model "gemini-x" in its body and gemini-2.5-flash in its url'),
        (f"{URL}?key=secret", BODY, "has a key in its url"),
        ("/v1beta/models/m:streamGenerateContent", BODY, "asks for a stream"),
        ("/v1beta/models/m:embedContent", BODY, "Gemini takes /v1beta/models/MODEL:generateContent, and chat requests"),
        ("/v1beta/models/:generateContent", BODY, "names no model"),
        ("/v1/embeddings", BODY, "is for /v1/embeddings; Gemini takes"),
    ],
)
def test_what_can_only_fail_is_refused(url: str, body: dict[str, Any], reason: str) -> None:
    with pytest.raises(LineRefused) as refused:
        check_body(url, body, False)
    assert reason in str(refused.value)


def test_lines_in_geminis_own_format_are_sent_as_they_are_written(write: Write) -> None:
    body = '{"contents": [{"parts":  [{"text": "h\\u00e9"}]}], "generation_config": {"temperature": 1.0}}'
    line = f'{{"custom_id": "a", "method": "POST", "url": "{URL}", "body": {body}}}'
    assert [(each.url, each.body) for each in sent(write(line), GEMINI)] == [(URL, body)]
    with_model = InputOptions(api="gemini", model="gemini-2.5-flash")
    assert [(each.url, each.body) for each in sent(write(body), with_model)] == [(URL, body)]


def test_a_body_that_names_its_model_is_sent_without_it(write: Write) -> None:
    lines = [{"model": name, **BODY, "id": n} for n, name in enumerate(("gemini-2.5-flash", "gemini:gemini-2.5-flash"))]
    file = write("".join(json.dumps(line) + "\n" for line in lines))
    found = sent(file, InputOptions(api="gemini", named=True))
    assert [(each.url, json.loads(each.body)) for each in found] == [(URL, BODY)] * 2


def test_a_prompt_needs_a_model_and_one_bad_line_does_not_stop_the_others(write: Write) -> None:
    lines = [{"prompt": "hi", "model": "gemini-2.5-flash"}, {"prompt": "hi"}, {"prompt": "hi", "model": "gemini-x"}]
    file = write("".join(json.dumps(line) + "\n" for line in lines))
    with open_source(file, InputOptions(Format.PROMPTS, api="gemini")) as source:
        found = survey(source)
    assert (found.requests, [bad.line for bad in found.bad]) == (2, [2])
    assert found.bad[0].reason == "names no model; --model gives one"
    assert set(found.models) == {"gemini-2.5-flash", "gemini-x"}


def of(url: str = URL, **more: Any) -> Any:
    body = {**BODY, **more}
    return estimate(url, json.dumps(body), body)


def test_a_reply_is_bounded_by_its_setting_and_the_input_by_its_bytes() -> None:
    found = of()
    assert (found.output_tokens_max, found.output_tokens_expected, found.model) == (100, 100, "gemini-2.5-flash")
    assert found.input_tokens <= found.input_tokens_max <= len(json.dumps(BODY)) + 64
    assert of(system_instruction={"parts": [{"text": "x" * 4_000}]}).input_tokens >= found.input_tokens + 1_000
    snake = {"contents": SAID, "generation_config": {"max_output_tokens": 70, "candidate_count": 3}}
    assert estimate(URL, json.dumps(snake), snake).output_tokens_max == 210
    assert of(generationConfig={}).output_tokens_max is None


def inline(kind: str) -> dict[str, Any]:
    return {"contents": [{"parts": [{"inlineData": {"mimeType": kind, "data": "A" * 1_000_000}}]}]}


def test_a_picture_is_not_counted_as_text_and_what_has_no_known_length_has_no_bound() -> None:
    seen = of(**inline("image/png"))
    assert seen.input_tokens < 2_000
    assert 1_000 < seen.input_tokens_max < 12_000
    assert of(**inline("application/pdf")).input_tokens_max is None
    assert of(contents=[{"parts": [{"file_data": {"file_uri": "files/x"}}]}]).input_tokens_max is None
    assert of(cachedContent="cachedContents/x").input_tokens_max is None


@pytest.mark.parametrize(
    ("tools", "bounded"),
    [
        ([{"functionDeclarations": [{"name": "f"}]}], True),
        ([{"function_declarations": [{"name": "f"}]}], True),
        ([{"functionDeclarations": [{"name": "f"}]}, {"googleSearch": {}}], False),
        ([{"code_execution": {}}], False),
        ("odd", False),
    ],
)
def test_what_tools_of_google_read_has_no_bound(tools: Any, bounded: bool) -> None:
    found = of(tools=tools)
    assert (found.input_tokens_max is not None, found.one_pass) == (bounded, bounded)


def test_the_most_that_a_call_can_cost_is_half_of_it_in_a_batch() -> None:
    found = of()
    # gemini-2.5-flash costs 0.30 and 2.50 dollars a million.
    assert PriceList(REMOTE, api="gemini").worst_micros(found) == -(-(found.input_tokens_max * 3 + 2_500) // 10)
    batch = PriceList(REMOTE, Lane.BATCH, api="gemini").worst_micros(found)
    assert batch == -(-(found.input_tokens_max * 15 + 12_500) // 100)
    assert PriceList("http://127.0.0.1:9", api="gemini").worst_micros(found) is not None  # by the name of the list


def test_a_trace_names_the_model_of_the_path() -> None:
    found = trace_attributes(REMOTE, URL, BODY)
    assert found["gen_ai.request.model"] == "gemini-2.5-flash"
    assert (found["gen_ai.request.max_tokens"], found["gen_ai.provider.name"]) == (100, "gcp.gemini")
