"""What the page about dead letters prints is run as it stands, in its order."""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from backstay import Backstay, ErrorCode, Permanent
from backstay.settings import Settings
from tests.house.sources import ROOT
from tests.stories.test_pages import environment
from tests.stories.test_service_docs import commands

__all__ = ["environment"]
PAGE = (ROOT / "docs" / "dead-letters.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS_MAX = 60


async def fail_five(url: str) -> None:
    async with Backstay(url) as app:

        @app.handler()
        async def convert(item: int) -> None:
            raise Permanent("no such page", ErrorCode.GW_4XX)

        for pages in ([1, 2, 3], [4, 5]):
            await app.submit(convert, pages)
        await app.tick()


@pytest.mark.slow
def test_the_commands_of_the_page_run_in_their_order(tmp_path: Path, environment: dict[str, str]) -> None:
    asyncio.run(fail_five(f"sqlite:///{tmp_path}/work.db"))
    typed = [command for kind, block in BLOCK.findall(PAGE) if kind == "sh" for command in commands(block)]
    said = ""
    for command in typed:
        if command.startswith("export "):
            environment |= dict([command.removeprefix("export ").split("=", 1)])
            continue
        if "--older-than" in command:
            command = f"while {command} | grep -q '^0 items'; do sleep 0.1; done"  # until they are as old as that
        ran = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        said += ran.stdout
    for told in ("GW_4XX  5", "1 item is queued again (replay 1)", "2 items are archived", "2 items are back"):
        assert told in said
    assert said.count("backstay dead letters") == 1


def test_the_page_says_the_defaults() -> None:
    table = dict(re.findall(r"^\| `(dead_letter_\w+)` \| (\d+) \|", PAGE, re.MULTILINE))
    own = {name: str(field.default) for name, field in Settings.model_fields.items() if name.startswith("dead_letter_")}
    assert table == own
