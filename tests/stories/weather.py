"""Everything that a fleet on a broker can meet: each server killed, each link cut, each kind of process killed."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from backstay import wiring
from tests.servers.fault_proxy import FaultProxy
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.servers.redis import PrivateRedis
from tests.stories.stage import Stage

CONCURRENCY = 16
WORKERS = 2
RELAYS = 2
CUT_SECONDS = (0.3, 1.5)
# From a provider's answer to its commit; a fault just after the answer leaves it uncommitted.
MARGIN_SECONDS = 3.0


class Gust(NamedTuple):
    """One fault: what it was, and from when until when it lasted."""

    what: str
    start: float
    end: float

    def may_have_cut(self, began: float, ended: float | None) -> bool:
        """Whether a call from then to then may have been under way, or answered and not yet committed."""
        return began <= self.end + MARGIN_SECONDS and (ended is None or ended >= self.start - MARGIN_SECONDS)


class Servers(NamedTuple):
    postgres: PrivatePostgres
    rabbitmq: PrivateRabbitMQ
    redis: PrivateRedis


@contextmanager
def servers() -> Iterator[Servers]:
    """Of the story's own: others would not like what happens to them."""
    with ExitStack() as stack:
        postgres = stack.enter_context(PrivatePostgres())
        rabbitmq = stack.enter_context(PrivateRabbitMQ())
        yield Servers(postgres, rabbitmq, stack.enter_context(PrivateRedis()))


@dataclass
class Weather:
    stage: Stage
    servers: Servers
    links: dict[str, FaultProxy]  # by who talks to whom
    rng: Random
    gusts: list[Gust] = field(default_factory=list)
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    relays: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> None:
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.relays = [self._relay() for _ in range(RELAYS)]
        self.port = self.stage.serve(BACKSTAY_REDIS_URL=self._url("server-redis", self.servers.redis.url))

    def _worker(self) -> "subprocess.Popen[str]":
        provider = self._url("worker-provider", self.stage.provider_url)
        return self.stage.worker(CONCURRENCY, **self._reached_by("worker"), STORY_PROVIDER_URL=provider)

    def _relay(self) -> "subprocess.Popen[str]":
        return self.stage.relay(**self._reached_by("relay"))

    def _reached_by(self, who: str) -> dict[str, str]:
        return {
            "BACKSTAY_DATABASE_URL": self._url(f"{who}-postgres", self.stage.url),
            "BACKSTAY_BROKER_URL": self._url(f"{who}-rabbitmq", self.servers.rabbitmq.url),
        }

    def _url(self, link: str, url: str) -> str:
        return self.links[link].url(url)

    # faults: each ends with all well again

    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        cuts = {f"cut {name}": lambda link=link: self._cut(link) for name, link in self.links.items()}
        holes = {f"swallow {name}": lambda link=link: self._swallow(link) for name, link in self.links.items()}
        return {
            "kill a worker": self._kill_worker,
            "kill a relay": self._kill_relay,
            "kill RabbitMQ": self._kill_rabbitmq,
            "wipe RabbitMQ": self._wipe_rabbitmq,
            "kill PostgreSQL": self._kill_postgres,
            "kill Redis": self._kill_redis,
            **cuts,
            **holes,
        }

    async def blow(self, what: str) -> None:
        start = time.time()
        await self.kinds()[what]()
        self.gusts.append(Gust(what, start, time.time()))

    async def _kill_worker(self) -> None:
        victim = self.rng.randrange(WORKERS)
        self.stage.kill9(self.workers[victim])
        self.workers[victim] = self._worker()

    async def _kill_relay(self) -> None:
        victim = self.rng.randrange(RELAYS)
        self.stage.kill9(self.relays[victim])
        self.relays[victim] = self._relay()

    async def _kill_rabbitmq(self) -> None:
        await asyncio.to_thread(self.servers.rabbitmq.kill)
        await asyncio.to_thread(self.servers.rabbitmq.restart)

    async def _wipe_rabbitmq(self) -> None:
        await asyncio.to_thread(self.servers.rabbitmq.wipe)

    async def _kill_postgres(self) -> None:
        await asyncio.to_thread(self.servers.postgres.kill9)
        await asyncio.to_thread(self.servers.postgres.restart)

    async def _kill_redis(self) -> None:
        await asyncio.to_thread(self.servers.redis.kill)
        await asyncio.to_thread(self.servers.redis.restart)

    async def _cut(self, link: FaultProxy) -> None:
        await link.cut()
        await asyncio.sleep(self.rng.uniform(*CUT_SECONDS))
        await link.pass_on()

    async def _swallow(self, link: FaultProxy) -> None:
        """Nobody is told; when it is over, what was lost is lost, and the connections are useless."""
        link.black_hole()
        await asyncio.sleep(self.rng.uniform(*CUT_SECONDS))
        link.reset()
        await link.pass_on()


@asynccontextmanager
async def weather(found: Servers, folder: Path, seed: int) -> AsyncIterator[Weather]:
    url = found.postgres.create_database()
    await wiring.migrate(url)
    async with Stage(url, folder, seed) as stage, AsyncExitStack() as stack:
        targets = {
            "worker-postgres": url,
            "worker-rabbitmq": found.rabbitmq.url,
            "worker-provider": stage.provider_url,
            "relay-postgres": url,
            "relay-rabbitmq": found.rabbitmq.url,
            "server-redis": found.redis.url,
        }
        links = {name: await stack.enter_async_context(FaultProxy.of(target)) for name, target in targets.items()}
        made = Weather(stage, found, links, Random(seed))
        made.start()
        yield made
