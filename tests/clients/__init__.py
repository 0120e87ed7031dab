"""Older majors of official clients, each in a folder of its own under build/, installed once."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build"
INSTALL_SECONDS = 300
VISIT_SECONDS = 120
NEWEST = {"anthropic": 2, "openai": 3}  # those that everything else is tested with


def python_path(client: str, major: int) -> str:
    """What PYTHONPATH must be so that an import of the client gives that major."""
    if major == NEWEST[client]:
        return ""
    name = f"{client}-{major}"
    requirements, folder = HERE / f"{name}.txt", BUILD / name
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes run tests at once
        stamp = folder / "installed"
        digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
        if not stamp.exists() or stamp.read_text() != digest:
            _install(requirements, folder)
            stamp.write_text(digest)
    return str(folder)


async def visit(script: Path, client: str, major: int, *arguments: str) -> dict[str, Any]:
    """Runs a program that uses the client, and returns what it saw."""
    path = await asyncio.to_thread(python_path, client, major)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        *arguments,
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(VISIT_SECONDS):
        said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    seen: dict[str, Any] = json.loads(said)
    assert seen.pop("version").startswith(f"{major}.")
    return seen


def _install(requirements: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    command += ["--target", str(folder), "--requirement", str(requirements)]
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS, env={**os.environ, "PYTHONPATH": ""})
