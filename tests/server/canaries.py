"""A service whose every secret is known to the test, among neighbours that repeat whatever they are sent."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg
from aiohttp import web

from backstay import Backstay
from backstay.clock import new_id
from backstay.store.keys import Role
from backstay.wiring import migrate
from tests.house.sources import ROOT
from tests.server.rig import Reply, Visitor
from tests.stories.runs import COMMAND

WAIT_SECONDS: Final = 60


def canary(kind: str) -> str:
    """It looks like no secret that anyone could know by its form, and is found wherever it turns up."""
    return f"{kind}{new_id()}"


def spellings(secret: str) -> list[bytes]:
    """As it is, and as base64 has it, wherever in a longer text it stood."""
    inside = [b64encode(b"." * skipped + secret.encode())[(skipped + 2) // 3 * 4 : -4] for skipped in range(3)]
    return [secret.encode(), *inside]


async def repeat(request: web.Request) -> web.StreamResponse:
    """A neighbour that says all it was sent with its refusal; the status is in the path or in the body."""
    body = await request.text()
    said = " ".join(f"{name} {value}" for name, value in request.headers.items())
    status = next((int(code) for code in ("401", "400") if code in body or code in request.path), 500)
    words = f"no: {request.headers.get('authorization', '').rpartition(' ')[2]} and {said}"
    return web.json_response({"error": {"message": words, "code": "refused"}}, status=status)


@asynccontextmanager
async def repeating() -> AsyncIterator[int]:
    """Gives its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", repeat)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@dataclass(slots=True)
class TaggedCallback:
    """All that came out of the service where a secret must not be."""

    secrets: dict[str, str]
    said: dict[str, bytes] = field(default_factory=dict)

    def leaks(self) -> list[str]:
        return [
            f"{name} in {where}: …{text[max(0, at - 150) : at + 20]!r}"
            for name, secret in self.secrets.items()
            for spelt in spellings(secret)
            for where, text in self.said.items()
            if (at := text.find(spelt)) >= 0
        ]


class Watched:
    """Asks, and keeps what was answered."""

    def __init__(self, visitor: Visitor, told: TaggedCallback) -> None:
        self._visitor = visitor
        self._told = told

    async def __call__(self, method: str, path: str, **given: Any) -> Reply:
        reply = await self._visitor(method, path, **given)
        head = "\n".join(f"{name}: {value}" for name, value in reply.headers.items())
        self._told.said[f"answer {len(self._told.said)}, {method} {path[:60]}"] = head.encode() + b"\n" + reply.body
        return reply

    async def shown_once(self, path: str, field_name: str, **given: Any) -> Reply:
        """An answer that is there to tell a secret, which from here on is told nowhere."""
        reply = await self._visitor(**given, path=path)
        assert reply.status in (200, 201), reply
        self._told.secrets[f"what {path} told"] = reply.json[field_name].removeprefix("whsec_")
        return reply

    async def until(self, path: str, fact: Callable[[Any], Any]) -> Any:
        async with asyncio.timeout(WAIT_SECONDS):
            while not fact(found := (await self("GET", path)).json):  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.05)
        return found


@asynccontextmanager
async def spoken_to(
    url: str, arguments: tuple[str, ...], environment: Mapping[str, str], told: TaggedCallback, port: int, log: Path
) -> AsyncIterator[Watched]:
    """`backstay serve` as a process; when the block ends it is stopped in order, and its log was kept."""
    await migrate(url)
    async with Backstay(url) as app:
        key = (await (await app.open()).store.keys.create("ada", Role.ADMIN)).text
    told.secrets["the key"] = key.split("_", 2)[2]
    command = [*COMMAND, "serve", "--port", str(port), "--require-key", "--log-level", "debug", *arguments]
    process = _start(command, environment, log)
    try:
        async with aiohttp.ClientSession() as session:
            await _lives(process, f"http://127.0.0.1:{port}/livez", session, log)
            yield Watched(Visitor(f"http://127.0.0.1:{port}", session, key), told)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, WAIT_SECONDS)
    finally:
        told.said["the log"] = _end(process, log)


def _start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as said:
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stdout=said, stderr=said)


def _end(process: "subprocess.Popen[bytes]", log: Path) -> bytes:
    """What it said in its life."""
    process.kill()
    process.wait()
    return log.read_bytes()


async def _lives(process: "subprocess.Popen[bytes]", url: str, session: aiohttp.ClientSession, log: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while process.poll() is None:
            try:
                async with session.get(url) as answer:
                    assert answer.status == 200
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
    raise AssertionError(_end(process, log))


async def dump(url: str) -> dict[str, bytes]:
    """Every row of every table, as text."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as found:
            tables = [row[0] for row in found.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                f"table {name}": repr(found.execute(f"SELECT * FROM {name}").fetchall()).encode() for name in tables
            }
    connection = await asyncpg.connect(url)
    try:
        tables = [
            row[0] for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        rows = {name: await connection.fetch(f'SELECT CAST(t AS text) FROM "{name}" AS t') for name in tables}
        return {f"table {name}": "\n".join(row[0] for row in found).encode() for name, found in rows.items()}
    finally:
        await connection.close()


def form(name: str, content: bytes, **fields: str) -> aiohttp.FormData:
    made = aiohttp.FormData(fields)
    made.add_field("file", content, filename=name)
    return made


def line(number: int, words: str) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    request = {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(request).encode() + b"\n"
