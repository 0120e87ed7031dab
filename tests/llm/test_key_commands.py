"""Keys that run out: fetched by a command or a library, renewed in time, and never seen."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from backstay.clock import Clock
from backstay.core.errors import Throttled, UsageError
from backstay.llm import credentials
from backstay.llm.credentials import Credentials, Token, credentials_for, read_output, source_of
from backstay.llm.endpoint import Endpoint, account_of
from backstay.settings import Settings
from tests.llm.odd_servers import OddServer, answer
from tests.llm.wire_rig import CHAT, OK, wire_to

KEY = "sk-first-0123456789"
NEXT = "sk-second-0123456789"


class HandClock(Clock):
    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)


class Source:
    """Gives these in turn; an error is raised."""

    def __init__(self, *gives: Token | Exception) -> None:
        self.gives = list(gives)
        self.calls = 0

    def __call__(self) -> Token:
        self.calls += 1
        given = self.gives.pop(0) if len(self.gives) > 1 else self.gives[0]
        if isinstance(given, Exception):
            raise given
        return given


def kept(*gives: Token | Exception, minutes: float = 15) -> tuple[Credentials, Source, HandClock]:
    source, clock = Source(*gives), HandClock()
    return Credentials("test", source, minutes, clock), source, clock


@pytest.mark.parametrize(
    ("said", "token"),
    [
        (f"{KEY}\n", Token(KEY)),
        (f"\n  {KEY}  \nsecond line\n", Token(KEY)),
        (json.dumps({"key": KEY}), Token(KEY)),
        (json.dumps({"key": KEY, "expires_at": 1_900_000_000}), Token(KEY, 1_900_000_000)),
        (json.dumps({"key": KEY, "expires_at": "2030-03-17T17:46:40Z"}), Token(KEY, 1_900_000_000)),
        (json.dumps({"key": KEY, "expires_at": "2030-03-17T19:46:40+02:00"}, indent=1), Token(KEY, 1_900_000_000)),
    ],
)
def test_a_command_prints_the_key_alone_or_with_its_end(said: str, token: Token) -> None:
    assert read_output(said) == token


@pytest.mark.parametrize(
    "said", ['{"key"', '{"key": null}', '{"token": "hush-hush"}', '{"key": "hush-hush", "expires_at": "soon"}']
)
def test_output_that_is_not_valid_is_refused_and_not_shown(said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_output(said)
    assert "hush" not in str(caught.value)


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    script = "import sys; print(sys.argv[1])"
    for command in (f"{sys.executable} -c '{script}' '$HOME;`id`'", [sys.executable, "-c", script, "$HOME;`id`"]):
        assert source_of(command)() == Token("$HOME;`id`")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; print('sk-hidden-1234567890'); sys.exit('log in first')", "exit code 1: log in first"),
        ("print('')", "printed no key"),
        ("print('two words')", "printed no key"),
        ("import time; time.sleep(60)", "did not end within 0.2 s"),
    ],
)
async def test_a_command_that_gives_no_key_is_one_clear_line(
    script: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "COMMAND_SECONDS", 0.2 if "sleep" in script else 20)
    with pytest.raises(UsageError) as caught:
        await Credentials("test", source_of([sys.executable, "-c", script]), 15).require()
    assert words in str(caught.value)
    assert "sk-hidden" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("command", ["/nowhere/to/be/found", "'open", "", []])
async def test_a_command_that_cannot_be_run_is_one_clear_line(command: Any) -> None:
    with pytest.raises(UsageError, match="the API key command"):
        await Credentials("test", source_of(command), 15).require()


async def test_a_key_is_renewed_before_its_end_while_requests_go_on_with_the_old_one() -> None:
    held, source, clock = kept(Token(KEY, 1_000_400), Token(NEXT, 1_009_000))
    await held.require()
    clock.seconds += 299
    assert (held.current(), source.calls) == (KEY, 1)
    clock.seconds += 2  # a quarter of its life is left
    assert held.current() == KEY
    await renewed(held)
    assert (held.current(), source.calls) == (NEXT, 2)


async def test_a_key_without_an_end_is_renewed_after_the_minutes_of_the_setting() -> None:
    held, source, clock = kept(Token(KEY), Token(NEXT), minutes=2)
    await held.require()
    clock.seconds += 119
    assert (held.current(), source.calls) == (KEY, 1)
    clock.seconds += 2
    held.current()
    await renewed(held)
    assert held.current() == NEXT


async def test_while_renewal_fails_the_old_key_serves_until_its_end_and_then_requests_wait() -> None:
    held, source, clock = kept(Token(KEY, 1_000_100), UsageError("vault is sealed"), Token(NEXT, 1_009_000))
    told: list[str] = []
    held.on_failure = told.append
    await held.require()
    clock.seconds += 80
    assert held.current() == KEY
    await renewed(held)
    assert (held.current(), told, held.problem) == (KEY, ["vault is sealed"], None)
    clock.seconds = 1_000_100
    with pytest.raises(Throttled, match=r"being fetched|vault is sealed"):
        held.current()
    await renewed(held)
    assert (held.current(), source.calls) == (NEXT, 3)


async def test_a_failing_command_is_not_run_for_every_request() -> None:
    held, source, clock = kept(UsageError("vault is sealed"))
    for _ in range(50):
        await held.wait()
        with pytest.raises(Throttled, match=r"vault is sealed|being fetched"):
            held.current()
    assert source.calls == 1
    assert held.problem == "waiting for an API key: vault is sealed"
    clock.seconds += 5.1
    await held.wait()
    assert source.calls == 2


async def test_a_refused_key_is_renewed_once_and_a_second_refusal_counts() -> None:
    """Among many calls with the old key, one renewal is enough."""
    clock_ends = time.time() + 3600
    source = Source(Token(KEY, clock_ends), Token(NEXT, clock_ends))
    held = Credentials("test", source, 15)
    await held.require()
    refused = answer('{"error":{"message":"expired"}}', 401)
    async with OddServer(refused, OK, refused).serving() as server, wire_to(f"{server.url}/v1", key=held) as wire:
        waits: list[float] = []
        wire.on_missing_key = waits.append
        with pytest.raises(Throttled, match="refused the API key"):
            await wire.post(CHAT, "{}", 5)
        await held.wait()
        assert (await wire.post(CHAT, "{}", 5)).status == 200
        assert server.header("authorization", -1) == f"Bearer {NEXT}"
        assert held.refuse(KEY)  # a late answer to the old key
        assert (await wire.post(CHAT, "{}", 5)).status == 401
    assert source.calls == 2


async def test_every_kind_of_request_has_the_new_key_and_no_reply_shows_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, _, clock = kept(Token(KEY), Token(NEXT), minutes=1)
    await held.require()
    echo = answer(json.dumps({"said": [KEY, NEXT]}))
    async with OddServer(echo).serving() as server, wire_to(f"{server.url}/v1", key=held) as wire:
        with (tmp_path / "a").open("w+b") as file:
            await wire.upload("/v1/files", {}, "a", file)
        clock.seconds += 61
        held.current()
        await renewed(held)
        replies = [await wire.post(CHAT, "{}", 5), await wire.get("/v1/models")]
        assert server.header("authorization", -1) == f"Bearer {NEXT}"
        with (tmp_path / "a").open("w+b") as file:
            replies.append(await wire.upload("/v1/files", {}, "a", file))
        assert server.header("authorization", -1) == f"Bearer {NEXT}"
        with (tmp_path / "b").open("w+b") as into:
            await wire.download("/v1/files/x/content", into, 1000)
        assert server.header("authorization", -1) == f"Bearer {NEXT}"
    assert [reply.text for reply in replies] == ['{"said": ["<secret>", "<secret>"]}'] * 3


async def test_without_a_key_nothing_is_sent_and_nothing_more_is_claimed() -> None:
    held, _, _ = kept(UsageError("vault is sealed"))
    async with OddServer(OK).serving() as server, wire_to(f"{server.url}/v1", key=held) as wire:
        waits: list[float] = []
        wire.on_missing_key = waits.append
        await held.wait()
        with pytest.raises(Throttled, match="vault is sealed"):
            await wire.post(CHAT, "{}", 5)
        assert server.requests == []
    assert waits == [pytest.approx(5, abs=0.1)]


def given(**settings: Any) -> Settings:
    return Settings(**settings)


def test_a_command_named_for_the_provider_wins_and_a_plain_one_is_for_one_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OTHER_KEY", raising=False)
    here, there = Endpoint("https://a.example/v1", key_env="OTHER_KEY"), Endpoint("https://b.example", key_env="NONE")
    ours, command = Endpoint("https://api.openai.com/v1"), f"print-key {tmp_path}"
    assert isinstance(credentials_for(ours, given(api_key_command={"openai": command}), os.environ), Credentials)
    assert credentials_for(ours, given(api_key_command={"anthropic": command}), os.environ) == KEY
    plain = given(api_key_command=command)
    assert credentials_for(ours, plain, os.environ) == KEY
    found = credentials_for(here, plain, os.environ)
    assert isinstance(found, Credentials)
    assert credentials_for(here, plain, os.environ) is found
    with pytest.raises(UsageError, match=r"used for a\.example, so its keys are not sent to b\.example"):
        credentials_for(there, plain, os.environ)
    with pytest.raises(UsageError, match="no provider 'opnai'"):
        credentials_for(ours, given(api_key_command={"opnai": command}), os.environ)


def test_the_table_of_providers_may_name_a_command_and_the_setting_wins_over_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ours, one, other = Endpoint("https://api.openai.com/v1"), f"print-key {tmp_path}", f"print-another {tmp_path}"
    table = {"openai": {"api_key_command": one}, "groq": {"api_key_command": other}}
    accounts = [
        found.account
        for settings in (given(providers=table), given(providers=table, api_key_command={"openai": other}))
        if isinstance(found := credentials_for(ours, settings, os.environ), Credentials)
    ]
    assert accounts == [account_of(json.dumps(one)), account_of(json.dumps(other))]
    assert (
        credentials_for(
            Endpoint("https://api.mistral.ai/v1", key_env="NONE", api="mistral"), given(providers=table), os.environ
        )
        is None
    )


async def test_google_tokens_come_from_the_default_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth")
    token = json.dumps({"access_token": "ya29.token-0123456789", "expires_in": 3600, "token_type": "Bearer"})
    async with OddServer(answer(token, content_type="application/json")).serving() as server:
        account = {"type": "service_account", "client_email": "a@b.example", "private_key": _private_key()}
        file = tmp_path / "account.json"
        file.write_text(json.dumps({**account, "token_uri": f"{server.url}/token", "project_id": "p"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        held = Credentials("test", source_of("google-auth"), 15)
        await held.require()
    assert held.current() == "ya29.token-0123456789"
    assert time.time() + 3000 < held._renew_at < time.time() + 3400


async def test_azure_tokens_come_from_the_managed_identity_and_are_sent_as_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("azure.identity")
    jwt = "eyJhbGciOi.eyJhdWQiOi.c2lnbmF0dXJl"
    token = json.dumps({"access_token": jwt, "expires_on": str(int(time.time()) + 3600), "token_type": "Bearer"})
    async with OddServer(answer(token, content_type="application/json")).serving() as server:
        for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "hush")
        held = Credentials("test", source_of("azure-identity"), 15)
        await held.require()
    assert held.current() == jwt


def test_azure_without_credentials_is_one_error_and_prints_nothing_itself() -> None:
    pytest.importorskip("azure.identity")
    asks = "from backstay.llm.credentials import source_of; source_of('azure-identity')()"
    surroundings = {"PATH": os.environ["PATH"], "AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential"}
    ran = subprocess.run([sys.executable, "-c", asks], env=surroundings, capture_output=True, text=True, check=False)
    assert "ClientAuthenticationError" in ran.stderr
    assert ran.stderr.startswith("Traceback"), ran.stderr


async def test_azure_gets_a_token_as_a_bearer_and_a_key_in_its_own_header() -> None:
    jwt = "eyJhbGciOi.eyJhdWQiOi.c2lnbmF0dXJl"
    for key, headers in ((jwt, (f"Bearer {jwt}", None)), (KEY, (None, KEY))):
        async with OddServer(OK).serving() as server, wire_to(server.url, key=key, api="azure") as wire:
            await wire.post(CHAT, "{}", 5)
        assert (server.header("authorization"), server.header("api-key")) == headers


async def renewed(held: Credentials) -> None:
    """Waits for the renewal under way."""
    assert held._renewing is not None
    await held._renewing


def _private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    shape = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*shape).decode()
