"""The terms of a run, and its job: found by its key, or submitted as a stream of requests."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from backstay.client import Client, Options
from backstay.core.errors import IdempotencyConflict, NotAllowed, UsageError
from backstay.core.ids import item_id
from backstay.core.money import Period
from backstay.core.pace import START_PARTS, PersonsLimits
from backstay.handlers.handler import Weighed
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.fallbacks import Fallback, FallbackPlace, FallbackRequest, Route, place_of, request_for, route_of
from backstay.llm.formats import ParsedRequest
from backstay.llm.intake import FileChanged, FileSurvey, RequestSource, requests
from backstay.llm.lines import LlmRequest, seal, unseal
from backstay.llm.prices import PriceList, given_price, with_reask
from backstay.llm.provider import TOKENS_MAX, RequestForm, TokenEstimate
from backstay.llm.providers import provider_named
from backstay.llm.repeated_requests import Originals, RequestKeys, sample_of
from backstay.llm.schemas import AnswerCheck
from backstay.llm.shards import BATCH_REQUESTS_MAX
from backstay.run.options import ALWAYS, Reuse
from backstay.run.summary import Summary
from backstay.store.store import Store
from backstay.store.submissions import Search


class ProviderTerms(NamedTuple):
    """How fast requests go to one provider, and what they may cost in a month, all jobs together."""

    limits: PersonsLimits = PersonsLimits()
    budget_micros: int | None = None


async def announce(store: Store, endpoint: Endpoint, terms: ProviderTerms) -> None:
    """Tells all workers of the database where requests go, how fast they may, and what they may cost."""
    await store.providers.save_endpoint(endpoint.name, endpoint.dump())
    if endpoint.lane is Lane.BATCH:
        # A pace begins with a part of what it allows, and the first batch is to be a whole one.
        await store.providers.set_pace(endpoint.pace_name, (None, None), BATCH_REQUESTS_MAX * START_PARTS)
    else:
        requests, tokens, concurrency, further = terms.limits
        await store.providers.set_pace(endpoint.pace_name, (requests, tokens), concurrency, further=further)
    if (budget := terms.budget_micros) is not None:
        scope = ("", f"@{endpoint.host}", Period.MONTH)
        known = {(one.owner, one.handler, one.period): one.limit_micros for one in await store.budgets.all()}
        if known.get(scope) != budget:
            await store.budgets.set(*scope, budget)


AtEnd = Callable[[Client, Summary], Awaitable[Summary]]


@dataclass(frozen=True, slots=True)
class Order:
    endpoint: Endpoint
    out: str | Path | None  # None: no files; the caller reads the results from the database
    errors: str | Path | None = None
    concurrency: int = 100
    terms: Mapping[str, ProviderTerms] = field(default_factory=dict)  # by provider
    budget_micros: int | None = None
    output_tokens_default: int | None = None  # the limit of a reply, for requests that set none
    delivery: str | None = None
    deadline_seconds: float | None = None
    call_instead: Endpoint | None = None  # the endpoint that calls what the batches do not finish in time
    ordered: bool = False
    dedupe: bool = False
    all_differ: bool = False  # no two requests are the same: somebody has looked already
    new: bool = False
    retry_failed: bool = False
    wait: bool = False  # keep trying, whatever the first replies are
    label: str | None = None
    replies_as_chat: bool = False  # in the result files; stored replies are not changed
    # Gets the text of each answer that comes to this process, and raises ValueError or AssertionError if it does not
    # fit: then the model is asked again, as often as the endpoints' `reasks` say. Any other exception fails this
    # request only. It stands in for the endpoints' schema: pass `AnswerSchema.parse`, or a function that calls it.
    check: AnswerCheck | None = None
    try_first: int | None = None  # send only so many, the first ones, and stop
    at_end: AtEnd | None = None  # the last step of the run, which may change its summary
    reuse: Reuse = ALWAYS  # which answers of earlier runs are used

    @property
    def move_seconds(self) -> float | None:
        """After this time, requests that the batches have not finished are called: the last quarter of the deadline is
        left for that."""
        if self.call_instead is None or self.deadline_seconds is None:
            return None
        return self.deadline_seconds * 3 / 4

    @property
    def slots(self) -> int:
        """How many requests the run's own worker holds at once."""
        return self.concurrency if self.endpoint.lane is not Lane.BATCH else BATCH_REQUESTS_MAX

    @property
    def batch_requests_min(self) -> int:
        """The fewest requests that can be sent; 1 if single ones can, some of them in another way than batches."""
        if self.endpoint.lane is not Lane.BATCH or self.call_instead is not None or self.has_fallbacks:
            return 1
        least = (provider_named(start.api).batch_requests_min for start in self.endpoint.starts)
        return min(1 if each is None else each() for each in least)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All endpoints of the run: of each provider and its fallbacks, and with `--lane cheapest` of both lanes."""
        return (*self.endpoint.all, *(() if self.call_instead is None else self.call_instead.all))

    def end_of(self, endpoint: Endpoint) -> Endpoint:
        """The last endpoint of a request that begins at this one: requests that batches do not finish in time are
        called."""
        calls = () if self.call_instead is None else self.call_instead.starts
        return next((call for call in calls if call.api == endpoint.api), endpoint)

    def terms_of(self, api: str) -> ProviderTerms:
        return self.terms.get(api, ProviderTerms(PersonsLimits(concurrency=self.concurrency)))

    @property
    def has_fallbacks(self) -> bool:
        return any(start.then for start in self.endpoint.starts)

    @property
    def search(self) -> Search | None:
        """Which earlier answers the store looks for. An answer of a fallback counts only if this run has the same
        fallback."""
        if not self.reuse.wanted:
            return None
        age = self.reuse.age_seconds
        own = tuple(endpoint.name for endpoint in self.endpoints) if self.has_fallbacks else ()
        return Search(None if age is None else int(age * 1000), own)

    def key(self, digest: str, number: int) -> str:
        """The key of the run in the database. It covers what is sent, where it is sent and how, and the number of the
        run among equal ones. Limits, the budget and the output files may change from one try to the next.
        """
        terms = "\0".join((digest, self.endpoint.dump(), str(self.delivery), str(self.dedupe)))
        return f"run:{hashlib.sha256(terms.encode()).hexdigest()[:40]}:{number}"


class WeighedRun:
    """Checks every request before the first is sent: under a budget, each must have a maximum cost."""

    def __init__(self, order_of: Callable[[Route], Order]) -> None:
        self._order_of = order_of
        self._scales: dict[Route, Scales] = {}

    def add(self, parsed: ParsedRequest) -> None:
        scales = self._scales.get(parsed.route)
        if scales is None:
            scales = self._scales[parsed.route] = Scales.of(self._order_of(parsed.route))
        scales.weigh(parsed.request, parsed.fields, parsed.fallbacks)

    def clear(self) -> None:
        """Nothing is added up."""


class Scales:
    """Computes the cost of the requests of one endpoint. Remembers whether the price of any was unknown: then the cost
    of the run is unknown too."""

    def __init__(
        self,
        form: RequestForm,
        prices: PriceList,
        ceiling: bool,
        replies_bounded: bool,
        fallback: "Scales | None",
        asks_again: bool = False,
    ) -> None:
        self._estimate = form.estimate
        self._prices = prices
        self._ceiling = ceiling
        self._replies_bounded = replies_bounded
        self._fallback = fallback
        self._asks_again = asks_again
        self._place: FallbackPlace | None = None
        self._priced = True

    @classmethod
    def of(cls, order: Order, endpoint: Endpoint | None = None) -> Self:
        """The most expensive way of a request counts: a call, if its batch may not finish in time."""
        endpoint = endpoint or order.endpoint
        end, most, then = order.end_of(endpoint), order.output_tokens_default, endpoint.fallback
        prices = PriceList(end.base_url, end.lane, given_price(end), most, end.api)
        fallback = None if then is None else cls.of(order, then)
        ceiling = order.budget_micros is not None
        made = cls(provider_named(end.api).requests, prices, ceiling, most is not None, fallback, end.reasks > 0)
        made._place = place_of(endpoint)
        return made

    @classmethod
    def by_provider(cls, order: Order) -> dict[str, Self]:
        """For a run without fallbacks."""
        return {endpoint.api: cls.of(order, endpoint) for endpoint in order.endpoint.starts}

    @property
    def priced(self) -> bool:
        return self._priced and (self._fallback is None or self._fallback.priced)

    def weigh(
        self, request: LlmRequest, fields: Mapping[str, Any], fallbacks: Sequence[FallbackRequest] = ()
    ) -> tuple[int | None, int, int]:
        """The maximum cost, the tokens, and the output tokens among them, over all providers that may get the request.
        Under a budget, a request without a maximum cost is refused."""
        weight = self._weigh_here(request.custom_id, request.url, request.body, fields)
        if self._fallback is None or not fallbacks:
            return weight
        then, *later = fallbacks
        elsewhere = LlmRequest(request.custom_id, then.url, then.body)
        worst, *tokens = self._fallback.weigh(elsewhere, then.fields, later)
        dearest = None if worst is None or weight[0] is None else max(worst, weight[0])
        return dearest, max(tokens[0], weight[1]), max(tokens[1], weight[2])

    def _weigh_here(
        self, custom_id: str, url: str, body: str, fields: Mapping[str, Any]
    ) -> tuple[int | None, int, int]:
        estimate = self._estimate(url, body, fields)
        worst = self._prices.worst_micros(with_reask(estimate) if self._asks_again else estimate)
        if worst is None and self._priced:
            self._priced = self._prices.price(estimate) is not None
        if worst is None and self._ceiling:
            where = "" if self._place is None else f" at its fallback {self._place.fallback}"
            raise UsageError(
                f"the cost of {custom_id!r}{where} has no limit, so --budget cannot be enforced; nothing was sent",
                hint=self._hint(estimate),
            )
        most = estimate.output_tokens_max
        written = min(estimate.output_tokens_expected if most is None else most, TOKENS_MAX)
        return worst, min(estimate.input_tokens, TOKENS_MAX) + written, written

    def weigh_stored(self, body: str) -> int | None:
        """The maximum cost of a stored request, from this endpoint on."""
        request, weights = unseal(body), list[int | None]()
        scales: Scales | None = self
        while scales is not None:
            there = FallbackRequest(Fallback("", ""), request.url, request.body, json.loads(request.body))
            if scales._place is not None:
                there = request_for(scales._place, request)
            weights.append(scales._weigh_here(request.custom_id, there.url, there.body, there.fields)[0])
            scales = scales._fallback
        known = [weight for weight in weights if weight is not None]
        return max(known) if len(known) == len(weights) else None

    def _hint(self, estimate: TokenEstimate) -> str:
        """What the user must give, so that the maximum cost is known."""
        endless = estimate.output_tokens_max is None and not self._replies_bounded
        if self._prices.price(estimate) is None:
            instead = (
                "give --price IN/OUT" if self._place is None else f"write {self._place.fallback}=IN/OUT in --fallback"
            )
            unpriced = f"no price is known for model {estimate.model!r}: {instead}"
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
    scales = {endpoint.name: Scales.of(order, endpoint) for endpoint in order.endpoints}
    weighed_too, cursor = order.output_tokens_default is not None, -1
    while page := await client.store.job_views.unsent_items(job_id, weighed_too, cursor):
        weights = [(item, scales[item.handler].weigh_stored(item.body)) for item in page]
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
        starts = {route_of(start): start for start in order.endpoint.starts}
        self._scales = {route: Scales.of(order, start) for route, start in starts.items()}
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
        """How many requests are copies of another one."""
        return self._left_out

    @property
    def priced(self) -> bool:
        return all(scales.priced for scales in self._scales.values())

    async def find(self, client: Client) -> int | None:
        """The job of this run, if it was started before. With `--new`, the run gets the next number among equal
        ones."""
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
        for endpoint in self._order.endpoints:
            await announce(client.store, endpoint, self._order.terms_of(endpoint.api))

    async def wait_for_job(self, submitting: "asyncio.Task[int]") -> int:
        """The job's id, as soon as there is one. Raises the error that kept it from being created."""
        await asyncio.wait((submitting, self._job_id), return_when=asyncio.FIRST_COMPLETED)
        if not self._job_id.done():
            submitting.result()
        return await self._job_id

    async def send(self, client: Client, wake: Callable[[], None]) -> int:
        """Streams every request in, in constant memory; returns the job's id."""
        order, then = self._order, self._order.endpoint.fallback
        options = Options(
            idempotency_key=self._key,
            delivery=order.delivery,
            deadline_seconds=order.deadline_seconds,
            label=order.label,
            budget_micros=order.budget_micros,
            fallback=None if then is None else then.name,
            handler_then=None if order.call_instead is None else order.call_instead.name,
            move_seconds=order.move_seconds,
        )
        items = self._items(client)
        try:
            seconds = client.limits.llm_job_timeout_seconds
            search = order.search if await client.store.answers.any() else None
            told = (wake, self._tell_opened, seconds)
            job = await client.submit(order.endpoint.name, items, options, str, *told, search)
        except FileChanged as changed:
            await self._give_up(client, changed)
            raise
        except (NotAllowed, IdempotencyConflict):
            raise NotAllowed(f"job {await self._job_id} contains only a part of this file", hint=STOPPED) from None
        await self._add_copies(client)
        return job.id

    async def _give_up(self, client: Client, changed: FileChanged) -> None:
        """Ends a job that can never be complete, because the rest of its requests is lost; a complete job continues."""
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
        ways = {
            (route := route_of(start)): (self._scales[route], RequestKeys.of(client.owner, start), start.name)
            for start in self._order.endpoint.starts
        }
        look = self._order.dedupe and not self._order.all_differ
        with Originals() as originals:
            for number, found in enumerate(requests(self._source, self._surveyed), 1):
                request = found.request
                first = originals.first(request, position, found.api) if look else position
                if first == position:
                    scales, keys, handler = ways[found.route]
                    worst, tokens, written = scales.weigh(request, found.fields, found.fallbacks)
                    key = keys.key(request.url, found.fields, found.model, sample_of(request.metadata))
                    yield Weighed(seal(request), worst, tokens, handler, written, key)
                    position += 1
                    continue
                self._left_out += 1
                self._copies.append((first, number, request.custom_id))
                if len(self._copies) >= COPIES_CHUNK and self._job_id.done():
                    await self._add_copies(client)

    async def _add_copies(self, client: Client) -> None:
        """Stores which requests share an answer: it is paid for once, and each of them gets a line in the results."""
        copies, self._copies = self._copies, []
        if copies:
            job_id = await self._job_id
            await client.store.submissions.add_copies(
                [(item_id(job_id, first), number, name) for first, number, name in copies]
            )
