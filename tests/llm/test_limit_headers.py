"""What rate-limit headers say, in all the forms that providers give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.llm.provider import ProviderReply
from backstay.llm.providers.openai.replies import limit_hints
from backstay.llm.rate_limits import NO_HINTS, LimitHints

NOW = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT
YEAR_MS = 366 * 86_400_000


def hints_of(headers: dict[str, str], now_ms: int) -> LimitHints:
    return limit_hints(ProviderReply(200, headers, ""), now_ms)


def reset_of(text: str) -> int | None:
    return hints_of({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": text}, NOW).requests_reset_ms


def test_headers_without_a_word_about_limits_say_nothing():
    assert hints_of({"content-type": "application/json", "x-request-id": "req_1"}, NOW) is NO_HINTS


def test_openai_says_what_is_left_of_requests_and_tokens_and_when_it_is_whole_again():
    headers = {
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
        "x-ratelimit-reset-requests": "8.64s",
        "x-ratelimit-limit-tokens": "200000",
        "x-ratelimit-remaining-tokens": "199982",
        "x-ratelimit-reset-tokens": "5ms",
    }
    assert hints_of(headers, NOW) == LimitHints(None, 9_999, 8_640, 199_982, 5)


def test_anthropic_gives_moments_in_place_of_durations():
    headers = {
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:50Z",
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2023-11-14T23:14:20+01:00",
    }
    assert hints_of(headers, NOW) == LimitHints(None, 49, 30_000, 0, 60_000)


def test_azure_says_minus_one_when_it_does_not_know():
    headers = {
        "x-ratelimit-remaining-requests": "-1",
        "x-ratelimit-reset-requests": "-1",
        "x-ratelimit-remaining-tokens": "-1",
        "x-ratelimit-reset-tokens": "0",
    }
    assert hints_of(headers, NOW) == LimitHints(tokens_reset_ms=0)


def test_headers_without_a_kind_are_about_requests():
    assert hints_of({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "2"}, NOW) == LimitHints(None, 3, 2_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12ms", 12),
        ("1s", 1_000),
        ("6m0s", 360_000),
        ("1h2m3.5s", 3_723_500),
        ("2d", 172_800_000),
        ("0s", 0),
        ("500us", 1),
        ("500µs", 1),
        ("100ns", 1),
        ("59.56s", 59_560),
        (".5s", 500),
        ("7", 7_000),
        ("0.25", 250),
        ("1700000030", 30_000),
        ("1700000030000", 30_000),
        ("1600000000", 0),
        ("2023-11-14T22:13:21", 1_000),
        ("2023-11-14T22:13:00Z", 0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
        ("9" * 40, YEAR_MS),
        ("99999999h", YEAR_MS),
        ("-1", None),
        ("-5s", None),
        ("", None),
        ("soon", None),
        ("5 s", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("٣", None),
        ("1" * 65, None),
        ("s", None),
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_a_reset_is_a_duration_seconds_or_a_moment_or_nothing(text, expected):
    assert reset_of(text) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "20"}, 20_000),
        ({"retry-after": "1.5"}, 1_500),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30_000),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0),
        ({"retry-after": "3s"}, 3_000),
        ({"retry-after": "999999999"}, YEAR_MS),
        ({"retry-after": "later"}, None),
        ({"retry-after-ms": "1500"}, 1_500),
        ({"retry-after-ms": "12.5", "retry-after": "1"}, 13),
        ({"retry-after-ms": "-1", "retry-after": "2"}, 2_000),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2_000),
        ({"retry-after-ms": "9" * 60}, YEAR_MS),
    ],
)
def test_a_wait_is_asked_for_in_milliseconds_seconds_or_as_a_date(headers, expected):
    assert hints_of(headers, NOW).retry_after_ms == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("12", 12), ("12.9", 12), ("-1", None), ("many", None), ("9" * 16, None), ("٣", None)]
)
def test_what_is_left_is_a_whole_number_or_unknown(text, expected):
    assert hints_of({"x-ratelimit-remaining-tokens": text}, NOW).tokens_remaining == expected


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        (LimitHints(retry_after_ms=5, requests_remaining=0, requests_reset_ms=9), 5),
        (LimitHints(requests_remaining=0, requests_reset_ms=9, tokens_remaining=7, tokens_reset_ms=50), 9),
        (LimitHints(requests_remaining=0, requests_reset_ms=9, tokens_remaining=0, tokens_reset_ms=50), 50),
        (LimitHints(requests_remaining=1, requests_reset_ms=9), None),
        (LimitHints(requests_remaining=0), None),
        (NO_HINTS, None),
    ],
)
def test_without_a_wait_asked_for_one_waits_for_what_is_used_up(learned, expected):
    assert learned.wait_ms == expected


NAMES = st.sampled_from(
    [
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        *(f"x-ratelimit-{what}-{kind}" for what in ("remaining", "reset") for kind in ("requests", "tokens")),
        *(f"anthropic-ratelimit-{kind}-{what}" for what in ("remaining", "reset") for kind in ("requests", "tokens")),
    ]
)
VALUES = st.text(max_size=80) | st.text("0123456789.+-eµsmhdnTZ: ,", max_size=30) | st.from_regex(r"\d{4}-\d\d-\d\dT.*")


@given(st.dictionaries(NAMES, VALUES), st.integers(0, 4_000_000_000_000))
def test_whatever_headers_say_nothing_is_raised_or_negative(headers, now_ms):
    assert all(value is None or 0 <= value < 1 << 53 for value in hints_of(headers, now_ms))
