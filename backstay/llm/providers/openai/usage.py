"""The usage that a reply reports, and its cost. If it can be read in several ways, the most expensive one counts."""

import math
import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final, NamedTuple

from backstay.core.models import Usage
from backstay.llm.provider import TOKENS_MAX, PriceOf, TokenPrice

STATED_MICROS_MAX: Final = 10**10  # ten thousand dollars for one call; the same
PARTS_MAX: Final = 64  # of a usage object, or of one inside it: a larger one is not passed to the price list
DOLLAR_MICROS: Final = 1_000_000
TICKS_PER_MICRO: Final = 10_000  # of xAI

# The usual shapes. With nothing else in them, and sums that agree, there is one way to read them.
_CHAT: Final = frozenset(
    ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")
)
_RESPONSES: Final = frozenset(
    ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")
)

_PLACES: Final = ("usage", "usageMetadata", "usage_metadata")
_INSIDE: Final = ("billed_units", "tokens")
_READ: Final = ("prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens")
_WRITTEN: Final = ("completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens")
_TOTAL: Final = ("total_tokens", "totalTokenCount", "totalTokens")
_DETAILS_READ: Final = ("prompt_tokens_details", "input_tokens_details")
_DETAILS_WRITTEN: Final = ("completion_tokens_details", "output_tokens_details")
_CACHED: Final = ("prompt_cache_hit_tokens", "cached_tokens", "cached_prompt_text_tokens", "cachedContentTokenCount")
_CACHE_HIT: Final = ("cache_read_input_tokens", "cacheReadInputTokens")  # beside the input, not a part of it
_CACHE_WRITE: Final = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_AMOUNT: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,20})?", re.ASCII)
_BESIDE_WRITTEN: Final = ("thoughtsTokenCount", "reasoning_tokens", "citation_tokens")


class UsageReading(NamedTuple):
    """One way to read a usage object, in tokens."""

    read: int
    written: int
    cached: int = 0  # of those read: found in the provider's cache
    kept: int = 0  # of those read: written to the provider's cache


def usage_of(body: Mapping[str, Any], price_of: PriceOf) -> Usage:
    """The usage that a reply of any provider reports. The cost is None if the reply gives no credible figures."""
    model, tier = body.get("model"), body.get("service_tier")
    if type(model) is not str:
        model = body.get("modelVersion")
    tier = tier if type(tier) is str else None
    price = price_of(model, tier) if type(model) is str else None
    said = body.get("usage")
    usual = _read_usual(said) if type(said) is dict else None
    if usual is None:
        return _dearest_usage(body, model if type(model) is str else "", tier, price, price_of)
    if price is None:
        return Usage(usual[0], usual[1])
    return Usage(usual[0], usual[1], price.cost_micros(*usual))


def _dearest_usage(
    body: Mapping[str, Any], model: str, tier: str | None, price: TokenPrice | None, price_of: PriceOf
) -> Usage:
    readings = [one for said in _objects(body) if (one := _read_usage(said, bool(body.get("data")))) is not None]
    if any(max(one) > TOKENS_MAX for one in readings):
        return Usage()  # then its other figures are not credible either
    found = [Usage(*one[:2], None if price is None else price.cost_micros(*one)) for one in readings]
    if price is not None and _is_small(body):
        found += (used for used in price_of.usage_by_list(model, tier, body) if _is_plausible(used))
    dearest = max(found, key=lambda used: (used.cost_micros or 0, used.input_tokens + used.output_tokens), default=None)
    dearest = dearest or Usage()
    stated = max((micros for micros in map(_stated_micros, _objects(body)) if micros is not None), default=None)
    if stated is None:
        return dearest
    return dearest._replace(cost_micros=max(stated, dearest.cost_micros or 0))


def _read_usual(said: dict[str, Any]) -> tuple[int, int, int] | None:
    """Tokens read, written and cached, if there is only one way to read the reply, as with nearly all.
    Every reply passes here, so this is written for speed."""
    get = said.get
    if said.keys() <= _CHAT:
        read, written, total = get("prompt_tokens"), get("completion_tokens"), get("total_tokens")
        parts, answer = get("prompt_tokens_details"), get("completion_tokens_details")
    elif said.keys() <= _RESPONSES:
        read, written, total = get("input_tokens"), get("output_tokens"), get("total_tokens")
        parts, answer = get("input_tokens_details"), get("output_tokens_details")
    else:
        return None
    if type(read) is not int or type(written) is not int or not 0 <= read <= TOKENS_MAX >= written >= 0:
        return None
    if total is None:
        if answer:
            return None
    elif total != read + written:
        return None
    cached = thought = 0
    # Parts other than these have prices of their own.
    if parts is not None:
        if type(parts) is not dict or type(cached := parts.get("cached_tokens", 0)) is not int:
            return None
        if [*parts.values()].count(0) < len(parts) - (cached != 0):
            return None
    if answer is not None:
        if type(answer) is not dict or type(thought := answer.get("reasoning_tokens", 0)) is not int:
            return None
        if [*answer.values()].count(0) < len(answer) - (thought != 0):
            return None
    return (read, written, cached) if 0 <= cached <= read and 0 <= thought <= written else None


def _objects(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _PLACES:
        said = body.get(name)
        if isinstance(said, dict):
            yield said
            yield from (inner for inner in map(said.get, _INSIDE) if isinstance(inner, dict))


def _read_usage(said: dict[str, Any], is_embedding: bool) -> UsageReading | None:
    """The most expensive reading of one usage object; None if the tokens read or written are missing."""
    read, written, total = _most(said, _READ), _most(said, _WRITTEN), _most(said, _TOTAL)
    if "promptTokenCount" in said or "totalTokenCount" in said:  # Gemini leaves zeros out
        read, written = read or 0, written or 0
    if is_embedding:  # these have no output, and some name the total alone
        read, written = total if read is None else read, written or 0
    if read is None or (written is None and (total is None or total <= read)):
        return None
    written = written or 0
    read, cached, kept = _input(said, read, is_sum=total == read + written)
    written += _unsaid_output(said, written, total, read)
    if total is not None and total > read + written:
        written = total - read  # the unexplained difference is charged as well
    return UsageReading(read, written, cached, kept)


def _input(said: dict[str, Any], read: int, is_sum: bool) -> tuple[int, int, int]:
    """All tokens read, and of these the ones read from a cache and written to one. `is_sum`: the total is the
    sum of input and output, so other figures can only be parts of them."""
    read += _most(said, ("toolUsePromptTokenCount",)) or 0
    hit, kept = _most(said, _CACHE_HIT) or 0, _most(said, _CACHE_WRITE) or 0
    if hit or kept:
        is_part = "prompt_tokens" in said and is_sum and hit + kept <= read
        return (read if is_part else read + hit + kept), hit, kept
    parts = _details(said, _DETAILS_READ)
    named = [_count(said.get(name)) for name in _CACHED] + [_count(parts.get("cached_tokens"))]
    hits = [count for count in named if count is not None]
    cached = min(hits, default=0)  # it is cheaper, so the least counts
    kept = _count(parts.get("cache_write_tokens")) or 0
    return read, cached if cached <= read else 0, kept


def _unsaid_output(said: dict[str, Any], written: int, total: int | None, read: int) -> int:
    """Tokens written besides the answer, such as reasoning, where they are not a part of it."""
    beside = sum(_most(said, (name,)) or 0 for name in _BESIDE_WRITTEN)
    thought = _count(_details(said, _DETAILS_WRITTEN).get("reasoning_tokens")) or 0
    is_part = total is not None and thought <= written and total == read + written
    return max(beside, 0 if is_part else thought)


def _stated_micros(said: dict[str, Any]) -> int | None:
    """The charge that the provider itself reports, if any."""
    ticks = _count(said.get("cost_in_usd_ticks"))
    in_ticks = None if ticks is None else -(-ticks // TICKS_PER_MICRO)
    cost = said.get("cost")
    named = (cost.get("total_cost") if isinstance(cost, dict) else cost, said.get("estimated_cost"))
    charged = [micros for micros in map(_micros, named) if micros is not None]
    more = said.get("cost_details")
    upstream = _micros(more.get("upstream_inference_cost")) if isinstance(more, dict) else None
    if upstream is not None and charged:
        own_key = said.get("is_byok", upstream > max(charged))  # then the charge is a fee on top of it
        charged.append(max(charged) + upstream if own_key is True else upstream)
    if in_ticks is not None:
        charged.append(in_ticks)
    return max((micros for micros in charged if micros <= STATED_MICROS_MAX), default=None)


def _micros(dollars: object) -> int | None:
    """An amount in any notation; None if it is not an amount of money, or impossibly large."""
    if isinstance(dollars, str):
        dollars = float(dollars) if _AMOUNT.fullmatch(dollars) else None
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not 0 <= dollars <= STATED_MICROS_MAX // DOLLAR_MICROS:
        return None
    return int((Decimal(str(dollars)) * DOLLAR_MICROS).to_integral_value(ROUND_CEILING))


def _is_plausible(used: Usage) -> bool:
    tokens = max(used.input_tokens, used.output_tokens)
    return tokens <= TOKENS_MAX and (used.cost_micros or 0) <= STATED_MICROS_MAX


def _is_small(body: Mapping[str, Any]) -> bool:
    """Whether it is small enough for the price list, which walks through every list inside."""
    for said in _objects(body):
        inner = (
            [value for value in said.values() if isinstance(value, dict | list)] if len(said) <= PARTS_MAX else [said]
        )
        if any(len(value) > PARTS_MAX for value in inner):
            return False
    return True


def _most(said: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return max((count for name in names if (count := _count(said.get(name))) is not None), default=None)


def _details(said: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return next((parts for name in names if isinstance(parts := said.get(name), dict)), {})


def _count(value: object) -> int | None:
    """A number of tokens in any notation; None if it is not one."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= 40 else None
    if isinstance(value, float):
        return math.ceil(value) if math.isfinite(value) and value >= 0 else None
    return value if type(value) is int and value >= 0 else None
