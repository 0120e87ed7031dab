"""What can only fail is refused in one clear line, before anything is sent."""

import json
from typing import Any

import pytest

from tests.cli.shell import Shell

MESSAGES: list[dict[str, str]] = [{"role": "user", "content": "x"}]


def line(url: str, **body: Any) -> str:
    return json.dumps({"custom_id": "a", "method": "POST", "url": url, "body": body})


CHAT = line("/v1/chat/completions", model="mystery-9", messages=MESSAGES)
CLAUDE = {"model": "claude-sonnet-4-5", "messages": MESSAGES}
NATIVE = line("/v1/messages", **CLAUDE, max_tokens=5)


@pytest.mark.parametrize(
    ("text", "options", "keys", "words"),
    [
        (CHAT, (), ("GROQ", "MISTRAL"), "no provider is known for the model 'mystery-9'"),
        (CHAT, ("--provider", "groq"), ("OPENAI",), "GROQ_API_KEY is not set"),
        (NATIVE, (), ("OPENAI",), "ANTHROPIC_API_KEY is not set"),
        (line("/v1/messages", **CLAUDE), (), ("ANTHROPIC",), "line 1 has no max_tokens, which Anthropic requires"),
        (line("/v1/chat/completions", **CLAUDE), (), ("ANTHROPIC",), "line 1 has no max_tokens"),
        (NATIVE, ("--provider", "openai"), ("OPENAI",), "line 1 is for /v1/messages, which belongs to anthropic"),
        (NATIVE, ("--provider", "groq"), ("GROQ",), "line 1 is for /v1/messages, which belongs to anthropic"),
        (
            line("/v1/chat/completions", model="gpt-4o", contents=[]),
            (),
            ("OPENAI",),
            "line 1 has contents, which is not in OpenAI's chat format",
        ),
        (json.dumps({"model": "gpt-4o", "contents": []}), ("--format", "bodies"), ("OPENAI",), "line 1 has no input"),
        (line("/v1/embeddings", model="m"), ("--provider", "anthropic"), ("ANTHROPIC",), "is for /v1/embeddings"),
        (NATIVE, ("--lane", "background"), ("ANTHROPIC",), "anthropic has no lane background; it has: call, batch"),
        (
            CHAT,
            ("--provider", "deepseek", "--lane", "batch"),
            ("DEEPSEEK",),
            "deepseek has no lane batch; it has: call",
        ),
        (CHAT, ("--provider", "xai", "--lane", "batch"), (), "xai has no lane batch; it has: call"),
    ],
)
def test_the_reason_is_one_line_and_nothing_is_stored(
    sqlite_shell: Shell,
    text: str,
    options: tuple[str, ...],
    keys: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in keys:
        monkeypatch.setenv(f"{name}_API_KEY", "sk-practice-0123456789")
    ran = sqlite_shell("run", sqlite_shell.file(text + "\n"), *options)
    assert ran.code == 2
    assert words in ran.said[0], ran.err
    assert len(ran.said) <= 2, "a bad line, and that nothing was sent"
    assert ran.out == ""


@pytest.mark.parametrize("command", ["run", "submit", "plan"])
@pytest.mark.parametrize("keys", [(), ("GROQ", "MISTRAL")])
def test_a_model_of_no_known_provider_is_named_with_what_to_do(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str, keys: tuple[str, ...]
) -> None:
    for name in keys:
        monkeypatch.setenv(f"{name}_API_KEY", "sk-practice-0123456789")
    ran = sqlite_shell(command, sqlite_shell.file(CHAT + "\n"))
    assert (ran.code, len(ran.said), ran.out) == (2, 1, "")
    for words in (
        "the model 'mystery-9'",
        "give --provider NAME",
        "groq:mystery-9",
        "known: anthropic, azure, bedrock",
    ):
        assert words in ran.said[0]
    assert "no jobs in" in sqlite_shell("jobs").err


def test_too_few_requests_for_a_batch_are_refused_and_the_cheapest_lane_calls_them(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "http://127.0.0.1:9")
    monkeypatch.setenv("BEDROCK_BATCH_RECORDS_MIN", "3")
    nova, lite = (
        [
            json.dumps({"model": f"amazon.nova-{name}-v1:0", "messages": [*MESSAGES, *MESSAGES[:n]]})
            for n in range(count)
        ]
        for name, count in (("pro", 3), ("lite", 2))
    )
    options = ("--provider", "bedrock", "--max-output-tokens", "9")
    file = sqlite_shell.file("\n".join([*nova, *lite]))
    ran = sqlite_shell("submit", file, *options, "--lane", "batch")
    assert (ran.code, len(ran.said), ran.out) == (2, 1, "")
    assert "amazon.nova-lite-v1:0 has 2 requests, and its provider takes no batch with fewer than 3" in ran.said[0]
    assert "use --lane call" in ran.said[0]
    later = ("--lane", "cheapest", "--deadline", "24h", "--json")
    assert "batch" in sqlite_shell("submit", file, *options, *later).json["handler"]
    few = sqlite_shell.file("\n".join(lite))
    assert "call" in sqlite_shell("submit", few, *options, *later).json["handler"]


def test_a_gateway_may_know_the_paths_of_others(sqlite_shell: Shell) -> None:
    ran = sqlite_shell("plan", sqlite_shell.file(NATIVE + "\n"), "--base-url", "http://127.0.0.1:9/v1", "--json")
    assert (ran.code, ran.json["requests"]) == (0, 1), ran.err


def test_a_gateway_may_know_the_apis_of_other_providers(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-practice-0123456789")
    ran = sqlite_shell("plan", sqlite_shell.file(NATIVE + "\n"), "--provider", "openrouter")
    assert (ran.code, ran.said) == (0, [])
