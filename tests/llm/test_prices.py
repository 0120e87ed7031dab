"""Prices are whole micro-dollars, rounded up; one that nobody knows is None."""

import json
import subprocess
import sys
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.llm.endpoint import Lane
from backstay.llm.lines import LlmRequest
from backstay.llm.prices import MICROS_MAX, PriceList, PricePerMillion, parse_price, price_of, quote, worst_micros
from backstay.llm.provider import TokenEstimate
from backstay.llm.providers.openai.requests import estimate

OPENAI = "https://api.openai.com/v1"
TOKENS = st.integers(0, 10**7)
RATES = st.integers(0, 10**8)
PLAIN = st.builds(PricePerMillion, RATES, RATES, RATES | st.none(), RATES | st.none(), st.just(0), st.none())
PRICES = st.builds(
    lambda base, long, start: base._replace(call_micros=3, above=(start, long)),
    PLAIN,
    PLAIN,
    TOKENS,
)


def of(request: LlmRequest) -> TokenEstimate:
    return estimate(request.url, request.body, json.loads(request.body))


def of_fields(fields: dict[str, Any]) -> TokenEstimate:
    return estimate("/v1/chat/completions", json.dumps(fields), fields)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("0.15/0.60", PricePerMillion(150_000, 600_000)),
        ("$0.15/$0.60", PricePerMillion(150_000, 600_000)),
        (" 2.5 / 10 ", PricePerMillion(2_500_000, 10_000_000)),
        ("0.15/0.60/0.075", PricePerMillion(150_000, 600_000, 75_000)),
        (".1/0", PricePerMillion(100_000, 0)),
        ("0.0000001/1", PricePerMillion(1, 1_000_000)),
    ],
)
def test_a_price_is_read_as_people_write_it(text: str, price: PricePerMillion) -> None:
    assert parse_price(text) == price
    assert parse_price(str(price)) == price


@pytest.mark.parametrize(
    "text", ["", "1", "1/2/3/4", "-1/2", "a/b", "1/", "1e3/2", "nan/1", "1,5/2", "9999999/1", "\u0661/\u0662"]
)
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a price"):
        parse_price(text)


@given(TOKENS, TOKENS, TOKENS, TOKENS, PRICES)
def test_a_cost_is_exact_and_rounded_up(
    read: int, wrote: int, cached: int, written: int, price: PricePerMillion
) -> None:
    plain = price if read <= price.above[0] else price.above[1]  # type: ignore[index]
    cached_here = min(cached, read)
    written_here = min(written, read - cached_here)
    rates = (plain.cached_micros_per_million, plain.written_micros_per_million)
    cached_rate, written_rate = (plain.input_micros_per_million if rate is None else rate for rate in rates)
    exact = Fraction(
        (read - cached_here - written_here) * plain.input_micros_per_million
        + cached_here * cached_rate
        + written_here * written_rate
        + wrote * plain.output_micros_per_million,
        1_000_000,
    )
    assert price.cost_micros(read, wrote, cached, written) == ceil(exact) + plain.call_micros


@given(TOKENS, TOKENS, st.integers(0, 100), st.integers(0, 100), TOKENS, TOKENS, PRICES)
def test_the_worst_is_never_exceeded(
    read: int, wrote: int, fewer_read: int, fewer_wrote: int, cached: int, written: int, price: PricePerMillion
) -> None:
    worst = price.worst_micros(read, wrote)
    assert price.cost_micros(max(read - fewer_read, 0), max(wrote - fewer_wrote, 0), cached, written) <= worst


def test_a_cost_fits_the_database() -> None:
    assert PricePerMillion(10**12, 10**12).cost_micros(10**30, 0) == MICROS_MAX


def test_published_prices_are_known_offline() -> None:
    assert price_of("gpt-4o-mini", OPENAI) == PricePerMillion(150_000, 600_000, 75_000)
    assert price_of("gpt-4o-mini-2024-07-18", OPENAI) == PricePerMillion(150_000, 600_000, 75_000)
    assert price_of("text-embedding-3-small", OPENAI) == PricePerMillion(20_000, 0)


@pytest.mark.parametrize("model", ["no-such-model", "", "x" * 10_000, "whisper-1"])
def test_an_unknown_price_is_none(model: str) -> None:
    assert price_of(model, OPENAI) is None
    assert price_of(model, "http://127.0.0.1:9000/v1") is None


def test_the_service_decides_whose_price_it_is() -> None:
    assert price_of("gpt-4o-mini", "https://api.groq.com/openai/v1") is None
    assert price_of("gpt-4o-mini", "https://api.githubcopilot.com") is None  # in a subscription, not for nothing
    found = quote("gpt-4o-mini", "https://mine.openai.azure.com/openai/v1")
    assert found is not None
    assert found.source.startswith("azure ")


@pytest.mark.parametrize("model", ["gpt-4o-mini", "text-embedding-3-small"])
def test_where_the_service_is_unknown_the_name_of_the_model_decides(model: str) -> None:
    assert price_of(model, "http://127.0.0.1:9000/v1") == price_of(model, "") == price_of(model, OPENAI)


def test_the_worst_case_is_that_all_input_is_kept_for_as_long_as_can_be() -> None:
    price = price_of("claude-sonnet-4-5", "https://api.anthropic.com/v1")
    assert price is not None
    assert price.worst_micros(1_000, 0) == 6_000  # twice the price of input


def test_a_batch_is_half_price() -> None:
    listed = price_of("gpt-4o-mini", OPENAI, Lane.BATCH)
    assert listed is not None
    assert listed[:2] == (75_000, 300_000)
    assert price_of("text-embedding-3-small", OPENAI, Lane.BATCH) == PricePerMillion(10_000, 0)
    assert price_of("gpt-4o-mini", OPENAI, Lane.BACKGROUND) == price_of("gpt-4o-mini", OPENAI)


def test_a_tier_has_its_own_price() -> None:
    plain, priority, flex = (price_of("gpt-5.4", OPENAI, tier=tier) for tier in (None, "priority", "flex"))
    assert plain is not None
    assert priority is not None
    assert flex is not None
    assert flex[:2] < plain[:2] < priority[:2]
    assert price_of("gpt-5.4", OPENAI, tier="default") == plain
    assert price_of("gpt-3.5-turbo", OPENAI, tier="priority") is None  # dearer, and nobody says by how much


def test_long_inputs_have_their_own_price() -> None:
    price = price_of("gpt-5.4", OPENAI)
    assert price is not None
    assert price.above is not None
    start, dearer = price.above
    assert price.cost_micros(start, 0) < price.cost_micros(start + 1, 0) == dearer.cost_micros(start + 1, 0)


def test_a_price_that_goes_by_the_hour_is_taken_at_its_dearest() -> None:
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import ModelPrice

    _, model = get_snapshot().find_provider_model("deepseek-chat", None, "deepseek", None)
    assert not isinstance(model.prices, ModelPrice)
    rates = [one.prices.input_mtok for one in model.prices]
    price = price_of("deepseek-chat", "https://api.deepseek.com/v1")
    assert price is not None
    assert price.input_micros_per_million == max(int(rate * 1_000_000) for rate in rates)  # type: ignore[operator]


def test_the_worst_of_a_call_is_its_bounds_at_the_dearest_rate() -> None:
    price = PricePerMillion(1_000_000, 2_000_000, 100_000, 1_250_000)
    assert worst_micros(TokenEstimate(10, 20, 50, 100), price) == 125 + 100


@pytest.mark.parametrize(
    ("estimate", "default", "window", "worst"),
    [
        (TokenEstimate(1, 1, None, 100), 10, None, 100 + 10),
        (TokenEstimate(1, 1, None, 100), 10, 1000, 100 + 10),
        (TokenEstimate(1, 1, None, 100), None, 1000, 100 + 1000),
        (TokenEstimate(1, 1, None, 100, replies=3), 10, None, 100 + 30),
        (TokenEstimate(1, 1, None, 100), None, None, None),
        (TokenEstimate(1, 1, 10, None), None, 1000, 1000 + 10),
        (TokenEstimate(1, 1, 10, None), None, None, None),
        (TokenEstimate(1, 1, 10, None, one_pass=False), 10, 1000, None),
        (TokenEstimate(1, 0, 0, 100), None, None, 100),
    ],
)
def test_where_a_body_sets_no_bound_a_default_or_the_window_does(
    estimate: TokenEstimate, default: int | None, window: int | None, worst: int | None
) -> None:
    assert worst_micros(estimate, PricePerMillion(1_000_000, 1_000_000), default, window) == worst


def test_a_list_of_prices_serves_requests() -> None:
    prices = PriceList(OPENAI)
    bounded = LlmRequest("a", "/v1/chat/completions", '{"model":"gpt-4o-mini","messages":[],"max_tokens":1000}')
    open_ended = bounded._replace(body='{"model":"gpt-4o-mini","messages":[]}')
    unknown = bounded._replace(body='{"model":"mine","messages":[],"max_tokens":1000}')
    assert 600 < (prices.worst_micros(of(bounded)) or 0) < 650
    assert (prices.worst_micros(of(open_ended)) or 0) > 128_000 * 0.6  # the whole window of the model
    assert prices.worst_micros(of(unknown)) is None
    assert prices.price(of_fields({"model": "mine"})) is None
    assert prices.price(of_fields({"model": ["gpt-4o-mini"]})) is None
    assert prices.source(of_fields({"model": "gpt-4o-mini"})) == "openai gpt-4o-mini"
    assert prices.source(of_fields({"model": "mine"})) == "unknown"


def test_a_price_that_is_given_counts_for_every_model_and_lane() -> None:
    given = PricePerMillion(1_000_000, 2_000_000)
    prices = PriceList(OPENAI, Lane.BATCH, given, output_tokens_default=10)
    request = LlmRequest("a", "/v1/chat/completions", '{"model":"mine","messages":[]}')
    assert prices.price(of_fields({"model": "mine"})) == prices.price(of_fields({})) == given
    assert prices.source(of_fields({})) == "as given"
    assert prices.worst_micros(of(request)) == len(request.body) + 64 + 2 * 10


def test_nothing_heavy_is_loaded_before_a_price_is_asked_for() -> None:
    code = "import sys, backstay.llm.prices; print('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
