"""Everything that a fleet on a broker can meet: each server killed, each link cut, each kind of process killed."""

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import aiohttp

from backstay import wiring
from tests.servers.fault_proxy import FaultProxy
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbitMQ, free_port
from tests.servers.redis import PrivateRedis
from tests.stories.stage import Stage, until

CONCURRENCY = 16
WORKERS = 2
RELAYS = 2
CUT_SECONDS = (0.3, 1.5)
# From a provider's answer to its commit; a fault just after the answer leaves it uncommitted.
MARGIN_SECONDS = 3.0
ANSWER_SECONDS = 10.0
COME_BACK_SECONDS = 180.0  # of a broker that is started again, and of those who wait longer for it each time

Fault = Callable[[], Awaitable[None]]


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
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        starting = pool.submit(stack.enter_context, PrivateRabbitMQ())  # which takes the longest
        postgres, redis = stack.enter_context(PrivatePostgres()), stack.enter_context(PrivateRedis())
        yield Servers(postgres, starting.result(), redis)


@dataclass
class Weather:
    stage: Stage
    servers: Servers
    links: dict[str, FaultProxy]  # by who talks to whom
    rng: Random
    gusts: list[Gust] = field(default_factory=list)
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    relays: list[subprocess.Popen[str]] = field(default_factory=list)
    web: list[subprocess.Popen[str]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # exit codes of those that were not killed
    hit: Counter[str] = field(default_factory=Counter)  # open connections that a fault befell, by link

    async def start(self) -> None:
        """Returns when all of them are at work."""
        self.port = free_port()
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.relays = [self._relay() for _ in range(RELAYS)]
        self.web = [self._server()]
        for process in (*self.workers, *self.relays):
            await self.stage.said(process, '"role": "consume"', COME_BACK_SECONDS)
        await until(lambda: self.told("/readyz"), "the server is there", COME_BACK_SECONDS)

    async def supervise(self) -> None:
        """Starts again what has ended by itself: at its start a process gives up when the database is away."""
        fleets = ((self.workers, self._worker), (self.relays, self._relay), (self.web, self._server))
        while True:
            for fleet, start in fleets:
                for at, process in enumerate(fleet):
                    if (code := process.poll()) is not None:
                        self.ends.append(code)
                        fleet[at] = start()
            await asyncio.sleep(0.1)

    async def told(self, path: str) -> Any:
        """What the server says, if it can say anything now."""
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                aiohttp.ClientSession() as http,
                http.get(f"http://127.0.0.1:{self.port}{path}") as response,
            ):
                return await response.json() if response.ok else None
        except (aiohttp.ClientError, TimeoutError):
            return None

    def _worker(self) -> "subprocess.Popen[str]":
        provider = self._url("worker-provider", self.stage.provider_url)
        return self.stage.worker(CONCURRENCY, **self._reached_by("worker"), STORY_PROVIDER_URL=provider)

    def _relay(self) -> "subprocess.Popen[str]":
        return self.stage.relay(**self._reached_by("relay"))

    def _server(self) -> "subprocess.Popen[str]":
        database = self._url("server-postgres", self.stage.url)
        redis = self._url("server-redis", self.servers.redis.url)
        return self.stage.serve(self.port, BACKSTAY_DATABASE_URL=database, BACKSTAY_REDIS_URL=redis)

    def _reached_by(self, who: str) -> dict[str, str]:
        return {
            "BACKSTAY_DATABASE_URL": self._url(f"{who}-postgres", self.stage.url),
            "BACKSTAY_BROKER_URL": self._url(f"{who}-rabbitmq", self.servers.rabbitmq.url),
            "BACKSTAY_LOG_LEVEL": "debug",  # it says what was claimed, and how
        }

    def _url(self, link: str, url: str) -> str:
        return self.links[link].url(url)

    # faults: each ends with all well again

    def deaths(self) -> dict[str, Fault]:
        return {
            "kill a worker": self._kill_worker,
            "kill a relay": self._kill_relay,
            "kill RabbitMQ": self._kill_rabbitmq,
            "wipe RabbitMQ": self._wipe_rabbitmq,
            "kill PostgreSQL": self._kill_postgres,
            "kill Redis": self._kill_redis,
        }

    def cuts(self) -> dict[str, Fault]:
        return {f"cut {name}": partial(self._cut, name) for name in self.links}

    def holes(self) -> dict[str, Fault]:
        return {f"swallow {name}": partial(self._swallow, name) for name in self.links}

    async def blow(self, what: str, fault: Fault) -> None:
        start = time.time()
        await fault()
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

    async def _cut(self, name: str) -> None:
        link = await self._in_use(name)
        await link.cut()
        await asyncio.sleep(self.rng.uniform(*CUT_SECONDS))
        await link.pass_on()

    async def _swallow(self, name: str) -> None:
        """Nobody is told; when it is over, what was lost is lost, and the connections are useless."""
        link = await self._in_use(name)
        link.black_hole()
        await asyncio.sleep(self.rng.uniform(*CUT_SECONDS))
        link.reset()
        await link.pass_on()

    async def _in_use(self, name: str) -> FaultProxy:
        """Waits until somebody is connected: a cut through nothing shows nothing."""
        link = self.links[name]

        async def used() -> int:
            return link.open

        self.hit[name] += await until(used, f"there is a connection {name}", COME_BACK_SECONDS)
        return link

    # what came of it

    def named(self) -> int:
        """How many items workers claimed because a message named them, those that were killed too."""
        said = self.stage.spoken("worker")
        return sum(line["items"] for line in said if line["event"] == "items claimed" and line["named"])

    def published(self) -> int:
        """How many messages relays got confirmed, those inside of workers too."""
        said = (*self.stage.spoken("worker"), *self.stage.spoken("relay"))
        return sum(line["messages"] for line in said if line["event"] == "messages published")

    def saw_wipes(self) -> int:
        said = (*self.stage.spoken("worker"), *self.stage.spoken("relay"))
        return sum(line["event"] == "broker lost its data" for line in said)


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
            "server-postgres": url,
            "server-redis": found.redis.url,
        }
        links = {name: await stack.enter_async_context(FaultProxy.of(target)) for name, target in targets.items()}
        made = Weather(stage, found, links, Random(seed))
        await made.start()
        supervising = asyncio.create_task(made.supervise())
        try:
            yield made
        finally:
            supervising.cancel()
