"""Services that speak OpenAI's API: their addresses and keys, and which provider a request is for."""

import json
from typing import Any

import pytest

from backstay.core.errors import UsageError
from backstay.llm import providers
from backstay.llm.endpoint import Endpoint, Lane, parts_of
from backstay.llm.formats import InputOptions
from backstay.llm.prices import LanePrices
from backstay.llm.provider import Certainty, ProviderReply
from backstay.llm.providers import ProviderChoice, check_lane, provider_named, provider_names, split_model
from tests.llm.request_files import sent

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("name", "base_url", "path", "url"),
    [
        *(
            ("groq", f"https://h{path}", CHAT, "https://h/openai/v1/chat/completions")
            for path in ("", "/", "/openai", "/openai/v1")
        ),
        ("groq", "https://proxy/groq/v1", CHAT, "https://proxy/groq/v1/chat/completions"),
        *(("together", f"https://h{path}", "/v1/files", "https://h/v1/files") for path in ("", "/v1", "/v1/")),
        ("openrouter", "https://h/api", CHAT, "https://h/api/v1/chat/completions"),
        ("ollama", "http://localhost:11434", CHAT, "http://localhost:11434/v1/chat/completions"),
        ("azure", "https://r.openai.azure.com", CHAT, "https://r.openai.azure.com/openai/v1/chat/completions"),
        ("azure", "https://r.openai.azure.com/openai/v1/", "/v1/files", "https://r.openai.azure.com/openai/v1/files"),
        ("azure", "https://r/?api-version=7", "/v1/files", "https://r/openai/files?api-version=7"),
        (
            "azure",
            "https://r/openai/deployments/d?api-version=7",
            CHAT,
            "https://r/openai/deployments/d/chat/completions?api-version=7",
        ),
    ],
)
def test_the_address_is_the_same_however_much_of_it_the_base_url_has(
    name: str, base_url: str, path: str, url: str
) -> None:
    assert str(provider_named(name).requests.address(parts_of(base_url), path)) == url


def test_azure_gets_its_key_in_its_own_header_and_the_others_as_openai() -> None:
    base = parts_of("https://h")
    assert provider_named("azure").requests.auth_headers(base, "k") == {"api-key": "k"}
    assert provider_named("groq").requests.auth_headers(base, "k") == {"authorization": "Bearer k"}
    assert provider_named("ollama").requests.auth_headers(base, None) == {}


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://r/openai/v1", CHAT),
        ("https://r?api-version=7", "/deployments/my%20own/chat/completions"),
        ("https://r/openai/deployments/d?api-version=7", CHAT),
    ],
)
def test_a_deployment_is_in_the_path_of_azures_older_address(tmp_path: Any, base_url: str, url: str) -> None:
    file = tmp_path / "bodies.jsonl"
    file.write_text('{"model": "my own", "messages": []}')
    [request] = sent(str(file), InputOptions(api="azure", base_url=base_url))
    assert request.url == url


@pytest.mark.parametrize("name", provider_names())
def test_every_provider_has_what_a_run_needs(name: str) -> None:
    provider = provider_named(name)
    assert provider.name == name
    assert provider.access.key_env.endswith(("_API_KEY", "_TOKEN", "_TOKEN_BEDROCK"))
    assert provider.access.base_url.startswith("http") or name == "azure" or provider.access.address_hint
    assert Lane.CALL in provider.lanes
    for part in filter(None, (provider.call_lookup, provider.batches)):
        assert isinstance(getattr(part, "certainty", None), Certainty), "`backstay providers` shows it"


def test_no_two_providers_have_one_variable() -> None:
    accesses = [provider_named(name).access for name in provider_names()]
    for variables in ([each.key_env for each in accesses], [each.base_url_env for each in accesses]):
        assert len(set(variables)) == len(variables)


def test_a_lane_that_a_provider_has_not_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(UsageError, match="deepseek has no lane batch; it has: call"):
        check_lane("deepseek", Lane.BATCH)
    with pytest.raises(UsageError, match="xai has no lane background"):
        check_lane("xai", Lane.BACKGROUND)
    with pytest.raises(UsageError, match="groq cannot look up a call after a crash"):
        check_lane("groq", Lane.CALL, reconcilable=True)


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("groq:llama-3.1-8b-instant", ("groq", "llama-3.1-8b-instant")),
        ("ollama:llama3:8b", ("ollama", "llama3:8b")),
        ("llama3:8b", (None, "llama3:8b")),
        ("ft:gpt-4o-mini:acme::1", (None, "ft:gpt-4o-mini:acme::1")),
        ("deepseek/deepseek-r1:free", (None, "deepseek/deepseek-r1:free")),
        ("groq:", (None, "groq:")),
        ("GROQ:x", (None, "GROQ:x")),
    ],
)
def test_only_a_providers_name_before_a_colon_counts(model: str, parts: tuple[str | None, str]) -> None:
    assert split_model(model) == parts


GROQ, MISTRAL, OPENAI = {"GROQ_API_KEY": "k"}, {"MISTRAL_API_KEY": "k"}, {"OPENAI_API_KEY": "k"}


@pytest.mark.parametrize(
    ("environ", "model", "chosen"),
    [
        ({}, "groq:x", "groq"),
        (OPENAI, "groq:x", "groq"),
        (GROQ, "gpt-4o-mini", "openai"),
        (GROQ, "ft:gpt-4o-mini:acme::1", "openai"),
        (OPENAI, "grok-4", "xai"),
        (OPENAI, "mistral-small-latest", "mistral"),
        (OPENAI, "mine", "openai"),
        (GROQ, "mine", "groq"),
        (GROQ, None, "groq"),
        (OPENAI | GROQ, "mine", "openai"),
        (GROQ | {"OPENAI_BASE_URL": "http://localhost:1/v1"}, "mine", "openai"),
        ({}, None, "openai"),
    ],
)
def test_the_provider_follows_from_the_model_or_the_key(
    environ: dict[str, str], model: str | None, chosen: str
) -> None:
    assert ProviderChoice(environ)(model, CHAT) == chosen


def test_an_unknown_model_and_several_keys_say_what_to_do() -> None:
    with pytest.raises(UsageError) as raised:
        ProviderChoice(GROQ | MISTRAL)("mine", CHAT)
    assert raised.value.message == "no provider is known for the model 'mine'; keys are set for groq, mistral"
    assert raised.value.hint is not None
    assert raised.value.hint.startswith(
        "give --provider NAME, or write it before the model: groq:mine; known: anthropic"
    )


def test_an_unknown_model_and_no_key_say_what_to_do() -> None:
    with pytest.raises(UsageError, match="no provider is known for the model 'mine', and no key is set") as raised:
        ProviderChoice({})("mine", CHAT)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith(
        "give --provider NAME, or write it before the model: groq:mine; known: anthropic"
    )


def test_a_provider_of_the_settings_counts_as_one_whose_key_is_set() -> None:
    assert ProviderChoice({}, configured=("groq",))("mine", CHAT) == "groq"
    with pytest.raises(UsageError, match="keys are set for groq, mistral"):
        ProviderChoice(MISTRAL, configured=("groq",))("mine", CHAT)


def test_the_prefix_is_not_sent_and_the_rest_of_a_body_stays_as_it_is(tmp_path: Any) -> None:
    file = tmp_path / "requests.jsonl"
    body = '{ "model" : "groq:llama3:8b",  "messages":[] , "x": 1.0}'
    file.write_text(f'{{"custom_id": "a", "method": "POST", "url": "{CHAT}", "body": {body}}}')
    [request] = sent(str(file), InputOptions(api="groq", named=True))
    assert request.body == body.replace("groq:llama3:8b", "llama3:8b")
    [request] = sent(str(file), InputOptions(api="ollama", named=True))
    assert request.body == body, "to another provider it is an ordinary name"


def test_prices_come_with_the_provider_whatever_its_address() -> None:
    def price(api: str, model: str) -> Any:
        return LanePrices(Endpoint("http://127.0.0.1:9/v1", api=api))(model, None)

    assert price("groq", "llama-3.3-70b-versatile") is not None
    assert price("ollama", "gpt-4o-mini") is None, "it costs nobody anything that a list could know"
    assert price("openai", "gpt-4o-mini") == price("litellm", "gpt-4o-mini") != None  # noqa: E711


def test_groqs_limits_are_read() -> None:
    heads = {"x-ratelimit-remaining-requests": "14370", "x-ratelimit-reset-requests": "2m59.56s"}
    heads |= {"x-ratelimit-remaining-tokens": "17997", "x-ratelimit-reset-tokens": "7.66s"}
    hints = provider_named("groq").replies.limit_hints(ProviderReply(200, heads, "{}"), 0)
    assert hints[1:] == (14_370, 179_560, 17_997, 7_660)


def test_mistrals_refusal_of_a_field_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_known", {})
    detail = [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}]
    provider = provider_named("mistral")
    reply = ProviderReply(422, {}, json.dumps({"detail": detail}))
    outcome = provider.replies.read_reply(
        reply, provider.replies.limit_hints(reply, 0), LanePrices(Endpoint("http://h"))
    )
    assert "Field required" in str(outcome)
    assert "messages" in str(outcome)
