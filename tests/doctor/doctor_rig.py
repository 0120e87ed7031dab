"""A set-up with everything that Backstay can have around it, all of it healthy until a fault is made."""

import os
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from backstay import wiring
from backstay.cli.doctor import Finding, Level
from backstay.cli.doctor.command import DoctorOptions, examine
from backstay.clock import Clock
from backstay.messaging.connection import connect_once
from backstay.messaging.messages import Topology
from backstay.messaging.queues import declare, open_channel
from backstay.store.store import Store
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.servers.redis import PrivateRedis
from tests.servers.s3 import BUCKET, PrivateS3

KEY = "sk-right-key-of-the-tests"
# They must never be seen: each is a secret of the healthy set-up.
SECRETS = {"BACKSTAY_SECRET_KEY": "canary-secret-key-" + "x" * 32, "OPENAI_API_KEY": KEY}


@dataclass(frozen=True)
class Servers:
    """What all tests of a module share; a fault that breaks one of them mends it again."""

    postgres: PrivatePostgres
    template: str
    rabbitmq: PrivateRabbitMQ
    redis: PrivateRedis
    s3: PrivateS3
    provider_url: str


@dataclass
class Ward:
    servers: Servers
    monkeypatch: pytest.MonkeyPatch
    folder: Path
    url: str
    prefix: str
    undo: AsyncExitStack
    clock: Clock = field(default_factory=Clock)
    base_url: str | None = None

    def set(self, **settings: str | Path | None) -> None:
        for name, value in settings.items():
            if value is None:
                self.monkeypatch.delenv(f"BACKSTAY_{name.upper()}")
            else:
                self.monkeypatch.setenv(f"BACKSTAY_{name.upper()}", str(value))

    async def store(self) -> Store:
        store = await wiring.open_store(self.url)
        self.undo.push_async_callback(store.close)
        return store

    @property
    def topology(self) -> Topology:
        return Topology(self.prefix)

    async def channel(self) -> Any:
        connection = await self.undo.enter_async_context(connect_once(self.servers.rabbitmq.url))
        return await open_channel(connection)

    def sql(self, text: str) -> str:
        return self.servers.postgres.execute(text, self.url.rpartition("/")[2])

    async def examined(self) -> list[tuple[str, Finding]]:
        return [found async for found in examine(DoctorOptions(base_url=self.base_url), self.clock)]

    async def ills(self) -> list[tuple[str, Finding]]:
        return [(check, finding) for check, finding in await self.examined() if finding.level is not Level.OK]


async def admitted(servers: Servers, monkeypatch: pytest.MonkeyPatch, folder: Path, undo: AsyncExitStack) -> Ward:
    for name in [name for name in os.environ if name.startswith(("BACKSTAY_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    url = servers.postgres.create_database(servers.template)
    undo.callback(servers.postgres.drop_database, url)
    ward = Ward(servers, monkeypatch, folder, url, servers.rabbitmq.prefix(), undo, base_url=servers.provider_url)
    ward.set(database_url=url, broker_url=servers.rabbitmq.url, broker_prefix=ward.prefix, redis_url=servers.redis.url)
    ward.set(data=f"s3://{BUCKET}/{ward.prefix}")
    for name, value in {**SECRETS, **servers.s3.environment}.items():
        monkeypatch.setenv(name, value)
    async with connect_once(servers.rabbitmq.url) as connection:
        assert await declare(connection, ward.topology.exchanges, ward.topology.fixed_queues) == []
    return ward


class _Provider(BaseHTTPRequestHandler):
    """Lists its models for who has the key; everything else would cost money, and is noted."""

    def do_GET(self) -> None:
        right = self.headers.get("authorization") == f"Bearer {KEY}"
        body = b'{"data": []}'
        self.send_response(200 if right else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.server.paid.append(self.path)  # type: ignore[attr-defined]
        self.send_error(500)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Provider) as server:
        paid: list[str] = []
        server.paid = paid  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
        assert paid == []
