"""The proxy that the environment names: which one is taken, for which hosts, and what it is shown."""

import aiohttp
import pytest

from backstay.core.errors import ProviderHeld, Transient, UsageError
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from tests.llm.odd_servers import OddServer, answer
from tests.llm.wire_rig import CHAT, KEY, OK, free_port, wire_to, wired


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
async def test_the_proxy_of_the_environment_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with OddServer(OK).serving() as proxy:
        monkeypatch.setenv(name, proxy.url.replace("http://", "http://me:p%40ss@"))
        async with wire_to("http://api.example/v1") as wire:
            for _ in range(2):
                assert (await wire.post(CHAT, "{}", 5)).status == 200
    assert proxy.targets == ["http://api.example/v1/chat/completions"] * 2
    assert proxy.header("authorization", 1) == f"Bearer {KEY}"
    assert proxy.header("proxy-authorization", 1) == aiohttp.encode_basic_auth("me", "p@ss")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_proxy_of_the_scheme_wins_over_that_for_all(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with OddServer(answer("", 502)).serving() as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy.url)
        monkeypatch.setenv("all_proxy", f"socks5://127.0.0.1:{free_port()}")
        async with wire_to(f"{scheme}://api.example/v1") as wire:
            if scheme == "http":
                assert (await wire.post(CHAT, "{}", 5)).status == 502
            else:
                with pytest.raises(Transient):
                    await wire.post(CHAT, "{}", 5)
    assert len(proxy.requests) == 1


async def test_a_proxy_of_another_scheme_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{free_port()}")
    async with wired(OK) as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).status == 200


@pytest.mark.parametrize("name", ["http_proxy", "all_proxy"])
@pytest.mark.parametrize("excepted", ["127.0.0.1", "x.example, 127.0.0.1", "*"])
async def test_a_proxy_is_not_used_for_hosts_that_the_environment_excepts(
    name: str, excepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("NO_PROXY", excepted)
    async with wired(OK) as (wire, _):
        assert (await wire.post(CHAT, "{}", 5)).status == 200


@pytest.mark.parametrize(("status", "error"), [(407, ProviderHeld), (502, Transient)])
@pytest.mark.parametrize("login", ["", "me:pw@"])
async def test_a_proxy_that_builds_no_tunnel_does_not_see_the_key(
    login: str, status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OddServer(answer("", status)).serving() as proxy:
        monkeypatch.setenv("all_proxy", proxy.url.replace("http://", f"http://{login}"))
        async with wire_to("https://api.example/v1") as wire:
            with pytest.raises(error):
                await wire.post(CHAT, "{}", 5)
    assert proxy.heads[0].startswith("CONNECT api.example:443 ")
    assert proxy.header("proxy-authorization") == (aiohttp.encode_basic_auth("me", "pw") if login else None)
    assert KEY not in proxy.heads[0]


@pytest.mark.parametrize("name", ["https_proxy", "all_proxy"])
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("socks5://me:hush-hush@127.0.0.1:9", "a SOCKS proxy"),
        ("socks5h://127.0.0.1:9", "a SOCKS proxy"),
        ("http://", "an invalid proxy URL"),
        ("http://[::1", "an invalid proxy URL"),
        ("ftp://127.0.0.1:9", "an invalid proxy URL"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_named_at_once(
    name: str, named: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, named)
    with pytest.raises(UsageError, match=f"{name}.*{said}.*only HTTP proxies") as caught:
        await Wire(Endpoint("https://api.example/v1"), KEY, 1).open()
    assert "http://" in str(caught.value.hint)
    assert "hush" not in f"{caught.value} {caught.value.hint}"
