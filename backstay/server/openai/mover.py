"""The mover: takes batches from one status to the next. Any number of processes do so; a lease tells them apart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, assert_never

from backstay.clock import Tasks, cancel_until_ended, wait_for_event
from backstay.core.errors import BackstayError, NotAllowed, NotFound
from backstay.core.events import Event, JobEnded, Trouble
from backstay.core.states import BatchStatus
from backstay.llm.lanes import Lanes
from backstay.server.job_cancel import end_waiting, stop_job
from backstay.server.job_removal import drop_blobs
from backstay.server.openai import validation
from backstay.server.openai.results import Results
from backstay.server.openai.sending import BatchSending, SendingStopped, announce
from backstay.server.openai.survey import Fault
from backstay.server.service import Service
from backstay.store.batches import Batch

MOVERS: Final = 4  # so that one large batch is not in the way of others
LEASE_MS: Final = 30_000
BEAT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 0.5
REST_SECONDS: Final = 5.0  # of all but one, which wakes the others when there is more to do
LATER_MS: Final = 500  # its job needs a moment yet
TROUBLE_MS: Final = 5_000
CLEAN_SECONDS: Final = 60.0


class Mover:
    """One life: start, stop. Every step can be repeated safely, also by another process that finds it half done."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches = service.store.batches
        self._woken = asyncio.Event()
        self._tasks = Tasks()
        self._running: list[asyncio.Task[None]] = []

    def wake(self) -> None:
        self._woken.set()

    def hear(self, event: Event) -> None:
        if isinstance(event, JobEnded):
            self.wake()

    def start(self) -> None:
        idle = (IDLE_SECONDS, *[REST_SECONDS] * (MOVERS - 1))
        self._running = [self._tasks.spawn(self._serve(seconds)) for seconds in idle]
        self._running.append(self._tasks.spawn(self._clean()))

    async def stop(self) -> None:
        await cancel_until_ended(self._running)

    async def _serve(self, idle_seconds: float) -> None:
        while True:
            self._woken.clear()
            try:
                claimed = await self._batches.claim(LEASE_MS)
                if claimed is not None:
                    self.wake()  # there may be another
                    await self._hold(*claimed)
                    continue
            except BackstayError as error:
                self._tell(error)
            await wait_for_event(self._woken, idle_seconds)

    async def _clean(self) -> None:
        while True:
            try:
                await drop_blobs(self._service)
            except BackstayError as error:
                self._tell(error)
            await self._service.main.clock.sleep(CLEAN_SECONDS)

    def _tell(self, error: Exception, where: str = "batches") -> None:
        self._service.backstay.bus.emit(Trouble(where, f"{type(error).__name__}: {error}"))

    async def _hold(self, batch_id: str, owner: str) -> None:
        """Moves a batch as far as it goes; the lease lasts while that takes."""
        beat = self._tasks.spawn(self._beat(batch_id))
        later = TROUBLE_MS
        try:
            while (delay := await self._step(await self._batches.get(batch_id, owner))) is None:
                pass
            later = delay
        except asyncio.CancelledError:
            later = 0  # the process ends, and another may go on at once
            raise
        except Exception as error:  # reported, and tried again later
            self._tell(error, f"batch {batch_id}")
        finally:
            beat.cancel()
            await self._batches.release(batch_id, later)

    async def _beat(self, batch_id: str) -> None:
        while True:
            await self._service.main.clock.sleep(BEAT_SECONDS)
            try:
                await self._batches.extend(batch_id, LEASE_MS)
            except BackstayError as error:
                self._tell(error)

    async def _step(self, batch: Batch) -> int | None:
        """One step on; None to look again at once, else how many milliseconds nobody need look."""
        match batch.status:
            case BatchStatus.VALIDATING:
                return await self._validate(batch)
            case BatchStatus.IN_PROGRESS:
                return await self._further(batch)
            case BatchStatus.FINALIZING:
                return await self._finish(batch)
            case BatchStatus.CANCELLING:
                return await self._cancel(batch)
            case BatchStatus.COMPLETED | BatchStatus.FAILED | BatchStatus.EXPIRED | BatchStatus.CANCELLED:
                return 0
            case _:
                assert_never(batch.status)

    async def _validate(self, batch: Batch) -> int | None:
        faults, survey = await validation.looked(self._service, batch)
        if faults:
            await self._batches.fail(batch.id, validation.told(faults))
        else:
            await self._batches.begin(batch.id, survey["requests"], next(iter(survey["models"]), None))
        return None

    async def _further(self, batch: Batch) -> int | None:
        if batch.job_ended:
            await self._batches.finalize(batch.id)
            return None
        if not batch.adopted and not batch.sealed:
            try:
                await BatchSending(self._service, batch).send()
            except (SendingStopped, NotAllowed):
                fresh = await self._batches.get(batch.id, batch.owner)
                return None if fresh.status != batch.status or fresh.job_ended else LATER_MS
            except NotFound:
                await self._fail_unsent(batch)
            except validation.Unbounded as unbounded:  # the budget was set after the batch began
                await self._fail_begun(batch, unbounded.fault)
            return None
        if batch.now >= batch.expires_at and not batch.adopted:
            while (await self._service.store.sweeps.expire()).more:
                pass
            return LATER_MS
        if not batch.adopted and await self._out_of_money(batch):
            await self._stop(batch)
            return None if (await self._batches.get(batch.id, batch.owner)).job_ended else LATER_MS
        return 0

    async def _out_of_money(self, batch: Batch) -> bool:
        """Whether its next request does not fit under its ceiling, and nothing that is under way will make room."""
        assert batch.job_id is not None
        return (await self._service.store.views.job(batch.job_id, batch.owner)).held_by_budget

    async def _fail_begun(self, batch: Batch, fault: Fault) -> None:
        await self._batches.fail(batch.id, validation.told([fault]))
        job_id = batch.job_id or await self._service.store.views.job_of_key(batch.owner, BatchSending.key(batch.id))
        if job_id is not None:
            await stop_job(self._service, job_id, batch.owner)

    async def _fail_unsent(self, batch: Batch) -> None:
        message = f"The bytes of file {batch.input_file_id} are gone."
        fault = Fault("invalid_request", None, message, "file_id")
        await self._batches.fail(batch.id, validation.told([fault]))

    async def _cancel(self, batch: Batch) -> int | None:
        if batch.job_id is None:
            return await self._cancel_unsent(batch)
        if batch.job_ended:
            return await self._finish(batch)
        await self._stop(batch)
        return None if (await self._batches.get(batch.id, batch.owner)).job_ended else LATER_MS

    async def _stop(self, batch: Batch) -> None:
        assert batch.job_id is not None
        await stop_job(self._service, batch.job_id, batch.owner)
        await end_waiting(self._service, batch.job_id)

    async def _cancel_unsent(self, batch: Batch) -> int | None:
        """There is no job. Its requests are reported as cancelled, if they were valid."""
        job_id = await self._service.store.views.job_of_key(batch.owner, BatchSending.key(batch.id))
        if job_id is not None:
            await self._batches.attach(batch.id, job_id)
            return None
        if not batch.requests:
            faults, survey = await validation.looked(self._service, batch)
            if not faults and survey["requests"]:
                await self._batches.count(batch.id, survey["requests"], next(iter(survey["models"]), None))
                return None
        return await self._finish(batch)

    async def _finish(self, batch: Batch) -> int | None:
        await Results(self._service, batch).write()
        return None


@asynccontextmanager
async def moving(service: Service) -> AsyncIterator[None]:
    """While the block runs, batches are moved on by this process as well."""
    mover = Mover(service)
    lanes = Lanes(service.backstay, service.options.concurrency)
    upstream = service.options.upstream
    if upstream is not None:
        await announce(service, upstream)
        if service.options.works:
            await lanes.open(upstream)  # else the first batch would wait for someone to notice it
    service.backstay.bus.subscribe(mover.hear)
    service.wake_mover = mover.wake
    mover.start()
    try:
        yield
    finally:
        await mover.stop()
        await lanes.close()
