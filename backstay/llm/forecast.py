"""Estimates the tokens, money and time of a file of requests, before anything is sent."""

from dataclasses import dataclass

from backstay.llm.duplicates import Originals
from backstay.llm.endpoint import DEFAULT_API
from backstay.llm.formats import ParsedRequest
from backstay.llm.intake import KINDS_MAX, OTHERS, Kind, Tally, kind_of
from backstay.llm.prices import PriceList
from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, TokenEstimate
from backstay.llm.registry import provider_named

REPLY_TOKENS_MIN = 1
MINUTE_SECONDS = 60


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


class Forecast:
    """Adds up requests by endpoint and model, as a survey shows them. `dearest` are the prices of the worst case, where
    a request may end up in another lane; `output_tokens_default` bounds replies whose requests set no bound."""

    def __init__(
        self,
        prices: PriceList,
        output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED,
        *,
        dearest: PriceList | None = None,
        output_tokens_default: int | None = None,
        api: str = DEFAULT_API,
    ) -> None:
        self._estimate = provider_named(api).requests.estimate
        self.shares: dict[Kind, ForecastShare] = {}
        self._prices = prices
        self._dearest = dearest or prices
        self._output_tokens_expected = output_tokens_expected
        self._output_tokens_default = output_tokens_default

    def add(self, parsed: ParsedRequest) -> None:
        kind = kind_of(parsed)
        if kind not in self.shares and len(self.shares) >= KINDS_MAX:
            kind = OTHERS
        estimate = self._estimate(parsed.url, parsed.body, parsed.fields, self._output_tokens_expected)
        share = self.shares.get(kind)
        if share is None:
            share = self.shares[kind] = ForecastShare(self._price_shown(estimate))
        self._add_one(share, estimate)

    def clear(self) -> None:
        self.shares.clear()

    @property
    def total(self) -> ForecastShare:
        total = ForecastShare()
        for share in self.shares.values():
            total.add(share)
        return total

    def _add_one(self, share: ForecastShare, estimate: TokenEstimate) -> None:
        read, written = estimate.input_tokens, estimate.output_tokens_expected
        share.requests += 1
        share.input_tokens += read
        share.output_tokens += written
        share.input_tokens_max = _plus(share.input_tokens_max, estimate.input_tokens_max)
        longest = estimate.output_tokens_max
        if longest is None and self._output_tokens_default is not None:
            longest = self._output_tokens_default * estimate.replies
        share.output_tokens_max = _plus(share.output_tokens_max, longest)
        price = self._prices.price(estimate)
        if price is None:
            share.low_micros = share.expected_micros = share.worst_micros = None
            return
        low = price.cost_micros(read, min(REPLY_TOKENS_MIN * estimate.replies, written))
        share.low_micros = _plus(share.low_micros, low)
        share.expected_micros = _plus(share.expected_micros, price.cost_micros(read, written))
        share.worst_micros = _plus(share.worst_micros, self._dearest.worst_micros(estimate))

    def _price_shown(self, estimate: TokenEstimate) -> str:
        price = self._prices.price(estimate)
        return "unknown" if price is None else f"{price} ({self._prices.source(estimate)})"


class Distinct:
    """Counts a request that is in the file several times only once, as a run pays for it once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._originals = Originals()
        self._seen = 0

    def add(self, parsed: ParsedRequest) -> None:
        self._seen += 1
        if self._originals.first(parsed.request, self._seen) == self._seen:
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

    def seconds(self, share: ForecastShare) -> dict[str, float]:
        """How long the run would take under each limit alone, by the limit's name."""
        taken = {}
        if self.requests_per_minute is not None:
            taken["rpm"] = share.requests * MINUTE_SECONDS / self.requests_per_minute
        if self.tokens_per_minute is not None:
            tokens = share.input_tokens + share.output_tokens
            taken["tpm"] = tokens * MINUTE_SECONDS / self.tokens_per_minute
        if self.latency_seconds is not None and self.concurrency is not None:
            rounds = -(-share.requests // self.concurrency)
            taken["concurrency"] = rounds * self.latency_seconds
        return taken

    def longest(self, share: ForecastShare) -> tuple[str, float] | None:
        """The slowest limit, and the time it takes; None if no limit is known."""
        return max(self.seconds(share).items(), key=lambda taken: taken[1], default=None)


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
