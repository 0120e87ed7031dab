"""What a file will take: sums by endpoint and model, and the time under limits."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from backstay.llm.forecast import Forecast, ForecastPrices, ForecastShare, PaceLimits
from backstay.llm.formats import ParsedRequest
from backstay.llm.intake import KINDS_MAX
from backstay.llm.prices import PriceList, PricePerMillion

CHAT = "/v1/chat/completions"
DOLLAR = PricePerMillion(1_000_000, 1_000_000)  # a micro-dollar a token


def parsed(url: str = CHAT, **fields: Any) -> ParsedRequest:
    return ParsedRequest("a", url, json.dumps(fields), fields, model=fields.get("model"))


def prices_at(base_url: str, given: PricePerMillion | None = None) -> Callable[[str], ForecastPrices]:
    prices = PriceList(base_url, given=given)
    return lambda api: ForecastPrices(prices, prices)


def test_requests_are_added_up_by_endpoint_and_model() -> None:
    forecast = Forecast(prices_at("", DOLLAR))
    one = parsed(model="m", messages=[{"role": "user", "content": "x" * 40}], max_tokens=50, n=2)
    for request in (one, one, parsed("/v1/embeddings", model="e", input="x" * 40)):
        forecast.add(request)
    chat, embedding = forecast.shares[CHAT, "m"], forecast.shares["/v1/embeddings", "e"]
    assert (chat.requests, chat.input_tokens, chat.output_tokens, chat.output_tokens_max) == (2, 28, 200, 200)
    assert (chat.low_micros, chat.expected_micros) == (2 * (14 + 2), 2 * (14 + 100))
    assert chat.worst_micros == chat.input_tokens_max + 200 if chat.input_tokens_max is not None else False
    assert (embedding.low_micros, embedding.expected_micros) == (10, 10)
    total = forecast.total
    assert (total.requests, total.input_tokens, total.expected_micros) == (3, 38, 2 * 114 + 10)


def test_one_unknown_part_makes_a_sum_unknown_and_never_smaller() -> None:
    forecast = Forecast(prices_at("https://api.openai.com/v1"))
    forecast.add(parsed(model="gpt-4o-mini", messages=[], max_tokens=10))
    known = forecast.total
    assert known.worst_micros is not None
    forecast.add(parsed(model="mine", messages=[]))
    total = forecast.total
    assert (total.low_micros, total.expected_micros, total.worst_micros) == (None, None, None)
    assert total.output_tokens_max is None
    assert forecast.shares[CHAT, "gpt-4o-mini"].worst_micros == known.worst_micros
    assert forecast.shares[CHAT, "mine"].price == "unknown"


def test_a_known_price_without_a_bound_has_no_worst() -> None:
    forecast = Forecast(prices_at("", DOLLAR))
    forecast.add(parsed(model="mine", messages=[]))
    assert forecast.total.expected_micros == 300
    assert forecast.total.worst_micros is None


def test_a_forecast_can_start_afresh() -> None:
    forecast = Forecast(prices_at("", DOLLAR), output_tokens_expected=7)
    forecast.add(parsed(model="m", messages=[]))
    forecast.clear()
    assert forecast.total == ForecastShare()
    forecast.add(parsed(model="m", messages=[]))
    assert forecast.total.output_tokens == 7


def test_kinds_without_end_are_added_up_together() -> None:
    forecast = Forecast(prices_at("", DOLLAR))
    for number in range(KINDS_MAX + 10):
        forecast.add(parsed(model=f"m{number}", messages=[]))
    assert len(forecast.shares) == KINDS_MAX + 1
    assert forecast.total.requests == KINDS_MAX + 10


@pytest.mark.parametrize(
    ("pace", "longest"),
    [
        (PaceLimits(), None),
        (PaceLimits(concurrency=100), None),
        (PaceLimits(latency_seconds=2.0), None),
        (PaceLimits(requests_per_minute=100), ("rpm", 600.0)),
        (PaceLimits(tokens_per_minute=6000), ("tpm", 1000.0)),
        (PaceLimits(concurrency=300, latency_seconds=2.0), ("concurrency", 8.0)),
        (PaceLimits(100, 6000, 300, 2.0), ("tpm", 1000.0)),
        (PaceLimits(100, 60_000, 1, 2.0), ("concurrency", 2000.0)),
    ],
)
def test_the_slowest_limit_decides_the_time(pace: PaceLimits, longest: tuple[str, float] | None) -> None:
    assert pace.longest(ForecastShare(requests=1000, input_tokens=90_000, output_tokens=10_000)) == longest
