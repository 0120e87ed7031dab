"""Estimates the tokens, money and time of a file of requests, before anything is sent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from backstay.core.pace import NO_FURTHER_LIMITS, FurtherLimits
from backstay.llm.fallbacks import Fallback, FallbackRequest
from backstay.llm.formats import ParsedRequest
from backstay.llm.intake import KINDS_MAX, OTHERS, Kind, Tally, kind_of
from backstay.llm.prices import PriceList, with_reask
from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, RequestForm, TokenEstimate
from backstay.llm.providers import provider_named
from backstay.llm.repeated_requests import Originals

REPLY_TOKENS_MIN = 1
MINUTE_SECONDS = 60
DAY_SECONDS = 86_400


@dataclass(slots=True)
class ForecastShare:
    """The requests to one endpoint and model. A sum of which one part is not known is None."""

    price: str = ""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_max: int | None = 0
    output_tokens_max: int | None = 0
    low_micros: int | None = 0  # every reply is one token long
    expected_micros: int | None = 0
    worst_micros: int | None = 0

    def add(self, other: "ForecastShare") -> None:
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.input_tokens_max = _plus(self.input_tokens_max, other.input_tokens_max)
        self.output_tokens_max = _plus(self.output_tokens_max, other.output_tokens_max)
        self.low_micros = _plus(self.low_micros, other.low_micros)
        self.expected_micros = _plus(self.expected_micros, other.expected_micros)
        self.worst_micros = _plus(self.worst_micros, other.worst_micros)


class ForecastPrices(NamedTuple):
    """The prices that are expected, and those of the worst case, where a request may end up in another lane."""

    expected: PriceList
    dearest: PriceList


class Forecast:
    """Adds up requests by endpoint and model, as a survey shows them. `prices_of` gives the prices of a provider, and
    `fallback_prices_of` those of a fallback; `output_tokens_default` bounds replies whose requests set no
    bound."""

    def __init__(
        self,
        prices_of: Callable[[str], ForecastPrices],
        output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED,
        *,
        output_tokens_default: int | None = None,
        fallback_prices_of: Callable[[Fallback], PriceList] | None = None,
        reasks: int = 0,
    ) -> None:
        self.shares: dict[Kind, ForecastShare] = {}
        self._prices_of = prices_of
        self._by_provider: dict[str, tuple[RequestForm, ForecastPrices]] = {}
        self._fallback_prices_of = fallback_prices_of
        self._fallback_prices: dict[Fallback, PriceList] = {}
        self._output_tokens_expected = output_tokens_expected
        self._output_tokens_default = output_tokens_default
        self._reasks = reasks  # how often the model may be asked for a better answer: each is paid for

    def add(self, parsed: ParsedRequest) -> None:
        kind = kind_of(parsed)
        if kind not in self.shares and len(self.shares) >= KINDS_MAX:
            kind = OTHERS
        form, prices = self._by_provider.get(parsed.api) or self._learn(parsed.api)
        estimate = form.estimate(parsed.url, parsed.body, parsed.fields, self._output_tokens_expected)
        share = self.shares.get(kind)
        if share is None:
            share = self.shares[kind] = ForecastShare(_price_shown(estimate, prices.expected))
        self._add_one(share, estimate, prices)
        if prices.expected.price(estimate) is not None:
            costs = [self._worst(prices.dearest, estimate), *map(self._worst_at, parsed.fallbacks)]
            known = [cost for cost in costs if cost is not None]
            worst = max(known) if len(known) == len(costs) else None  # one call at a time is paid
            share.worst_micros = _plus(share.worst_micros, worst)

    def _worst_at(self, there: FallbackRequest) -> int | None:
        fallback = there.fallback
        if fallback not in self._fallback_prices:
            assert self._fallback_prices_of is not None, "requests with fallbacks need their prices"
            self._fallback_prices[fallback] = self._fallback_prices_of(fallback)
        estimate = provider_named(fallback.api).requests.estimate(there.url, there.body, there.fields)
        return self._worst(self._fallback_prices[fallback], estimate)

    def _worst(self, prices: PriceList, estimate: TokenEstimate) -> int | None:
        worst = prices.worst_micros(estimate)
        again = prices.worst_micros(with_reask(estimate)) if self._reasks else 0
        return None if worst is None or again is None else worst + self._reasks * again

    def _learn(self, api: str) -> tuple[RequestForm, ForecastPrices]:
        learnt = self._by_provider[api] = (provider_named(api).requests, self._prices_of(api))
        return learnt

    def clear(self) -> None:
        self.shares.clear()

    @property
    def total(self) -> ForecastShare:
        total = ForecastShare()
        for share in self.shares.values():
            total.add(share)
        return total

    def _add_one(self, share: ForecastShare, estimate: TokenEstimate, prices: ForecastPrices) -> None:
        read, written = estimate.input_tokens, estimate.output_tokens_expected
        share.requests += 1
        share.input_tokens += read
        share.output_tokens += written
        share.input_tokens_max = _plus(share.input_tokens_max, estimate.input_tokens_max)
        longest = estimate.output_tokens_max
        if longest is None and self._output_tokens_default is not None:
            longest = self._output_tokens_default * estimate.replies
        share.output_tokens_max = _plus(share.output_tokens_max, longest)
        price = prices.expected.price(estimate)
        if price is None:
            share.low_micros = share.expected_micros = share.worst_micros = None
            return
        low = price.cost_micros(read, min(REPLY_TOKENS_MIN * estimate.replies, written))
        share.low_micros = _plus(share.low_micros, low)
        share.expected_micros = _plus(share.expected_micros, price.cost_micros(read, written))


class Distinct:
    """Counts a request that is in the file several times only once, as a run pays for it once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._originals = Originals()
        self._seen = 0

    def add(self, parsed: ParsedRequest) -> None:
        self._seen += 1
        if self._originals.first(parsed.request, self._seen, parsed.api) == self._seen:
            self._tally.add(parsed)

    def clear(self) -> None:
        self._tally.clear()
        self._originals = Originals()


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """The limits of a run; None: no limit, or none that is known."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    latency_seconds: float | None = None
    further: FurtherLimits = NO_FURTHER_LIMITS

    def seconds(self, share: ForecastShare) -> dict[str, float]:
        """How long the run would take under each limit alone, by the limit's name."""
        taken = {}
        if self.requests_per_minute is not None:
            taken["rpm"] = share.requests * MINUTE_SECONDS / self.requests_per_minute
        if self.tokens_per_minute is not None:
            tokens = share.input_tokens + share.output_tokens
            taken["tpm"] = tokens * MINUTE_SECONDS / self.tokens_per_minute
        inputs, outputs, per_day = self.further
        for name, tokens, limit in (("itpm", share.input_tokens, inputs), ("otpm", share.output_tokens, outputs)):
            if limit is not None:
                taken[name] = tokens * MINUTE_SECONDS / limit
        if per_day is not None:
            taken["rpd"] = max(share.requests - 1, 0) // per_day * DAY_SECONDS
        if self.latency_seconds is not None and self.concurrency is not None:
            rounds = -(-share.requests // self.concurrency)
            taken["concurrency"] = rounds * self.latency_seconds
        return taken

    def longest(self, share: ForecastShare) -> tuple[str, float] | None:
        """The slowest limit, and the time it takes; None if no limit is known."""
        return max(self.seconds(share).items(), key=lambda taken: taken[1], default=None)


def _price_shown(estimate: TokenEstimate, prices: PriceList) -> str:
    price = prices.price(estimate)
    return "unknown" if price is None else f"{price} ({prices.source(estimate)})"


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
