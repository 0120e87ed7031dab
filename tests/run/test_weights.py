"""What a request may cost at worst, and what is said when nothing bounds it."""

import json
from typing import Any

import pytest

from backstay.core.errors import UsageError
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.lines import LlmRequest
from backstay.llm.prices import MICROS_MAX
from backstay.llm.provider import TOKENS_MAX
from backstay.run.submission import Order, Scales

STORED = {"previous_response_id": "resp_1"}


def order(price: tuple[int, ...] | None, **terms: Any) -> Order:
    endpoint = Endpoint("http://127.0.0.1:9/v1", Lane.CALL, "KEY", (), price, False, 600.0)
    return Order(endpoint=endpoint, out="-", budget_micros=1_000_000, **terms)


UNPRICED = "no price is known for model 'mystery': give --price IN/OUT"


@pytest.mark.parametrize(
    ("price", "default", "body", "hint"),
    [
        (None, None, {}, UNPRICED + " and --max-output-tokens: the request sets no limit on its reply"),
        (None, 20, {}, UNPRICED),
        (None, None, {"max_tokens": 5}, UNPRICED),
        ((1, 2), None, {}, "give --max-output-tokens: the request sets no limit on its reply"),
        (
            (1, 2),
            20,
            STORED,
            "its input at the provider has no size limit; leave the request out, or run without --budget",
        ),
    ],
)
def test_a_request_without_a_bound_is_refused_with_what_is_missing(
    price: tuple[int, ...] | None, default: int | None, body: dict[str, Any], hint: str
) -> None:
    fields = {"model": "mystery", "messages": [], **body}
    scales = Scales.of(order(price, output_tokens_default=default))
    with pytest.raises(UsageError, match="the cost of 'r1' has no limit") as refused:
        scales.weigh(LlmRequest("r1", "/v1/chat/completions", json.dumps(fields)), fields)
    assert refused.value.hint == hint


@pytest.mark.parametrize("bound", [10**30, 1e300])
def test_a_bound_beyond_all_reason_weighs_what_a_database_can_keep(bound: float) -> None:
    fields = {"model": "mystery", "messages": [], "max_tokens": bound}
    worst, tokens, _ = Scales.of(order((1, 2))).weigh(
        LlmRequest("r1", "/v1/chat/completions", json.dumps(fields)), fields
    )
    assert (worst, tokens) == (MICROS_MAX, TOKENS_MAX)
