"""Without a key only who sits at this machine comes in: no page of another site, and nobody through a proxy."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from backstay.server.service import ServiceOptions
from tests.server.rig import Rig, rigged


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data", options=ServiceOptions(works=False, open_here=True)) as made:
        yield made


@pytest.mark.parametrize("said", [{}, {"sec-fetch-site": "none"}, {"host": "localhost"}, {"host": "[::1]:80"}], ids=str)
async def test_who_sits_here_needs_no_key(rig: Rig, said: dict[str, str]) -> None:
    assert (await rig.holder(None).get("/api/jobs", headers=said)).status == 200


async def test_its_own_page_needs_no_key(rig: Rig) -> None:
    said = {"origin": rig.url, "sec-fetch-site": "same-origin"}
    assert (await rig.holder(None).get("/api/jobs", headers=said)).status == 200


@pytest.mark.parametrize(
    "said",
    [
        {"host": "evil.example"},
        {"host": "localhost.evil.example:8000"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:1"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"x-forwarded-for": "127.0.0.1"},
        {"x-forwarded-host": "localhost"},
        {"x-forwarded-proto": "https"},
        {"x-real-ip": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
        {"cf-connecting-ip": "127.0.0.1"},
        {"x-forwarded": "for=127.0.0.1"},
        {"x-original-forwarded-for": "127.0.0.1"},
        {"x-original-host": "localhost"},
        {"x-cluster-client-ip": "127.0.0.1"},
        {"x-envoy-external-address": "127.0.0.1"},
        {"x-azure-clientip": "127.0.0.1"},
        {"fastly-client-ip": "127.0.0.1"},
        {"fly-client-ip": "127.0.0.1"},
        {"cf-ray": "230b030023ae2822-SJC"},
        {"cdn-loop": "cloudflare"},
        {"x-arr-log-id": "1"},
        {"x-proxyuser-ip": "127.0.0.1"},
        {"tailscale-user-login": "ada@example.com"},
        {"proxy-connection": "keep-alive"},
        {"max-forwards": "10"},
        {"authorization": f"Bearer bks_{'0' * 12}_{'x' * 43}"},
    ],
    ids=str,
)
async def test_another_site_a_proxy_and_a_wrong_key_are_refused(rig: Rig, said: dict[str, str]) -> None:
    assert (await rig.holder(None).get("/api/jobs", headers=said)).status == 401
    assert (await rig.holder(None).post("/api/jobs", json={}, headers=said)).status == 401


@pytest.mark.parametrize(("version", "status"), [("1.1", 200), ("1.0", 401)])
async def test_http_1_0_is_how_plain_proxies_speak_and_nobody_else(rig: Rig, version: str, status: int) -> None:
    """nginx by itself sends no header that tells of the client, and its own address as the host."""
    parts = urlsplit(rig.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET /api/jobs HTTP/{version}\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
    assert int((await reader.readline()).split()[1]) == status
    writer.close()


async def test_no_key_is_not_enough_where_the_service_is_not_open(sqlite_file_url: str, tmp_path: Path) -> None:
    async with rigged(sqlite_file_url, tmp_path / "data", options=ServiceOptions(works=False)) as shut:
        assert (await shut.holder(None).get("/api/jobs")).status == 401
