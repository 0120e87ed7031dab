"""The mover takes batches from one status to the next, up to their result files. Processes claim them by a lease."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, assert_never

from backstay.artifacts import Deposit
from backstay.client import Options
from backstay.clock import Tasks, cancel_until_ended, new_id, wait_for_event
from backstay.core.errors import BackstayError, NotAllowed, NotFound
from backstay.core.events import Event, JobEnded, Trouble
from backstay.core.pace import PersonsLimits
from backstay.core.states import BatchStatus, JobState
from backstay.handlers.handler import Weighed
from backstay.llm.endpoint import Endpoint
from backstay.llm.formats import InputOptions, ParsedRequest
from backstay.llm.lanes import Lanes
from backstay.llm.lines import seal
from backstay.run.result_file import CANCELLED, EndedRequest, lines_of
from backstay.run.submission import ProviderTerms, announce
from backstay.server.openai.shapes import BATCH_EXPIRED, EXPIRED_WORDS, asks_chat, result_lines
from backstay.server.openai.survey import (
    Fault,
    Unsendable,
    check_file,
    entries_of,
    errors_as_json,
    requests_of,
    weigh_line,
)
from backstay.server.openai.upstream import handlers_of, require_upstream, scales_of
from backstay.server.service import Service, drop_blobs, end_waiting, stop_job
from backstay.store.batches import Batch
from backstay.store.files import ERRORS, OUTPUT, NewFile
from backstay.store.item_views import is_out_of_money

DEADLINE_SECONDS_MIN: Final = 0.001
ATTACH_ITEMS: Final = 200  # after this many it is checked whether the batch is still in progress


class SendingStopped(Exception):
    """The batch is not in progress any more."""


async def announce_upstream(service: Service, upstream: Endpoint) -> None:
    """Tells all workers of the database where the requests go, and the rate limits of each provider."""
    usual = ProviderTerms(PersonsLimits(concurrency=service.options.concurrency))
    for endpoint in upstream.all:
        await announce(service.store, endpoint, service.options.terms.get(endpoint.api, usual))


class BatchSender:
    """Submits a batch as a job. When repeated it continues where it stopped: the job is found by its key."""

    def __init__(self, service: Service, batch: Batch) -> None:
        self._service = service
        self._batch = batch
        self._upstream = require_upstream(service.options)
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
        await client.submit(self._upstream.name, self._items(), options, str, service.wake, self._note_job, seconds)
        await self._attach()

    def _note_job(self, job_id: int) -> None:
        self._job_id = job_id

    async def _attach(self) -> None:
        """Clients see the job of the batch from its first items on, and can cancel it."""
        if self._attached or self._job_id is None:
            return
        self._attached = True
        if await self._service.store.batches.attach(self._batch.id, self._job_id) is not BatchStatus.IN_PROGRESS:
            raise SendingStopped

    async def _items(self) -> AsyncIterator[Weighed]:
        options, count = self._service.options, 0
        scales, handlers = scales_of(options), handlers_of(options)
        async for line, parsed in requests_of(self._service, self._batch):
            worst, tokens, written = weigh_line(scales, line, parsed)
            yield Weighed(seal(parsed.request), worst, tokens, handlers[parsed.api], output_tokens=written)
            count += 1
            if count % ATTACH_ITEMS == 0:
                await self._attach()


UNSENT_WORDS = "the batch was cancelled before this request was done"


class ResultsWriter:
    def __init__(self, service: Service, batch: Batch) -> None:
        self._service = service
        self._batch = batch
        self._deposit = Deposit(service.store.files, service.artifacts, batch.owner)
        self._out_of_money = False

    async def write(self) -> bool:
        """Writes the files and ends the batch with them. False: another process has done so."""
        batch = self._batch
        self._out_of_money = await self._is_out_of_money()
        failed = (batch.failed or 0) + (batch.cancelled or 0) + await self._count_unsent()
        output = await self._file(OUTPUT) if batch.succeeded else None
        errors = await self._file(ERRORS) if failed else None
        ended = await self._service.store.batches.end(batch, await self._status(), output, errors)
        if not ended:
            for file in (output, errors):
                if file is not None and file.blob is not None:
                    await self._deposit.delete(file.blob)
        return ended

    async def _is_out_of_money(self) -> bool:
        """Whether the batch was stopped because the rest exceeded its budget, and not by a person."""
        batch = self._batch
        if batch.job_id is None or batch.job_state != JobState.CANCELLED or batch.status is BatchStatus.CANCELLING:
            return False
        return (await self._service.store.job_views.get(batch.job_id, batch.owner)).short

    async def _count_unsent(self) -> int:
        """How many requests never became items, because the batch was stopped before."""
        batch = self._batch
        deleted = batch.job_state is None and (batch.job_id is not None or batch.status is not BatchStatus.CANCELLING)
        if batch.adopted or deleted or batch.requests <= (batch.total or 0):
            return 0
        source = await self._service.store.files.source(batch.input_file_id, batch.owner)
        return 0 if source is None else batch.requests - (batch.total or 0)

    async def _lines(self, part: str) -> AsyncIterator[bytes]:
        batch = self._batch
        if batch.job_id is not None:
            options = {"ok": part == OUTPUT, "copies": False, "out_of_money": self._out_of_money}
            async for lines in result_lines(self._service.store, batch.job_id, as_chat=asks_chat(batch), **options):
                yield lines
        if part == OUTPUT or not await self._count_unsent():
            return
        in_time = batch.now < batch.expires_at
        code, words = (CANCELLED, UNSENT_WORDS) if in_time else (BATCH_EXPIRED, EXPIRED_WORDS)
        position = 0
        async for _, entry in entries_of(self._service, batch, InputOptions(background=True)):
            if position >= (batch.total or 0) and isinstance(entry, ParsedRequest):
                ended = EndedRequest(position, entry.custom_id, False, None, code, words)
                yield lines_of(batch.job_id or batch.id.removeprefix("batch_"), ended)
            position += 1

    async def _status(self) -> BatchStatus:
        batch = self._batch
        if batch.job_state == JobState.CANCELLED and not self._out_of_money:
            return BatchStatus.CANCELLED
        if batch.job_id is not None and batch.failed and await self._service.store.batches.any_expired(batch.job_id):
            return BatchStatus.EXPIRED
        return BatchStatus.COMPLETED

    async def _file(self, part: str) -> NewFile:
        """The file of a run is not written: it is read from the job, which its owner may resume."""
        batch, settings = self._batch, self._service.backstay.settings
        blob, size = None, 0
        if not batch.adopted:
            blob = f"files/{new_id()}"
            size = await self._deposit.put(blob, self._lines(part))
        seconds = batch.output_seconds or settings.file_days * 86_400
        return NewFile(
            id=f"file-{new_id()}",
            owner=batch.owner,
            filename=f"{batch.id}_{'output' if part == OUTPUT else 'error'}.jsonl",
            purpose="batch_output",
            bytes=size,
            lives_ms=None if batch.adopted else int(seconds * 1000),
            blob=blob,
            job_id=batch.job_id,
            part=part,
        )


MOVERS: Final = 4  # so that one large batch is not in the way of others
LEASE_MS: Final = 30_000
BEAT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 0.5
REST_SECONDS: Final = 5.0  # of all but one, which wakes the others when there is more to do
LATER_MS: Final = 500  # its job needs more time
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
        """Moves a batch as far as possible, and keeps its lease meanwhile."""
        beat = self._tasks.spawn(self._beat(batch_id))
        later = TROUBLE_MS
        try:
            while (delay := await self._step(await self._batches.get(batch_id, owner))) is None:
                pass
            later = delay
        except asyncio.CancelledError:
            later = 0  # the process ends, and another may continue at once
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
        """One step. None: look again at once; else how many milliseconds to wait."""
        match batch.status:
            case BatchStatus.VALIDATING:
                return await self._validate(batch)
            case BatchStatus.IN_PROGRESS:
                return await self._advance(batch)
            case BatchStatus.FINALIZING:
                return await self._finish(batch)
            case BatchStatus.CANCELLING:
                return await self._cancel(batch)
            case BatchStatus.COMPLETED | BatchStatus.FAILED | BatchStatus.EXPIRED | BatchStatus.CANCELLED:
                return 0
            case _:
                assert_never(batch.status)

    async def _validate(self, batch: Batch) -> int | None:
        faults, survey = await check_file(self._service, batch)
        if faults:
            await self._batches.fail(batch.id, errors_as_json(faults))
        else:
            await self._batches.begin(batch.id, survey["requests"], next(iter(survey["models"]), None))
        return None

    async def _advance(self, batch: Batch) -> int | None:
        if batch.job_ended:
            await self._batches.finalize(batch.id)
            return None
        if not batch.adopted and not batch.sealed:
            try:
                await BatchSender(self._service, batch).send()
            except (SendingStopped, NotAllowed):
                fresh = await self._batches.get(batch.id, batch.owner)
                return None if fresh.status != batch.status or fresh.job_ended else LATER_MS
            except NotFound:
                await self._fail_unsent(batch)
            except Unsendable as unsendable:  # the budget or the providers were changed after the batch began
                await self._fail_begun(batch, unsendable.fault)
            return None
        if batch.now >= batch.expires_at and not batch.adopted:
            while (await self._service.store.sweeps.expire()).more:
                pass
            return LATER_MS
        return 0 if batch.adopted else await self._end_without_money(batch)

    async def _end_without_money(self, batch: Batch) -> int | None:
        """Ends the batch if its next request exceeds a budget, and no call under way can give money back."""
        assert batch.job_id is not None
        view = await self._service.store.job_views.get(batch.job_id, batch.owner)
        if not view.held_by_budget:
            return 0
        if await is_out_of_money(self._service.store, view):
            await self._stop(batch)
            if (await self._batches.get(batch.id, batch.owner)).job_ended:
                return None
        return LATER_MS

    async def _fail_begun(self, batch: Batch, fault: Fault) -> None:
        await self._batches.fail(batch.id, errors_as_json([fault]))
        job_id = batch.job_id or await self._service.store.job_views.of_key(batch.owner, BatchSender.key(batch.id))
        if job_id is not None:
            await stop_job(self._service, job_id, batch.owner)

    async def _fail_unsent(self, batch: Batch) -> None:
        message = f"The bytes of file {batch.input_file_id} are gone."
        fault = Fault("invalid_request", None, message, "file_id")
        await self._batches.fail(batch.id, errors_as_json([fault]))

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
        job_id = await self._service.store.job_views.of_key(batch.owner, BatchSender.key(batch.id))
        if job_id is not None:
            await self._batches.attach(batch.id, job_id)
            return None
        if not batch.requests:
            faults, survey = await check_file(self._service, batch)
            if not faults and survey["requests"]:
                await self._batches.count(batch.id, survey["requests"], next(iter(survey["models"]), None))
                return None
        return await self._finish(batch)

    async def _finish(self, batch: Batch) -> int | None:
        await ResultsWriter(self._service, batch).write()
        return None


@asynccontextmanager
async def moving(service: Service) -> AsyncIterator[None]:
    """While the block runs, batches are moved on by this process as well."""
    mover = Mover(service)
    lanes = Lanes(service.backstay, service.options.concurrency)
    upstream = service.options.upstream
    if upstream is not None:
        await announce_upstream(service, upstream)
        if service.options.works:
            for endpoint in upstream.all:
                await lanes.open(endpoint)  # else the first batch would wait until a worker notices it
            await lanes.require_keys()
    service.backstay.bus.subscribe(mover.hear)
    service.wake_mover = mover.wake
    mover.start()
    try:
        yield
    finally:
        await mover.stop()
        await lanes.close()
