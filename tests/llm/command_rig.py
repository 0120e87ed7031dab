"""`backstay run` as a process of its own, to a server that answers as the test says."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.house.sources import ROOT
from tests.llm.odd_servers import answer

REPLY = answer(
    json.dumps(
        {
            "id": "x",
            "model": "m",
            "choices": [{"message": {"role": "assistant", "content": "hi"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }
    )
)


class Ran(NamedTuple):
    code: int
    told: str
    results: list[dict[str, Any]]
    failures: list[dict[str, Any]]


async def run_command(folder: Path, url: str, lines: list[dict[str, Any]], *options: str, **environment: str) -> Ran:
    """Runs these lines with that base URL."""
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ("run", str(folder / "in.jsonl"), "--out", str(folder / "out.jsonl"), "--base-url", url)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "backstay",
        *arguments,
        "--db",
        f"sqlite:///{folder}/run.db",
        *options,
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    _, told = await process.communicate()
    results, failures = (_lines(folder / name) for name in ("out.jsonl", "out.errors.jsonl"))
    return Ran(process.returncode or 0, told.decode(), results, failures)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
