"""How the requests of a run get into the database: which run it is, on what terms, and every line, once."""

import asyncio
from collections.abc import AsyncIterator, Callable

from backstay.client import Client, Options, Weighed
from backstay.core.errors import IdempotencyConflict, NotAllowed
from backstay.core.ids import item_id
from backstay.core.pace import START_PARTS
from backstay.llm.duplicates import Originals
from backstay.llm.endpoint import Lane
from backstay.llm.intake import FileChanged, FileSurvey, RequestSource, requests
from backstay.llm.lines import seal
from backstay.llm.shards import BATCH_REQUESTS_MAX
from backstay.run.terms import Order, Scales

COPIES_CHUNK = 1_000
STOPPED = "it was stopped before the rest was stored; to send the whole file again, use --new and another --out"
CANCELLED = "job {}, for the earlier content of the file, is cancelled; use --new and another --out"


class Submission:
    """The same file with the same options continues where it stopped."""

    def __init__(self, order: Order, source: RequestSource, surveyed: FileSurvey) -> None:
        self._order = order
        self._source = source
        self._surveyed = surveyed
        self._scales = Scales.of(order)
        self._key = ""
        self._job_id: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._copies: list[tuple[int, int, str]] = []  # first position, number, custom_id; not yet written down
        self._left_out = 0

    @property
    def items(self) -> int:
        """How many items there will be, as far as is known."""
        return self._surveyed.requests - self._left_out

    @property
    def copies(self) -> int:
        """How many requests were found to ask what another asks already."""
        return self._left_out

    @property
    def priced(self) -> bool:
        return self._scales.priced

    async def find(self, client: Client) -> int | None:
        """The job of this run, if it was begun before; a new one comes after all of its like."""
        number, job_id = 0, None
        while found := await self._job_of(client, number):
            job_id, number = found, number + 1
        if self._order.new or job_id is None:
            self._key = self._order.key(self._surveyed.digest, number)
            return None
        self._key = self._order.key(self._surveyed.digest, number - 1)
        return job_id

    async def _job_of(self, client: Client, number: int) -> int | None:
        return await client.store.views.job_of_key(client.owner, self._order.key(self._surveyed.digest, number))

    async def announce(self, client: Client) -> None:
        """Tells all workers of the database where the requests go, and how fast they may."""
        order, store = self._order, client.store
        for endpoint in order.endpoints:
            await store.providers.save_endpoint(endpoint.name, endpoint.dump())
            if endpoint.lane is Lane.BATCH:
                # A pace begins with a part of what it allows, and the first batch is to be a whole one.
                await store.providers.set_pace(endpoint.pace_name, (None, None), BATCH_REQUESTS_MAX * START_PARTS)
            else:
                per_minute = (order.requests_per_minute, order.tokens_per_minute)
                await store.providers.set_pace(endpoint.pace_name, per_minute, order.concurrency)

    async def opened(self, submitting: "asyncio.Task[int]") -> int:
        """The job's id, as soon as there is one; what kept it from being made is raised."""
        await asyncio.wait((submitting, self._job_id), return_when=asyncio.FIRST_COMPLETED)
        if not self._job_id.done():
            submitting.result()
        return await self._job_id

    async def send(self, client: Client, wake: Callable[[], None]) -> int:
        """Streams every request in, in constant memory; returns the job's id."""
        order = self._order
        options = Options(
            idempotency_key=self._key,
            delivery=order.delivery,
            deadline_seconds=order.deadline_seconds,
            label=order.label,
            budget_micros=order.budget_micros,
            handler_then=None if order.call_instead is None else order.call_instead.name,
            move_seconds=order.move_seconds,
        )
        items = self._items(client)
        try:
            seconds = client.limits.llm_job_timeout_seconds
            job = await client.submit(order.endpoint.name, items, options, str, wake, self._tell_opened, seconds)
        except FileChanged as changed:
            await self._give_up(client, changed)
            raise
        except (NotAllowed, IdempotencyConflict):
            raise NotAllowed(f"job {await self._job_id} contains only a part of this file", hint=STOPPED) from None
        await self._add_copies(client)
        return job.id

    async def _give_up(self, client: Client, changed: FileChanged) -> None:
        """Ends a job that can never be complete, because nobody has its rest; a complete job continues."""
        if self._job_id.done():
            job = client.job(await self._job_id)
            seen = await job.show()
            if not seen.sealed and not seen.ended:
                await job.cancel()
                raise FileChanged(changed.name, CANCELLED.format(job.id)) from None

    def _tell_opened(self, job_id: int) -> None:
        if not self._job_id.done():
            self._job_id.set_result(job_id)

    async def _items(self, client: Client) -> AsyncIterator[Weighed]:
        position = 0
        with Originals() as originals:
            for number, (_, request, fields) in enumerate(requests(self._source, self._surveyed), 1):
                first = originals.first(request, position) if self._order.dedupe else position
                if first == position:
                    yield Weighed(seal(request), *self._scales.weigh(request, fields))
                    position += 1
                    continue
                self._left_out += 1
                self._copies.append((first, number, request.custom_id))
                if len(self._copies) >= COPIES_CHUNK and self._job_id.done():
                    await self._add_copies(client)

    async def _add_copies(self, client: Client) -> None:
        """Writes down who shares an answer: it is paid for once, and stands in the results under every name."""
        copies, self._copies = self._copies, []
        if copies:
            job_id = await self._job_id
            await client.store.submissions.add_copies(
                [(item_id(job_id, first), number, name) for first, number, name in copies]
            )
