"""Files for the script of OpenAI's cookbook: metadata of any kind is not sent, and comes back with the reply."""

import json
from pathlib import Path

import pytest

from tests.llm.command_rig import REPLY, run_command
from tests.llm.odd_servers import OddServer, answer

REFUSAL = answer('{"error": {"message": "no", "type": "invalid_request_error"}}', 400)


def line(number: int, **more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": f"say {number}"}], **more}


async def test_metadata_comes_back_with_the_reply_and_is_not_sent(tmp_path: Path) -> None:
    kept = [{"row_id": 1}, {"path": ["a", 2.5], "ok": True}, None, {"all": "strings"}]
    lines = [line(n, metadata=each) for n, each in enumerate(kept)]
    async with OddServer(REPLY).serving() as server:
        ran = await run_command(tmp_path, f"{server.url}/v1", lines)
    assert ran.code == 0, ran.told
    assert {result["custom_id"]: result.get("metadata") for result in ran.results} == {
        f"request-{n}": each for n, each in enumerate(kept, 1)
    }
    assert {frozenset(json.loads(body)) for body in server.bodies} == {frozenset({"model", "messages"})}
    assert ["metadata" in result for result in sorted(ran.results, key=lambda one: one["custom_id"])] == [
        each is not None for each in kept
    ]


@pytest.mark.slow
async def test_metadata_comes_back_with_a_failure(tmp_path: Path) -> None:
    async with OddServer(REFUSAL).serving() as server:
        ran = await run_command(tmp_path, f"{server.url}/v1", [line(0, metadata={"row_id": 7})])
    assert (ran.code, [failure["metadata"] for failure in ran.failures]) == (3, [{"row_id": 7}])
