"""Makes a batch of a shard: uploads its requests to the provider and creates the batch, once."""

import asyncio
from typing import Any, Final

from backstay.clock import Clock
from backstay.core.errors import OutcomeUnknown, Throttled, Transient
from backstay.core.failures import ErrorCode
from backstay.core.outcomes import Failed
from backstay.llm.provider import BatchApi, StagedShard
from backstay.llm.shards import SentBatch, Shard, ShardLimits, drop_late, too_late

UPLOADS_AT_ONCE: Final = 4
BATCHES_REMEMBERED_MAX: Final = 10_000


class BatchCancels:
    """Cancels each batch once, and knows which were cancelled here."""

    def __init__(self, api: BatchApi[Any]) -> None:
        self._api = api
        self._cancelled: set[str] = set()

    async def cancel(self, batch_id: str) -> None:
        if batch_id in self._cancelled:
            return
        remember(self._cancelled, batch_id)
        try:
            await self._api.cancel(batch_id)
        except BaseException:
            self._cancelled.discard(batch_id)
            raise

    def __contains__(self, batch_id: str) -> bool:
        return batch_id in self._cancelled


class BatchCreation:
    """A failure before the batch is created costs nothing and leaves nothing behind that counts.

    The claims behind a shard must be young enough when its batch is created: a request that could arrive after others
    have asked about it, and found nothing, would be paid twice. Others ask only some time after the end of the run's
    own time. So the creation begins only while every run has enough time left for it. That leaves time for large
    uploads, and is never later than the moment at which a run that sends at its send guard may still be under way.
    """

    def __init__(
        self, api: BatchApi[Any], cancels: BatchCancels, limits: ShardLimits, clock: Clock, create_seconds: float
    ) -> None:
        self._api = api
        self._cancels = cancels
        self._limits = limits
        self._clock = clock
        self._create_seconds = create_seconds
        self._slots = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def send(self, shard: Shard) -> SentBatch | Failed:
        """The batch, or the outcome of every request of the shard if there is none."""
        async with self._slots:
            drop_late(shard, 2 * self._create_seconds)
            if not shard.entries or shard.broken or shard.is_stopped():
                raise too_late()
            staged = await self._stage(shard)
        if isinstance(staged, Failed):
            return staged
        if (broken := await staged.wait_ready(self._create_seconds)) is not None:
            return broken
        return await self._create(shard, staged)

    async def _stage(self, shard: Shard) -> StagedShard | Failed:
        seconds = shard.seconds_left - self._create_seconds
        ends_at = self._clock.monotonic() + seconds
        try:
            staged = await self._api.stage(shard, max(int(seconds), 1))
        except OutcomeUnknown as error:
            if self._clock.monotonic() >= ends_at - 2:
                self._limits.too_many_bytes(shard.bytes)
            raise Transient(f"the upload of {shard.bytes} bytes was interrupted: {error}") from None
        if not isinstance(staged, Failed):
            self._limits.bytes_fit(shard.bytes)
        elif staged.failure.code is ErrorCode.TOO_LARGE and len(shard.entries) > 1:
            # A shard that is too large is not the fault of its requests, while it can be made smaller.
            self._limits.too_many_bytes(shard.bytes)
            raise Throttled(f"the provider refused a file of {shard.bytes} bytes; the next one is smaller")
        return staged

    async def _create(self, shard: Shard, staged: StagedShard) -> SentBatch | Failed:
        if shard.broken or shard.is_stopped() or shard.seconds_left < self._create_seconds:
            raise too_late()  # nothing is awaited between this and the request
        batch_id = await staged.create(self._create_seconds)
        if isinstance(batch_id, Failed):
            return batch_id
        if shard.is_stopped():  # nothing is left that would poll it, so it must not run and cost money
            await self._cancels.cancel(batch_id)
        return SentBatch(batch_id, len(shard.entries))


def remember(batches: set[str], batch_id: str) -> None:
    if len(batches) >= BATCHES_REMEMBERED_MAX:
        batches.clear()
    batches.add(batch_id)
