"""Figures read as a person would write them."""

import pytest

from backstay.core.display import show_ceiling, show_count, show_money, show_rate, show_seconds, show_tokens


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "$0.00"),
        (1, "<$0.0001"),
        (100, "$0.0001"),
        (4_200, "$0.0042"),
        (50_000, "$0.05"),
        (842_000, "$0.842"),
        (999_999, "$1.00"),
        (1_000_000, "$1.00"),
        (1_234_567, "$1.23"),
        (12_345_678_900, "$12,345.68"),
    ],
)
def test_money(micros: int, shown: str) -> None:
    assert show_money(micros) == shown


@pytest.mark.parametrize(
    ("micros", "shown"),
    [(4_080, "$0.00408"), (1, "$0.000001"), (5_000_000, "$5.00"), (1_250_000, "$1.25"), (10**12, "$1,000,000.00")],
)
def test_a_ceiling_is_shown_as_it_was_given(micros: int, shown: str) -> None:
    assert show_ceiling(micros) == shown


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [(0, "0"), (9_999, "9,999"), (12_345, "12.3 k"), (310_400, "310 k"), (1_204_000, "1.2 M"), (5 * 10**9, "5.0 B")],
)
def test_tokens(tokens: int, shown: str) -> None:
    assert show_tokens(tokens) == shown


@pytest.mark.parametrize(
    ("rate", "shown"),
    [
        (0, "0/s"),
        (3_300, "3,300/s"),
        (342.4, "342/s"),
        (4.21, "4.2/s"),
        (0.5, "30/min"),
        (0.02, "1.2/min"),
        (0.001, "3.6/h"),
    ],
)
def test_rates(rate: float, shown: str) -> None:
    assert show_rate(rate) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (3_599.5, "1 h"),
        (7_500, "2 h 5 min"),
        (86_400, "1 d"),
        (273_600, "3 d 4 h"),
    ],
)
def test_spans(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown


def test_counts_have_their_plural() -> None:
    assert (show_count(1, "call"), show_count(2_000, "call")) == ("1 call", "2,000 calls")
