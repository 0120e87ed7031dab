"""`backstay serve` as a process of its own, and what one needs to talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backstay import Backstay
from backstay.store.keys import Role
from backstay.wiring import migrate
from bench.probes import NotMeasured
from bench.servers import free_port

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS_MAX = 60.0
UNLIMITED = 1_000_000_000


@dataclass(frozen=True)
class Served:
    url: str
    key: str
    process: subprocess.Popen[bytes]

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise NotMeasured(f"{method} {path}: {error.code} {error.read(300).decode()}") from error

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024


@contextlib.contextmanager
def served(database_url: str, folder: Path, arguments: Sequence[str] = ()) -> Iterator[Served]:
    """The service on a database, until the block ends; it has one key, of an admin."""
    key = asyncio.run(_key(database_url))
    port = free_port()
    command = [sys.executable, "-m", "backstay", "serve", "--db", database_url, "--port", str(port)]
    environment = {
        **{"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "OPENAI_API_KEY": "bench"},
        **{"PYTHONPATH": str(ROOT), "BACKSTAY_RATE_LIMIT_PER_MINUTE": str(UNLIMITED)},
        **{"BACKSTAY_DATA": str(folder / "data"), "BACKSTAY_SECRET_KEY": "b" * 32},
    }
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _wait_until_it_lives(process, port, folder / "serve.log")
        yield Served(f"http://127.0.0.1:{port}", key, process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _key(database_url: str) -> str:
    await migrate(database_url)
    async with Backstay(database_url) as app:
        client = await app.open()
        return (await client.store.keys.create(client.owner, Role.ADMIN)).text


def _wait_until_it_lives(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up_at = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < give_up_at and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5):
            return
        time.sleep(0.02)
    said = log.read_text(errors="replace").strip().splitlines()
    raise NotMeasured("the service did not start: " + (said[-1] if said else "it said nothing"))
