"""The table `providers` of the settings file: addresses, variables, limits and budgets, and never a key."""

import sqlite3
from pathlib import Path

import pytest

from backstay import settings
from backstay.cli.serve import _options, serve
from backstay.core.breaker import BreakerPolicy
from backstay.core.errors import UsageError
from backstay.core.pace import FurtherLimits, PersonsLimits
from backstay.run.submission import ProviderTerms
from backstay.server.service import ServiceOptions
from tests.cli.practice_thread import file_of, results, served
from tests.cli.shell import Shell
from tests.house.pages import all_blocks, page_text

SECRETS = ("sk-ant-0123456789abcdef", "gsk_0123456789abcdef0123", "AKIAIOSFODNN7EXAMPLE", "aB3dE5gH7jK9mN1pQ3sT5v")
TABLE = """
[providers.anthropic]
base_url = "http://127.0.0.1:9"
api_key_env = "TEAM_KEY"
rpm = 60
otpm = 4000
concurrency = 5
budget = 12.5
timeout_seconds = 30
circuit_window = 6
circuit_cooldown_ms = 1000

[providers.openai]
api_key_env = "OTHER_KEY"
headers = { X-Org = "ORGANISATION" }
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "table.toml"
    path.write_text(TABLE)
    monkeypatch.setenv("BACKSTAY_CONFIG", str(path))
    for name in ("TEAM_KEY", "OTHER_KEY"):
        monkeypatch.setenv(name, "a-key-0123456789")
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return path


def options_of(*flags: str) -> ServiceOptions:
    ctx = serve.make_context("serve", list(flags))
    return _options(ctx, ctx.params, settings.load())


def test_the_service_has_all_providers_of_the_table_each_on_its_own_terms(config: Path) -> None:
    options = options_of()
    assert options.upstream is not None
    anthropic, openai = options.upstream.all
    assert (anthropic.api, anthropic.base_url, anthropic.key_env, anthropic.timeout_seconds) == (
        "anthropic",
        "http://127.0.0.1:9",
        "TEAM_KEY",
        30,
    )
    assert (openai.key_env, openai.headers_env) == ("OTHER_KEY", (("X-Org", "ORGANISATION"),))
    limits = PersonsLimits(60, None, 5, FurtherLimits(output_tokens_per_minute=4000))
    assert options.terms == {"anthropic": ProviderTerms(limits, 12_500_000)}


def test_the_table_on_the_page_is_valid(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [block for block in all_blocks() if block.page == "docs/settings.md" and block.kind == "toml"]
    config.write_text(block.text)
    for variable in ("TEAM_ANTHROPIC_KEY", "TEAM_NAME"):
        monkeypatch.setenv(variable, "a-value-0123456789")
    options = options_of()
    assert options.upstream is not None
    assert [end.api for end in options.upstream.all] == ["anthropic", "groq"]
    assert options.terms["anthropic"].budget_micros == 250_000_000
    rows = page_text("docs/settings.md").partition("## Providers")[2].partition("## Bounds")[0]
    assert [name for name in settings.ProviderSettings.model_fields if f"`{name}`" not in rows] == []


def test_a_flag_wins_over_the_table_and_may_choose_from_it(config: Path) -> None:
    options = options_of("--provider", "anthropic", "--rpm", "7", "--timeout", "5s", "--api-key-env", "OTHER_KEY")
    assert options.upstream is not None
    [only] = options.upstream.all
    assert (only.api, only.base_url, only.key_env, only.timeout_seconds) == (
        "anthropic",
        "http://127.0.0.1:9",
        "OTHER_KEY",
        5,
    )
    assert options.terms["anthropic"].limits.requests_per_minute == 7
    elsewhere = options_of("--base-url", "http://127.0.0.1:8/v1").upstream
    assert elsewhere is not None
    assert [end.base_url for end in elsewhere.all] == ["http://127.0.0.1:8/v1"], "an address alone is one provider"


def test_a_provider_of_the_table_without_its_key_is_refused_at_the_start(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEAM_KEY")
    with pytest.raises(UsageError, match="the environment variable TEAM_KEY is not set"):
        options_of()


def test_a_provider_may_have_its_own_breaker(config: Path) -> None:
    loaded = settings.load(flags={"circuit_fail_threshold": 0.25})
    assert loaded.breaker_policy("anthropic") == BreakerPolicy(
        window_calls=6, calls_min=6, open_ms=1000, fail_ratio=0.25
    )
    assert loaded.breaker_policy("openai") == loaded.breaker_policy() == BreakerPolicy(fail_ratio=0.25)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('api_key = "{}"', "there is no setting 'providers.groq.api_key'"),
        ('api_key_env = "{}"', "providers.groq.api_key_env: it must be the name of an environment variable"),
        ('headers = {{ Authorization = "{}" }}', "providers.groq.headers: it must be the name of"),
        ('base_url = "https://api.groq.com/openai/v1?token={}"', " key"),
    ],
)
def test_a_key_in_the_table_is_refused_and_not_repeated(config: Path, secret: str, table: str, said: str) -> None:
    config.write_text(f"[providers.groq]\n{table.format(secret)}\n")
    with pytest.raises(UsageError) as refused:
        options_of("--no-worker")
    assert said in refused.value.message
    assert secret not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize("command", [f'"echo {SECRETS[0]}"', f'["curl", "--token={SECRETS[1]}"]'])
def test_a_key_in_a_command_is_refused_and_not_repeated(config: Path, command: str) -> None:
    config.write_text(f"[providers.groq]\napi_key_command = {command}\n")
    with pytest.raises(UsageError, match="looks like an API key") as refused:
        settings.load()
    assert not any(secret in str(refused.value) for secret in SECRETS)


@pytest.mark.parametrize(
    ("table", "said", "hint"),
    [
        ("[providers.antropic]\nrpm = 5", "there is no provider 'antropic'", "anthropic"),
        ("[providers.groq]\nrpn = 5", "there is no setting 'providers.groq.rpn'", "did you mean rpm?"),
        ("[providers.groq]\nrpm = 0", "providers.groq.rpm: Input should be greater than", ""),
        ("providers = 3", "providers: Input should be a valid dictionary", ""),
    ],
)
def test_a_mistake_in_the_table_is_named_before_anything_is_sent(
    config: Path, sqlite_shell: Shell, table: str, said: str, hint: str
) -> None:
    config.write_text(table)
    ran = sqlite_shell("submit", file_of(sqlite_shell, "groq:m"))
    assert ran.code == 2
    assert said in ran.err
    assert hint in ran.err
    config.write_text("")
    assert "no jobs in" in sqlite_shell("jobs").err


def test_a_run_keeps_to_the_table_and_a_full_budget_holds_one_provider_only(
    sqlite_shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(key="team-key-0123456789") as (groq, groq_url), served() as (openai, openai_url):
        config.write_text(
            f'[providers.groq]\nbase_url = "{groq_url}"\napi_key_env = "TEAM_KEY"\nrpm = 600\nbudget = 0.000001\n'
            f'[providers.openai]\nbase_url = "{openai_url}"\n'
        )
        monkeypatch.setenv("TEAM_KEY", "team-key-0123456789")
        monkeypatch.setenv("OPENAI_API_KEY", "another-0123456789")
        path = file_of(sqlite_shell, "gpt-4o-mini", "groq:llama-3.3-70b-versatile")
        assert sqlite_shell("submit", path).code == 0
        assert sqlite_shell("tick").code == 0
        assert (openai.bill.charged, groq.bill.charged) == (1, 0)
        said = sqlite_shell("job", "show", "1").out
        assert f"could exceed the budget of all owners for requests to {groq_url.split('/')[2]}, per month" in said
        config.write_text(config.read_text().replace("0.000001", "1"))
        assert sqlite_shell("run", path).code == 0, "the same table with more money"
        assert (openai.bill.charged, groq.bill.charged) == (1, 1)
    assert len(results(sqlite_shell)) == 2
    with sqlite3.connect(sqlite_shell.url.removeprefix("sqlite:///")) as connection:
        paces = dict(connection.execute("SELECT provider, requests_per_minute FROM paces").fetchall())
        budgets = connection.execute("SELECT handler, period, limit_micros FROM budgets").fetchall()
    assert sorted(paces.values(), key=str) == [600, None]
    assert budgets == [(f"@{groq_url.split('/')[2]}", "month", 1_000_000)]


@pytest.mark.slow
def test_a_run_goes_on_at_the_others_when_the_budget_of_one_provider_is_full(
    sqlite_shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as (groq, groq_url), served() as (openai, openai_url):
        config.write_text(
            f'[providers.groq]\nbase_url = "{groq_url}"\nbudget = 0.000001\n'
            f'[providers.openai]\nbase_url = "{openai_url}"\nrpm = 120\n'
        )
        for name in ("GROQ_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.setenv(name, "a-key-0123456789")
        models = ["groq:llama-3.3-70b-versatile"] * 3 + ["gpt-4o-mini"] * 12
        ran = sqlite_shell("run", file_of(sqlite_shell, *models))
        assert (openai.bill.charged, groq.bill.charged) == (12, 0), ran.err
        assert len(results(sqlite_shell)) == 12
