"""The terms of a run, and its job: found by its key, or submitted as a stream of requests."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from backstay.client import Client, Options
from backstay.core.errors import IdempotencyConflict, NotAllowed, UsageError
from backstay.core.ids import item_id
from backstay.core.pace import START_PARTS
from backstay.handlers.handler import Weighed
from backstay.llm.duplicates import Originals
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.formats import ParsedRequest
from backstay.llm.intake import FileChanged, FileSurvey, RequestSource, requests
from backstay.llm.lines import LlmRequest, seal, unseal
from backstay.llm.prices import PriceList, given_price
from backstay.llm.provider import TOKENS_MAX, RequestForm, TokenEstimate
from backstay.llm.registry import provider_named
from backstay.llm.shards import BATCH_REQUESTS_MAX


@dataclass(frozen=True, slots=True)
class Order:
    endpoint: Endpoint
    out: str | Path
    errors: str | Path | None = None
    concurrency: int = 100
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget_micros: int | None = None
    output_tokens_default: int | None = None  # what a request may answer that sets no bound itself
    delivery: str | None = None
    deadline_seconds: float | None = None
    call_instead: Endpoint | None = None  # where what the batches cannot do in time goes
    ordered: bool = False
    dedupe: bool = False
    new: bool = False
    retry_failed: bool = False
    wait: bool = False  # keep trying, whatever the first replies are
    label: str | None = None

    @property
    def move_seconds(self) -> float | None:
        """After this time what the batches have not done is called: the last quarter of the deadline is left for it."""
        if self.call_instead is None or self.deadline_seconds is None:
            return None
        return self.deadline_seconds * 3 / 4

    @property
    def slots(self) -> int:
        """How many requests the run's own worker holds at once."""
        return self.concurrency if self.endpoint.lane is not Lane.BATCH else BATCH_REQUESTS_MAX

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return (self.endpoint,) if self.call_instead is None else (self.endpoint, self.call_instead)

    def key(self, digest: str, number: int) -> str:
        """Names the run in the database: what would be sent, where to and how, and which of the runs of that it is.

        Limits, money and where the results go may change from one try to the next.
        """
        terms = "\0".join((digest, self.endpoint.dump(), str(self.delivery), str(self.dedupe)))
        return f"run:{hashlib.sha256(terms.encode()).hexdigest()[:40]}:{number}"


class WeighedRun:
    """Looks at every request before the first is sent: under a ceiling, each must have a worst case."""

    def __init__(self, order: Order) -> None:
        self._scales = Scales.of(order)

    def add(self, parsed: ParsedRequest) -> None:
        self._scales.weigh(parsed.request, parsed.fields)

    def clear(self) -> None:
        """Nothing is added up."""


class Scales:
    """Remembers whether any request had no known price: then what the run costs is not known either."""

    def __init__(self, form: RequestForm, prices: PriceList, ceiling: bool, replies_bounded: bool) -> None:
        self._estimate = form.estimate
        self._prices = prices
        self._ceiling = ceiling
        self._replies_bounded = replies_bounded
        self.priced = True

    @classmethod
    def of(cls, order: Order) -> Self:
        endpoint = order.endpoints[-1]  # where a request may end up at last, and cost most
        prices = PriceList(endpoint.base_url, endpoint.lane, given_price(endpoint), order.output_tokens_default)
        form = provider_named(endpoint.api).requests
        return cls(form, prices, order.budget_micros is not None, order.output_tokens_default is not None)

    def weigh(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[int | None, int]:
        """Under a ceiling a request must have a worst case: one without could cost anything."""
        estimate = self._estimate(request.url, request.body, fields)
        worst = self._prices.worst_micros(estimate)
        self.priced = self.priced and self._prices.price(estimate) is not None
        if worst is None and self._ceiling:
            raise UsageError(
                f"the cost of {request.custom_id!r} has no limit, so --budget cannot be enforced; nothing was sent",
                hint=self._hint(estimate),
            )
        most = estimate.output_tokens_max
        tokens = estimate.input_tokens + (estimate.output_tokens_expected if most is None else most)
        return worst, min(tokens, TOKENS_MAX)

    def weigh_stored(self, body: str) -> int | None:
        """The worst that a stored request can cost."""
        request = unseal(body)
        return self.weigh(request, json.loads(request.body))[0]

    def _hint(self, estimate: TokenEstimate) -> str:
        """What is missing for a worst case."""
        endless = estimate.output_tokens_max is None and not self._replies_bounded
        if self._prices.price(estimate) is None:
            unpriced = f"no price is known for model {estimate.model!r}: give --price IN/OUT"
            return unpriced + (" and --max-output-tokens: the request sets no limit on its reply" if endless else "")
        if endless:
            return "give --max-output-tokens: the request sets no limit on its reply"
        return "its input at the provider has no size limit; leave the request out, or run without --budget"


async def set_ceiling(client: Client, job_id: int, order: Order) -> None:
    """Gives a job that is there already the ceiling of the order, if it has one.

    Its requests may have been stored without a worst case, when none was needed, or with one by another bound on their
    replies; those that may be sent yet are weighed first, or the ceiling would hold them back for ever.
    """
    if order.budget_micros is None:
        return
    scales, anew, cursor = Scales.of(order), order.output_tokens_default is not None, -1
    while page := await client.store.jobs.unsent(job_id, anew, cursor):
        weights = [(item, scales.weigh_stored(item.body)) for item in page]
        changed = [(item.id, cost) for item, cost in weights if cost != item.cost_micros]
        if changed:
            await client.store.jobs.weigh_items(changed)
        cursor = page[-1].id
    await client.store.jobs.change_budget(job_id, client.owner, order.budget_micros)


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
        return await client.store.job_views.of_key(client.owner, self._order.key(self._surveyed.digest, number))

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
