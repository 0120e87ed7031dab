"""Charts as plain bars: geometry for an SVG, and the same figures as a table for people who do not see it."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from backstay.server.pages.figures import count, money
from backstay.server.pages.figures import latency as show_latency
from backstay.store.measures import LATENCY_MS, MINUTE_MS, Measure, Step, sum_measures

BAR: Final = 10  # units along the axis, including the gap
GAP: Final = 2
HEIGHT: Final = 100


class Span(NamedTuple):
    """How far back a chart looks, and in what steps."""

    name: str
    label: str
    minutes: int
    step: int


SPANS: Final = (
    Span("1h", "Last hour", 60, 1),
    Span("6h", "Last 6 hours", 360, 5),
    Span("24h", "Last 24 hours", 1_440, 20),
    Span("7d", "Last 7 days", 10_080, 120),
)


class ChartBar(NamedTuple):
    x: int
    y: float
    width: int
    height: float
    colour: str


class ChartRow(NamedTuple):
    at: int
    values: list[str]


class Chart(NamedTuple):
    title: str
    headline: str
    summary: str
    highest: str
    since: int
    width: int
    bars: list[ChartBar]
    names: list[tuple[str, str]]  # of each series, with its colour
    rows: list[ChartRow]


class Series(NamedTuple):
    name: str
    colour: str
    value: Callable[[Measure], float]


def span_named(name: str | None) -> Span:
    return next((span for span in SPANS if span.name == name), SPANS[0])


def first_minute(span: Span, now_ms: int) -> int:
    """The start of the first step, such that the last step holds now."""
    last = now_ms // MINUTE_MS // span.step * span.step
    return last - span.minutes + span.step


def throughput(steps: Sequence[Step], span: Span, now_ms: int) -> Chart:
    series = [
        Series("succeeded", "good", lambda one: one.succeeded / span.step),
        Series("failed", "bad", lambda one: one.failed / span.step),
    ]
    whole = sum_measures([step.measure for step in steps]) if steps else Measure()
    headline = f"{count(whole.ended)} items"
    return _chart("Throughput, items per minute", series, steps, span, now_ms, headline, lambda v: f"{v:,.4g}")


def latency(steps: Sequence[Step], span: Span, now_ms: int) -> Chart:
    series = [Series("mean", "accent", lambda one: one.mean_ms or 0.0)]
    whole = sum_measures([step.measure for step in steps]) if steps else Measure()
    return _chart("Latency of a call, mean", series, steps, span, now_ms, most_within(whole), show_latency)


def spend(steps: Sequence[Step], span: Span, now_ms: int) -> Chart:
    series = [Series("spent", "money", lambda one: float(one.cost_micros))]
    whole = sum_measures([step.measure for step in steps]) if steps else Measure()
    per = "per minute" if span.step == 1 else f"per {span.step} minutes"
    return _chart(f"Spend {per}", series, steps, span, now_ms, money(whole.cost_micros), lambda v: money(round(v)))


def most_within(measured: Measure) -> str:
    """The time within which 95 % of the calls ended, as far as it was measured."""
    if not measured.calls:
        return "no calls"
    within = measured.within_ms(0.95)
    longest = show_latency(LATENCY_MS[-1] if within is None else within)
    return f"more than 5 % over {longest}" if within is None else f"95 % within {longest}"


def _chart(
    title: str,
    series: Sequence[Series],
    steps: Sequence[Step],
    span: Span,
    now_ms: int,
    headline: str,
    show: Callable[[float], str],
) -> Chart:
    first = first_minute(span, now_ms)
    known = {step.minute: step.measure for step in steps}
    minutes = range(first, first + span.minutes, span.step)
    highest = max((sum(one.value(known[m]) for one in series) for m in minutes if m in known), default=0.0)
    rows = [ChartRow(m * MINUTE_MS, [show(one.value(known[m])) for one in series]) for m in minutes if m in known]
    bars = [
        bar
        for index, minute in enumerate(minutes)
        if minute in known and highest > 0
        for bar in _stack(index, known[minute], series, highest)
    ]
    names = [(one.name, one.colour) for one in series]
    summary = f"{headline}; highest {show(highest)}"
    return Chart(
        title, headline, summary, show(highest), first * MINUTE_MS, len(minutes) * BAR, bars, names, rows[::-1]
    )


def _stack(index: int, measure: Measure, series: Sequence[Series], highest: float) -> list[ChartBar]:
    bars, y = [], float(HEIGHT)
    for one in series:
        height = round(one.value(measure) / highest * HEIGHT, 1)
        y = round(y - height, 1)
        if height > 0:
            bars.append(ChartBar(index * BAR, y, BAR - GAP, height, one.colour))
    return bars
