"""What a person asks of a run, what its requests weigh, and which run it is: same file and terms, same run."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from backstay.client import Client
from backstay.core.errors import UsageError
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.formats import ParsedRequest
from backstay.llm.lines import LlmRequest, unseal
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
