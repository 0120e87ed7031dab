"""The setting `http`: the own client for calls, or aiohttp for everything."""

import json
from pathlib import Path

import pytest

from backstay.core.errors import UsageError
from backstay.settings import load
from tests.llm.command_rig import REPLY, run_command
from tests.llm.odd_servers import OddServer, answer
from tests.llm.wire_rig import CHAT, OK, wired

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
THROTTLED = answer('{"error": {"message": "later"}}', 429, retry_after="0.1")


def is_of_aiohttp(head: str) -> bool:
    """The own client writes the names of headers in small letters."""
    return "\r\nHost: " in head


@pytest.mark.slow
@pytest.mark.parametrize("http", ["own", "aiohttp"])
async def test_a_run_makes_its_calls_over_the_client_that_is_set(tmp_path: Path, http: str) -> None:
    lines = [{"custom_id": f"r{n}", "method": "POST", "url": CHAT, "body": BODY} for n in range(3)]
    async with OddServer(THROTTLED, REPLY).serving() as server:
        ran = await run_command(tmp_path, f"{server.url}/v1", lines, BACKSTAY_HTTP=http)
    assert ran.code == 0, ran.told
    assert sorted(line["custom_id"] for line in ran.results) == ["r0", "r1", "r2"]
    assert {line["response"]["body"]["id"] for line in ran.results} == {"x"}
    assert {is_of_aiohttp(head) for head in server.heads} == {http == "aiohttp"}
    assert [json.loads(body) for body in server.bodies] == [BODY] * 4, "one was refused, and sent again"


@pytest.mark.parametrize("http", ["own", "aiohttp"])
async def test_all_that_a_wire_asks_goes_over_the_client_that_is_set(http: str) -> None:
    async with wired(OK, http=http) as (wire, server):
        await wire.post(CHAT, "{}", 5, ref="ref-1")
        await wire.get("/v1/models")
        await wire.delete("/v1/files/x")
    assert [head.split(" ")[0] for head in server.heads] == ["POST", "GET", "DELETE"]
    assert [is_of_aiohttp(head) for head in server.heads] == [http == "aiohttp"] * 3
    assert server.header("x-client-request-id") == "ref-1"


def test_a_client_that_there_is_not_is_refused_by_name() -> None:
    assert load(environ={"BACKSTAY_HTTP": "aiohttp"}).http == "aiohttp"
    with pytest.raises(UsageError, match="setting http") as caught:
        load(environ={"BACKSTAY_HTTP": "curl"})
    assert "BACKSTAY_HTTP" in str(caught.value.hint)
