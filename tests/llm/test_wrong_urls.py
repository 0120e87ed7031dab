"""A base URL that is not the right one: said before anything is sent, or else beside each failure."""

from pathlib import Path

import pytest

from tests.llm.command_rig import REPLY, run_command
from tests.llm.odd_servers import OddServer, answer
from tests.llm.wire_rig import CHAT

REFUSED = 9
LINES = [{"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "m", "messages": []}}]


async def test_a_base_url_with_the_path_of_an_endpoint_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    async with OddServer(REPLY).serving() as server:
        ran = await run_command(tmp_path, f"{server.url}/v1/chat/completions", LINES)
    assert (ran.code, server.requests) == (2, [])
    assert f"give {server.url}/v1" in ran.told


@pytest.mark.slow
async def test_a_redirect_stands_in_the_errors_with_its_target_and_what_to_check(tmp_path: Path) -> None:
    for target in ("https://other.example/v1/chat", "/elsewhere/chat/"):
        (folder := tmp_path / target.strip("/").replace("/", "-")).mkdir()
        async with OddServer(answer("", 307, location=target)).serving() as server:
            ran = await run_command(folder, f"{server.url}/v1", LINES)
        assert (ran.code, ran.failures) == (REFUSED, [])
        assert f"redirects to {target}, " in ran.told
        (folder / "again").mkdir()
        async with OddServer(answer("", 307, location=target)).serving() as server:
            ran = await run_command(folder / "again", f"{server.url}/v1", LINES, "--wait")
        [failure] = ran.failures
        assert (ran.code, failure["response"]["status_code"]) == (3, 307)
        assert f"redirects to {target}, " in failure["error"]["message"]
        assert "check the base URL" in failure["error"]["message"]


async def test_an_unknown_path_is_named_in_the_summary(tmp_path: Path) -> None:
    refusal = answer('{"error": {"message": "Invalid URL (POST /v2/chat)", "code": "unknown_url"}}', 404)
    async with OddServer(refusal).serving() as server:
        ran = await run_command(tmp_path, f"{server.url}/v2", LINES)
    assert (ran.code, ran.failures) == (REFUSED, [])
    assert "Invalid URL (POST /v2/chat)" in ran.told
