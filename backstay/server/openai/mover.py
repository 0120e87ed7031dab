"""The mover: takes batches from one status to the next. Any number of processes do so; a lease tells them apart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from backstay.clock import Tasks, wait_for_event
from backstay.core.errors import BackstayError, NotAllowed, NotFound
from backstay.core.events import Event, JobEnded, Trouble
from backstay.core.states import StopReason
from backstay.run.lanes import Lanes
from backstay.server.openai import validation
from backstay.server.openai.content import drop_blobs
from backstay.server.openai.results import Results
from backstay.server.openai.sending import Sending, Stopped, announce
from backstay.server.openai.survey import Fault
from backstay.server.service import Service
from backstay.store.batches import Batch
from backstay.store.store import Store

MOVERS: Final = 4  # so that one large batch is not in the way of others
LEASE_MS: Final = 30_000
BEAT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 0.5
REST_SECONDS: Final = 5.0  # of all but one, which wakes the others when there is more to do
LATER_MS: Final = 500  # its job needs a moment yet
TROUBLE_MS: Final = 5_000
CLEAN_SECONDS: Final = 60.0


class Mover:
    """One life: start, stop. Each step is safe to be done again by whoever finds it half done."""

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
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

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
                await drop_blobs(self._service.store, self._service.artifacts)
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
        except Exception as error:  # told, and tried again in a while
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
            case "validating":
                return await self._validate(batch)
            case "in_progress":
                return await self._further(batch)
            case "finalizing":
                return await self._finish(batch)
            case "cancelling":
                return await self._cancel(batch)
            case _:
                return 0

    async def _validate(self, batch: Batch) -> int | None:
        file = await self._service.store.files.find(batch.input_file_id, batch.owner)
        if file is None:
            faults = validation.missing_file(batch.input_file_id)
        elif file.purpose != "batch":
            faults = validation.wrong_purpose(file)
        else:
            survey = await validation.surveyed(self._service, file)
            faults = await validation.faults_of(self._service, batch, survey)
            if not faults:
                await self._batches.begin(batch.id, survey["requests"], next(iter(survey["models"]), None))
                return None
        await self._batches.fail(batch.id, validation.told(faults))
        return None

    async def _further(self, batch: Batch) -> int | None:
        if batch.job_ended:
            await self._batches.finalize(batch.id)
            return None
        if not batch.adopted and not batch.sealed:
            try:
                await Sending(self._service, batch).send()
            except (Stopped, NotAllowed):
                fresh = await self._batches.get(batch.id, batch.owner)
                return None if fresh.status != batch.status or fresh.job_ended else LATER_MS
            except NotFound:
                await self._fail_unsent(batch)
            return None
        if batch.now >= batch.expires_at and not batch.adopted:
            while (await self._service.store.expire()).more:
                pass
            return LATER_MS
        return 0

    async def _fail_unsent(self, batch: Batch) -> None:
        message = f"The bytes of file {batch.input_file_id} are gone."
        fault = Fault("invalid_request", None, message, "file_id")
        await self._batches.fail(batch.id, validation.told([fault]))

    async def _cancel(self, batch: Batch) -> int | None:
        views = self._service.store.views
        if batch.job_id is None:
            job_id = await views.job_of_key(batch.owner, Sending.key(batch.id))
            if job_id is None:
                await self._batches.end(batch, "cancelled", None, None)
            else:
                await self._batches.attach(batch.id, job_id)
            return None
        if batch.job_ended:
            return await self._finish(batch)
        await stop_job(self._service.store, batch.job_id, batch.owner)
        while (await self._service.store.end_stopped(batch.job_id, StopReason.CANCEL)).more:
            pass
        return None if (await self._batches.get(batch.id, batch.owner)).job_ended else LATER_MS

    async def _finish(self, batch: Batch) -> int | None:
        await Results(self._service, batch).write()
        return None


async def stop_job(store: Store, job_id: int, owner: str) -> None:
    """Its job takes no more work from now on; its items end by and by."""
    with suppress(NotAllowed, NotFound):  # it was cancelled before, or has just ended by itself
        await store.cancel(job_id, owner)


@asynccontextmanager
async def moving(service: Service) -> AsyncIterator[None]:
    """While the block runs, batches are moved on by this process as well."""
    mover = Mover(service)
    lanes = Lanes(service.backstay.handlers, service.options.concurrency)
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
