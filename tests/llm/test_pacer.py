"""What an answer's headers tell the pace: what is left of a limit, if it is meant in earnest."""

import pytest

from backstay.core.pace import Pace
from backstay.llm.provider import ProviderReply
from backstay.llm.providers.openai.replies import limit_hints
from backstay.llm.rate_limits import LimitHints, Pacer

PACE = Pace("p", None, None, concurrency=100, ceiling=80)


def hints_of(headers: dict[str, str], now_ms: int) -> LimitHints:
    return limit_hints(ProviderReply(200, headers, ""), now_ms)


@pytest.mark.parametrize(
    ("left", "reset", "ceiling"),
    [("11", "6s", 10), ("11", "", 81), ("0", "0", 81), ("-1", "0", 81), ("0", "2s", 1), ("5000", "1ms", 81)],
)
def test_the_calls_under_way_keep_to_what_the_headers_leave(left: str, reset: str, ceiling: int) -> None:
    pacer = Pacer()
    headers = {"x-ratelimit-remaining-requests": left, "x-ratelimit-reset-requests": reset}
    pacer.note_answer(200, 0.1, hints_of(headers, 0))
    assert pacer.answers.verdict(PACE, 0).ceiling == ceiling


def test_tokens_that_are_left_bound_the_calls_as_well() -> None:
    pacer = Pacer()
    for left in ("1000", "900"):
        headers = {"x-ratelimit-remaining-tokens": left, "x-ratelimit-reset-tokens": "30s"}
        pacer.note_answer(200, 0.1, hints_of(headers, 0))
        ceiling = pacer.answers.verdict(PACE, 0).ceiling
    assert ceiling == 8
