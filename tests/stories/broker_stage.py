"""A stage whose workers and relays share a broker, with eyes on its queues."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen

from backstay import Job
from backstay.core.ids import item_id
from backstay.messaging.messages import Topology
from tests.messaging.rig import Bystander
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.stories.stage import Stage, until, worker_command
from tests.stories.test_kills import check_all_there


class BrokerStage:
    def __init__(self, stage: Stage, rabbitmq: PrivateRabbitMQ) -> None:
        self.stage = stage
        self.topology = Topology(rabbitmq.prefix())
        self.bystander = Bystander(rabbitmq.url)
        self._environment = {"BACKSTAY_BROKER_URL": rabbitmq.url, "BACKSTAY_BROKER_PREFIX": self.topology.prefix}

    # processes

    def worker(self, concurrency: int) -> "Popen[str]":
        return self.stage.worker(concurrency, **self._environment)

    def relay(self) -> "Popen[str]":
        return self.stage.relay(**self._environment)

    async def still_worker(self, point: str, concurrency: int) -> "Popen[str]":
        """A worker that does what messages name, until it stands still at a point."""
        worker = self.stage.standing_still(point, *worker_command(concurrency), **self._environment)
        await self.stage.said(worker, '"role": "consume"')
        return worker

    async def still_relay(self, point: str) -> "Popen[str]":
        relay = self.stage.standing_still(point, "relay", **self._environment)
        await self.stage.said(relay, '"role": "publish"')
        return relay

    async def stands_still(self, process: "Popen[str]", point: str) -> None:
        await self.stage.said(process, f"stands still: {point}")

    # queues

    def queue(self, kind: str) -> str:
        return self.topology.work_queue(kind).name

    async def waiting(self, queue: str, messages: int) -> None:
        """Waits until so many messages are in a queue and in nobody's hand."""

        async def there() -> bool:
            return await self.bystander.messages(queue) == messages

        await until(there, f"{messages} messages wait in {queue}")

    async def all_used(self, kinds: Sequence[str]) -> None:
        """Waits until every message was acknowledged, and says that none was taken for poison."""
        for kind in kinds:
            await self.waiting(self.queue(kind), 0)
        assert await self.bystander.messages(self.topology.dead) == 0

    # items

    async def check_done(self, job: Job, items: int) -> None:
        """Each item has its own result, and succeeded once."""
        check_all_there(await self.stage.results(job), items)
        for position in range(items):
            attempts = await self.stage.store.item_views.attempts(item_id(job.id, position))
            assert sum(attempt.outcome == "succeeded" for attempt in attempts) == 1


@asynccontextmanager
async def broker_stage(url: str, rabbitmq: PrivateRabbitMQ, folder: Path) -> AsyncIterator[BrokerStage]:
    async with Stage(url, folder) as stage:
        yield BrokerStage(stage, rabbitmq)
