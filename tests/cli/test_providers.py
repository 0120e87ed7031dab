"""Which provider gets a request, what it is told, and what is refused before anything is sent."""

import pytest

from backstay.llm.providers import provider_names
from tests.cli.practice_thread import file_of, results, served
from tests.cli.shell import Shell

OPENAI, GROQ = "sk-openai-0123456789", "gsk-groq-0123456789"


def test_a_provider_comes_with_its_address_and_its_key(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(key=GROQ) as (practice, base_url):
        monkeypatch.setenv("GROQ_BASE_URL", base_url)
        monkeypatch.setenv("GROQ_API_KEY", GROQ)
        ran = shell("run", file_of(shell, "llama-3.3-70b-versatile"), "--provider", "groq", "--budget", "1", "--json")
        assert ran.code == 0, ran.err
        assert practice.counts.calls == 1
        assert ran.rows[-1]["spent_micros"] > 0, "at the price that is published for groq"


def test_a_model_may_name_its_provider_and_is_sent_without_that(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(key=GROQ) as (_, base_url):
        monkeypatch.setenv("GROQ_BASE_URL", base_url)
        monkeypatch.setenv("GROQ_API_KEY", GROQ)
        ran = sqlite_shell("run", file_of(sqlite_shell, "groq:llama3:8b"))
        assert (ran.code, results(sqlite_shell)["r0"]["model"]) == (0, "llama3:8b")
        prompts = sqlite_shell.file('{"prompt": "x"}\n', "requests.jsonl")
        ran = sqlite_shell("run", prompts, "--model", "groq:mine", "--out", "more.jsonl")
        assert ran.code == 0, ran.err
        assert '"model":"mine"' in (sqlite_shell.folder / "more.jsonl").read_text()


def test_a_base_url_alone_speaks_openais_api_and_leaves_models_alone(sqlite_shell: Shell) -> None:
    with served() as (_, base_url):
        path = file_of(sqlite_shell, "mistral:7b", "grok-4", "claude-x")
        assert sqlite_shell("run", path, "--base-url", base_url).code == 0
        answered = {id: body["model"] for id, body in results(sqlite_shell).items()}
        assert answered == {"r0": "mistral:7b", "r1": "grok-4", "r2": "claude-x"}


@pytest.mark.parametrize(
    ("models", "environ", "options", "says"),
    [
        (["gpt-4o"], {}, [], "OPENAI_API_KEY is not set, and api.openai.com needs a key"),
        (["mine"], {}, [], "no provider is known for the model 'mine', and no key is set"),
        (["x"], {}, ["--provider", "groq"], "GROQ_API_KEY is not set, and api.groq.com needs a key"),
        (["x"], {}, ["--provider", "azure"], "azure has no address: AZURE_OPENAI_ENDPOINT is not set"),
        (
            ["x"],
            {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com"},
            ["--provider", "azure"],
            "AZURE_OPENAI_API_KEY is not set, and r.openai.azure.com needs a key",
        ),
        (["x"], {}, ["--provider", "grok"], "there is no provider 'grok'"),
        (
            ["gpt-4o", "groq:x", "groq:x"],
            {"OPENAI_API_KEY": OPENAI},
            [],
            "GROQ_API_KEY is not set, and api.groq.com needs a key (line 2 is for groq)",
        ),
        (["x"], {"GROQ_API_KEY": "k", "XAI_API_KEY": "k"}, [], "no provider is known for the model 'x'"),
        (["x"], {"XAI_API_KEY": "k"}, ["--lane", "batch"], "xai has no lane batch; it has: call"),
        (["groq:x"], {"GROQ_API_KEY": "k"}, ["--reconcilable"], "groq cannot look up a call after a crash"),
        (
            ["gpt-4o", "groq:x"],
            {"OPENAI_API_KEY": OPENAI, "GROQ_API_KEY": GROQ, "MINE": "k"},
            ["--api-key-env", "MINE"],
            "--api-key-env works with one provider only; the file has requests for groq and openai",
        ),
    ],
)
def test_what_cannot_work_is_one_line_before_anything_is_sent(
    sqlite_shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    models: list[str],
    environ: dict[str, str],
    options: list[str],
    says: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ran = sqlite_shell("run", file_of(sqlite_shell, *models), *options)
    assert (ran.code, len(ran.said)) == (2, 1)
    assert says in ran.err
    assert not (sqlite_shell.folder / "requests.results.jsonl").exists()


def test_a_server_on_this_machine_needs_no_key(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as (_, base_url):
        monkeypatch.setenv("OLLAMA_BASE_URL", base_url.removesuffix("/v1"))
        assert sqlite_shell("run", file_of(sqlite_shell, "mistral:7b"), "--provider", "ollama").code == 0
        assert results(sqlite_shell)["r0"]["model"] == "mistral:7b"


def test_a_plan_has_the_prices_of_each_provider(sqlite_shell: Shell) -> None:
    path = file_of(sqlite_shell, "gpt-4o-mini", "groq:llama-3.3-70b-versatile")
    shares = sqlite_shell("plan", path, "--json").json["by_model"]
    assert [share["price"].partition("(")[2] for share in shares] == [
        "openai gpt-4o-mini)",
        "groq llama-3.3-70b-versatile)",
    ]


def test_doctor_asks_a_provider_by_its_name(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(key=GROQ) as (_, base_url):
        monkeypatch.setenv("GROQ_BASE_URL", base_url)
        rows = sqlite_shell("doctor", "--provider", "groq", "--json").rows
        [said] = [row["says"] for row in rows if row["check"] == "providers"]
        assert "needs a key in GROQ_API_KEY" in said
        monkeypatch.setenv("GROQ_API_KEY", GROQ)
        rows = sqlite_shell("doctor", "--provider", "groq", "--json").rows
        [said] = [row["says"] for row in rows if row["check"] == "providers"]
        assert said.endswith("answers")


def test_the_providers_are_listed_with_what_they_can_do_and_no_key(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", GROQ)
    rows = {row["provider"]: row for row in sqlite_shell("providers", "--json").rows}
    assert rows.keys() == set(provider_names())
    assert (rows["groq"]["key_set"], rows["openai"]["key_set"], rows["ollama"]["key_needed"]) == (True, False, False)
    assert rows["openai"]["lanes"] == ["call", "background", "batch"]
    assert (rows["openai"]["call_found_again"], rows["groq"]["call_found_again"]) == ("certain", "never")
    shown = sqlite_shell("providers").out + sqlite_shell("providers", "--json").out
    assert GROQ not in shown
