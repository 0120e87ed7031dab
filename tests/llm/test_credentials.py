"""The key goes where it should and is seen nowhere else: not in errors, logs or replies, and not by a proxy."""

import logging
import time
import traceback

import pytest

from backstay.core.errors import HandlerError, UsageError
from backstay.llm.endpoint import Endpoint, Veil, account_of, key_of
from backstay.llm.http.wire import Wire
from tests.llm.odd_servers import Answer, OddServer, answer, hangs_up
from tests.llm.wire_rig import CHAT, KEY, OK, wire_to, wired


@pytest.mark.parametrize("key", ["sk-a\nb", "sk a", "sk-é", "sk-a\r", " sk-a", "sk-\x00"])
def test_a_key_with_a_character_that_no_key_has_is_refused_in_one_line_that_does_not_show_it(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        key_of(Endpoint("http://x/v1", key_env="MY_KEY"), {"MY_KEY": key})
    assert "MY_KEY" in str(caught.value)
    assert key not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_key_comes_from_the_variable_that_the_endpoint_names() -> None:
    endpoint = Endpoint("http://x/v1", key_env="MY_KEY")
    assert key_of(endpoint, {"MY_KEY": KEY}) == KEY
    assert key_of(endpoint, {"MY_KEY": ""}) is None
    assert key_of(endpoint, {}) is None


def test_an_account_tells_keys_apart_and_gives_none_away() -> None:
    assert len({account_of(KEY), account_of(KEY + "x"), account_of(None)}) == 3
    assert KEY[3:9] not in account_of(KEY)


async def test_further_headers_come_from_the_environment_and_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORG", "org-1")
    monkeypatch.setenv("AUTH", "Token abc")
    headers = (("OpenAI-Organization", "ORG"), ("Authorization", "AUTH"))
    async with wired(OK, headers_env=headers) as (wire, server):
        await wire.post(CHAT, "{}", 5)
    assert server.header("openai-organization") == "org-1"
    assert server.header("authorization") == "Token abc"


@pytest.mark.parametrize(
    ("name", "value"),
    [("X-A", None), ("X-A", "a\nb: c"), ("X-A", "é"), ("X A", "a"), ("X:A", "a"), ("", "a"), ("Content-Length", "3")],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(
    name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VALUE", raising=False)
    if value is not None:
        monkeypatch.setenv("VALUE", value)
    with pytest.raises(UsageError) as caught:
        Wire(Endpoint("http://x/v1", headers_env=((name, "VALUE"),)), KEY, 1)
    assert len(str(caught.value).splitlines()) == 1


async def test_azure_also_gets_the_key_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OddServer(OK).serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with wire_to("http://mine.openai.azure.com/openai/v1") as wire:
            await wire.post(CHAT, "{}", 5)
    assert (proxy.header("api-key"), proxy.header("authorization")) == (KEY, f"Bearer {KEY}")


@pytest.mark.parametrize("odd", [hangs_up, b"SSH\r\n\r\n", answer(KEY, 401), answer(KEY, 200, x_request_id=KEY)])
async def test_the_key_is_nowhere_to_be_seen(odd: bytes | Answer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    async with wired(odd) as (wire, server):
        shown.append(repr(wire))
        try:
            shown.append(repr(await wire.post(CHAT, "{}", 5)))
        except HandlerError as error:
            shown += [*traceback.format_exception(error), repr(error.__cause__)]
        assert server.header("authorization") == f"Bearer {KEY}"
    assert KEY not in "".join(shown) + caplog.text


async def test_a_short_key_is_a_word_like_any_other() -> None:
    async with wired(answer('{"a":"EMPTY"}'), key="EMPTY") as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).text == '{"a":"EMPTY"}'


def test_a_secret_is_veiled_also_as_some_write_it_in_json() -> None:
    veil = Veil(["Zm9v/YmFy", "short"])
    assert veil.over(r'{"error": "bad key Zm9v\/YmFy, or Zm9v/YmFy"}') == '{"error": "bad key <secret>, or <secret>"}'
    assert veil.over("a short word") == "a short word"


@pytest.mark.parametrize(
    "written",
    [r"\u0073\u006b\u002DZm9v/YmFy", r"sk-Zm9v\u002fYmFy", r"sk\u002dZm9v\/YmFy", r"sk\\u002dZm9v/YmFy"],
)
def test_a_secret_is_veiled_also_where_its_characters_are_written_by_their_numbers(written: str) -> None:
    veiled = Veil(["sk-Zm9v/YmFy"]).over(f'{{"error": "no {written}, \\u00e9"}}')
    assert veiled == '{"error": "no <secret>, \\u00e9"}'


def test_a_secret_with_quotes_is_veiled_also_as_json_writes_it() -> None:
    assert Veil(['say "please"']).over(r'{"error": "say \"please\" or \u0073ay \"please\""}') == (
        '{"error": "<secret> or <secret>"}'
    )


def test_many_escapes_do_not_hold_up_the_veil() -> None:
    began = time.monotonic()
    text = "\\" * 1_000_000 + "\\u00e9" * 100_000
    assert Veil(["sk-0123456789"]).over(text) == text
    assert time.monotonic() - began < 2
