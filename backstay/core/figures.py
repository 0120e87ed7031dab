"""Figures as a person reads them: money, tokens, rates and spans of time."""

import math
from typing import Final

MICROS_PER_DOLLAR: Final = 1_000_000
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def show_money(micros: int) -> str:
    """Cents, and finer below a dollar: $12.40, $0.0042. A sum above 0 is never shown as $0.00."""
    if 0 < micros < 100:
        return "<$0.0001"
    dollars = micros / MICROS_PER_DOLLAR
    if micros >= MICROS_PER_DOLLAR or micros == 0:
        return f"${dollars:,.2f}"
    cents, finer = f"{dollars:.4f}"[:-2], f"{dollars:.4f}"[-2:].rstrip("0")
    return f"${cents}{finer}"


def show_ceiling(micros: int) -> str:
    """With all digits: $5.00, $0.00408."""
    dollars, rest = divmod(micros, MICROS_PER_DOLLAR)
    cents, finer = f"{rest:06}"[:2], f"{rest:06}"[2:].rstrip("0")
    return f"${dollars:,}.{cents}{finer}"


def show_tokens(tokens: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**4, "k")):
        if tokens >= size:
            scaled = tokens / (size if size > 10**4 else 1_000)
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.1f} {unit}"
    return f"{tokens:,}"


def show_rate(per_second: float) -> str:
    """In the unit that gives a readable number: 340/s, 4.2/s, 12/min, 3/h."""
    if per_second == 0:
        return "0/s"
    for size, unit in ((1, "s"), (_MINUTE, "min")):
        rate = per_second * size
        if rate >= 1:
            return f"{rate:,.0f}/{unit}" if rate >= 10 else f"{rate:.1f}/{unit}"
    return f"{per_second * _HOUR:.1f}/h"


def show_seconds(seconds: float) -> str:
    """At most two units, rounded to what matters: 42 s, 4 min 10 s, 2 h 5 min, 3 d 4 h."""
    whole = math.ceil(seconds)
    for size, unit, finer, finer_unit in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // finer
            return f"{whole // size} {unit} {rest} {finer_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def show_hours(seconds: float) -> str:
    """A bound in hours, rounded up: it must not look shorter than it is."""
    return f"{math.ceil(seconds / 36) / 100:,.2f} h"


def show_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
