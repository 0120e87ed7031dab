"""The prices of tokens, in whole micro-dollars; an unknown price is None and never 0."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from backstay.clock import DAY_MS, Clock
from backstay.core.errors import UsageError
from backstay.core.models import Usage
from backstay.llm.endpoint import DEFAULT_API, Endpoint, Lane
from backstay.llm.provider import TokenEstimate
from backstay.llm.providers import provider_named
from backstay.llm.schemas import ANSWER_BYTES_MAX, PROBLEM_BYTES_MAX, REASK_TOKENS

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

MILLION = 1_000_000
MICROS_MAX = 10**12  # a million dollars: no call costs more, and sums of such amounts fit into the database
PRICE_MICROS_MAX = 1_000_000 * MILLION
MODELS_REMEMBERED_MAX = 4096
MODEL_CHARACTERS_MAX = 200
DEAR_TIERS = ("priority", "fast")  # any other tier costs the standard price, or less
ANY = "openai"  # in the list; other services, too, speak its API and have models by these names
EMBEDDINGS = "embeddings"  # as the list calls their replies

_FORM = "write dollars per million tokens as INPUT/OUTPUT or INPUT/OUTPUT/CACHED, for example 0.15/0.60"
_AMOUNT = re.compile(r"\$?([0-9]+(?:\.[0-9]+)?|\.[0-9]+)")


class PricePerMillion(NamedTuple):
    """Micro-dollars for a million tokens. Beyond some length of input, all of a request may cost more."""

    input_micros_per_million: int
    output_micros_per_million: int
    cached_micros_per_million: int | None = None  # of input from the provider's cache; None: as other input
    written_micros_per_million: int | None = None  # of input that is written to the cache; None: as other input
    call_micros: int = 0
    above: "tuple[int, PricePerMillion] | None" = None  # tokens of input, and the price when there are more
    hour_micros_per_million: int | None = None  # of input that is cached for an hour, if that costs more

    def cost_micros(
        self, input_tokens: int, output_tokens: int, cached_tokens: int = 0, written_tokens: int = 0
    ) -> int:
        """Rounded up to a whole micro-dollar."""
        plain, output, cached, written, call_micros, above, _ = self
        if above is not None and input_tokens > above[0]:
            return above[1].cost_micros(input_tokens, output_tokens, cached_tokens, written_tokens)
        total = input_tokens * plain + output_tokens * output
        if cached_tokens:
            cached_tokens = cached_tokens if cached_tokens < input_tokens else input_tokens
            total += cached_tokens * (_or(cached, plain) - plain)
        if written_tokens and written is not None:
            total += min(written_tokens, input_tokens - cached_tokens) * (written - plain)
        cost = call_micros - (-total // MILLION)
        return cost if cost < MICROS_MAX else MICROS_MAX

    def worst_micros(self, input_tokens: int, output_tokens: int) -> int:
        """The most that so many tokens or fewer can cost, cached or not."""
        dear = max(self[0], self[2] or 0, self[3] or 0, self.hour_micros_per_million or 0)
        total = input_tokens * dear + output_tokens * self.output_micros_per_million
        worst = min(self.call_micros - (-total // MILLION), MICROS_MAX)
        if self.above is not None and input_tokens > self.above[0]:
            worst = max(worst, self.above[1].worst_micros(input_tokens, output_tokens))
        return worst

    def __str__(self) -> str:
        rates = (self.input_micros_per_million, self.output_micros_per_million, self.cached_micros_per_million)
        return "/".join(f"{Decimal(rate) / MILLION:f}" for rate in rates if rate is not None)


class Quote(NamedTuple):
    """A price, its source, and the context window of the model: input and output together."""

    price: PricePerMillion
    source: str
    window_tokens: int | None


def parse_price(text: str) -> PricePerMillion:
    """A price as a person writes it: 0.15/0.60, $0.15/$0.60 or, with that of cached input, 0.15/0.60/0.075."""
    amounts = [_AMOUNT.fullmatch(part.strip()) for part in text.split("/")]
    rates = [_micros(Decimal(amount[1])) for amount in amounts if amount is not None]
    if len(rates) != len(amounts) or len(rates) not in (2, 3) or max(rates) > PRICE_MICROS_MAX:
        raise UsageError(f"{text!r} is not a price", hint=_FORM)
    return PricePerMillion(rates[0], rates[1], rates[2] if len(rates) == 3 else None)


def given_price(endpoint: Endpoint) -> PricePerMillion | None:
    """The price that an endpoint's user gave for all its models."""
    if endpoint.price is None:
        return None
    read, written, *cached = endpoint.price
    return PricePerMillion(read, written, cached[0] if cached else None)


class LanePrices:
    """The cost of replies of one lane: at the price that the user gave for all models, otherwise at the published
    price. A given price is the price of this lane; published prices of batches are already lower.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._given = given_price(endpoint)
        self._base_url = endpoint.base_url
        self._lane = endpoint.lane
        self._listed = provider_named(endpoint.api).price_list

    def __call__(self, model: str, tier: str | None) -> PricePerMillion | None:
        return self._given or price_of(model, self._base_url, self._lane, tier, self._listed)

    def usage_by_list(self, model: str, tier: str | None, body: Mapping[str, Any]) -> Iterator[Usage]:
        """The price list's own readings of a reply. It knows every provider's replies, and units other than tokens of
        text."""
        found = None if self._given is not None else _find(model, self._base_url, self._listed)
        rates = None if found is None else _rates(*found, self._lane, tier, _now())
        if found is None or rates is None:
            return
        provider, (per_unit, share) = found[0], rates
        for extractor in provider.extractors or ():
            if extractor.api_flavor == EMBEDDINGS:
                continue  # it would read missing output as zero output
            try:
                _, used = provider.extract_usage(body, api_flavor=extractor.api_flavor)
                cost = per_unit.calc_price(used)["total_price"] / share
                yield Usage(math.ceil(used.input_tokens or 0), math.ceil(used.output_tokens or 0), _micros(cost))
            except (ValueError, TypeError, LookupError, ArithmeticError):
                continue  # a reply of another kind, or one that contradicts itself


class PriceList:
    """The prices of one service: the one that its user gives for all models, else the published ones."""

    def __init__(
        self,
        base_url: str,
        lane: Lane = Lane.CALL,
        given: PricePerMillion | None = None,
        output_tokens_default: int | None = None,
        api: str = DEFAULT_API,
    ) -> None:
        self._listed = provider_named(api).price_list
        self._base_url = base_url
        self._lane = lane
        self._given = given
        self._output_tokens_default = output_tokens_default
        self._quotes: dict[tuple[str, str | None], Quote | None] = {}

    def price(self, estimate: TokenEstimate) -> PricePerMillion | None:
        """The price for such a request."""
        if self._given is not None:
            return self._given
        found = self._quote(estimate)
        return None if found is None else found.price

    def source(self, estimate: TokenEstimate) -> str:
        """Where the price comes from."""
        if self._given is not None:
            return "as given"
        found = self._quote(estimate)
        return "unknown" if found is None else found.source

    def worst_micros(self, estimate: TokenEstimate) -> int | None:
        """The most that one call can cost; None if there is no bound, or no price."""
        price = self.price(estimate)
        if price is None:
            return None
        if estimate.input_tokens_max is not None and estimate.output_tokens_max is not None:
            return price.worst_micros(estimate.input_tokens_max, estimate.output_tokens_max)
        found = self._quote(estimate)
        window = None if found is None else found.window_tokens
        return worst_micros(estimate, price, self._output_tokens_default, window)

    def _quote(self, estimate: TokenEstimate) -> Quote | None:
        if estimate.model is None:
            return None
        key = (estimate.model, estimate.tier)
        if key not in self._quotes:
            if len(self._quotes) >= MODELS_REMEMBERED_MAX:
                self._quotes.clear()
            self._quotes[key] = quote(estimate.model, self._base_url, self._lane, estimate.tier, self._listed)
        return self._quotes[key]


def worst_micros(
    estimate: TokenEstimate,
    price: PricePerMillion,
    output_tokens_default: int | None = None,
    window_tokens: int | None = None,
) -> int | None:
    """The most that one call can cost, to be reserved before it is made; None if there is no bound.

    Where the body sets no bound on the output, the user's default counts, and without one the whole context window of
    the model. The window also bounds the input that the body does not show, unless the provider's own tools add to it.
    """
    read = estimate.input_tokens_max
    if read is None and estimate.one_pass:
        read = window_tokens
    written = estimate.output_tokens_max
    if written is None:
        each = output_tokens_default if output_tokens_default is not None else window_tokens
        written = None if each is None else each * estimate.replies
    return None if read is None or written is None else price.worst_micros(read, written)


def with_reask(estimate: TokenEstimate) -> TokenEstimate:
    """The maximum estimate of a request that shows the model its last answer and the errors in it."""
    if estimate.input_tokens_max is None:
        return estimate
    answer = min(ANSWER_BYTES_MAX, estimate.output_tokens_max or ANSWER_BYTES_MAX)
    return estimate._replace(input_tokens_max=estimate.input_tokens_max + answer + PROBLEM_BYTES_MAX + REASK_TOKENS)


def price_of(
    model: str, base_url: str, lane: Lane = Lane.CALL, tier: str | None = None, listed: str | None = ANY
) -> PricePerMillion | None:
    """The published price of a model at the service behind a URL; None if it is not known."""
    found = quote(model, base_url, lane, tier, listed)
    return None if found is None else found.price


def _now() -> datetime:
    return datetime.fromtimestamp(Clock().now_ms() / 1000, UTC)


def quote(
    model: str, base_url: str, lane: Lane = Lane.CALL, tier: str | None = None, listed: str | None = ANY
) -> Quote | None:
    """By the list of the installed genai-prices: nothing is downloaded. `listed` is the provider's name there."""
    return _quote(model, base_url, lane, tier, listed, Clock().now_ms() // DAY_MS)


@lru_cache(maxsize=MODELS_REMEMBERED_MAX)
def _quote(model: str, base_url: str, lane: Lane, tier: str | None, listed: str | None, day: int) -> Quote | None:
    found = _find(model, base_url, listed)
    if found is None:
        return None
    provider, info = found
    start = datetime.fromtimestamp(day * DAY_MS / 1000, UTC)
    # Some prices go by the hour; which one a call gets is not known before, so the highest counts.
    rates = [_rates(provider, info, lane, tier, start + timedelta(hours=hour)) for hour in range(24)]
    known = [price for rate in rates if rate is not None and (price := _price(*rate)) is not None]
    if not known:
        return None
    return Quote(max(known, key=lambda price: price[:2]), f"{provider.id} {info.id}", info.context_window)


@lru_cache(maxsize=MODELS_REMEMBERED_MAX)
def _find(model: str, base_url: str, listed: str | None) -> "tuple[Provider, ModelInfo] | None":
    """By the provider of this address. If the address is unknown: by the provider's name in the list, or if many
    services share that, by the provider of a model of this name."""
    if len(model) > MODEL_CHARACTERS_MAX:
        return None
    # The list alone is a megabyte of Python, and the package imports an HTTP client.
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    try:
        provider = snapshot.find_provider(None, None, base_url or "-")
    except LookupError:
        for wanted in (None, ANY) if listed == ANY else () if listed is None else (listed,):
            try:
                return snapshot.find_provider_model(model, None, wanted, None)
            except LookupError:
                continue
        return None
    info = provider.find_model(model, all_providers=snapshot.providers)
    return None if info is None else (provider, info)


def _rates(
    provider: "Provider", info: "ModelInfo", lane: Lane, tier: str | None, at: datetime
) -> "tuple[ModelPrice, int] | None":
    """The listed price, and a divisor. The list has some prices of batches and tiers; a batch without a listed price
    costs half."""
    own = any(info is model for model in provider.models)
    variants = [variant.when for variant in info.price_variants or () if own]
    if lane is Lane.BATCH:
        listed = {"processing": "batch"} in variants
        return info.get_prices(at, {"processing": "batch"} if listed else None), 1 if listed else 2
    if tier is not None and {"service_tier": tier} in variants:
        return info.get_prices(at, {"service_tier": tier}), 1
    return None if tier in DEAR_TIERS else (info.get_prices(at), 1)


def _price(rates: "ModelPrice", share: int) -> PricePerMillion | None:
    if rates.input_mtok is None:
        return None  # prices per hour or per picture have no price per token
    starts = {tier.start for rate in vars(rates).values() if rate is not None for tier in getattr(rate, "tiers", ())}
    price: PricePerMillion | None = None
    above: tuple[int, PricePerMillion] | None = None
    for start in sorted({0, *starts}, reverse=True):
        price = PricePerMillion(
            _or(_rate(rates.input_mtok, start, share), 0),
            # Embeddings have no output, and so no price for it.
            _or(_rate(rates.output_mtok, start, share), 0),
            _rate(rates.cache_read_mtok, start, share),
            _rate(rates.cache_write_mtok, start, share),
            _or(_rate(rates.requests_kcount, start, share * 1000), 0),
            above,
            _rate(rates.cache_write_1h_mtok, start, share),
        )
        above = (start, price)
    return price


def _rate(rate: "Decimal | TieredPrices | None", start: int, share: int) -> int | None:
    """A rate as it is when there are more than `start` tokens of input."""
    if rate is None:
        return None
    if not isinstance(rate, Decimal):
        rate = next((tier.price for tier in reversed(rate.tiers) if tier.start <= start), rate.base)
    return _micros(rate / share)


def _micros(dollars: Decimal) -> int:
    return int((dollars * MILLION).to_integral_value(ROUND_CEILING))


def _or(rate: int | None, otherwise: int) -> int:
    return otherwise if rate is None else rate
