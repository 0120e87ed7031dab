"""How the requests of a batch become the items of its job: streamed from its file, and only once."""

from collections.abc import AsyncIterator
from typing import Final

from backstay.client import Options
from backstay.core.errors import UsageError
from backstay.core.states import BatchStatus
from backstay.handlers.handler import Weighed
from backstay.llm.endpoint import Endpoint
from backstay.llm.lines import seal
from backstay.server.openai.survey import requests_of
from backstay.server.openai.validation import Unbounded, scales_of
from backstay.server.service import Service
from backstay.store.batches import Batch

DEADLINE_SECONDS_MIN: Final = 0.001
ATTACH_ITEMS: Final = 200  # after so many it is looked whether the batch is wanted yet


class SendingStopped(Exception):
    """The batch is not in progress any more."""


async def announce(service: Service, upstream: Endpoint) -> None:
    """Tells all workers of the database where the requests go, and how fast they may."""
    options = service.options
    await service.store.providers.save_endpoint(upstream.name, upstream.dump())
    per_minute = (options.requests_per_minute, options.tokens_per_minute)
    await service.store.providers.set_pace(upstream.pace_name, per_minute, options.concurrency)


class BatchSending:
    """When repeated it continues where it stopped: the job is found by its key."""

    def __init__(self, service: Service, batch: Batch) -> None:
        if service.options.upstream is None:
            raise UsageError("this service has no provider to send requests to", hint="start it with --base-url")
        self._service = service
        self._batch = batch
        self._upstream = service.options.upstream
        self._job_id = batch.job_id
        self._attached = False

    @staticmethod
    def key(batch_id: str) -> str:
        return f"batch:{batch_id}"

    async def send(self) -> None:
        batch, service = self._batch, self._service
        left_seconds = (batch.expires_at - batch.now) / 1000
        options = Options(
            idempotency_key=self.key(batch.id),
            deadline_seconds=max(left_seconds, DEADLINE_SECONDS_MIN),
            label=batch.id,
            budget_micros=service.options.budget_micros,
        )
        client = service.client(batch.owner)
        seconds = client.limits.llm_job_timeout_seconds
        await client.submit(self._upstream.name, self._items(), options, str, service.wake, self._opened_as, seconds)
        await self._attach()

    def _opened_as(self, job_id: int) -> None:
        self._job_id = job_id

    async def _attach(self) -> None:
        """Clients see the job of the batch from its first items on, and can cancel it."""
        if self._attached or self._job_id is None:
            return
        self._attached = True
        if await self._service.store.batches.attach(self._batch.id, self._job_id) is not BatchStatus.IN_PROGRESS:
            raise SendingStopped

    async def _items(self) -> AsyncIterator[Weighed]:
        scales, count = scales_of(self._service.options), 0
        async for line, parsed in requests_of(self._service, self._batch):
            try:
                weight = scales.weigh(parsed.request, parsed.fields)
            except UsageError:
                raise Unbounded(line) from None
            yield Weighed(seal(parsed.request), *weight)
            count += 1
            if count % ATTACH_ITEMS == 0:
                await self._attach()
