"""How pages show numbers, times, and texts of users and providers; and charts."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from backstay.core.display import (
    TimePoint,
    parts_of,
    show_ceiling,
    show_hours,
    show_money,
    show_rate,
    show_seconds,
    show_span,
    show_tokens,
    visible,
)
from backstay.core.states import JobState
from backstay.run.run_state import RunState, forecast
from backstay.store.job_views import JobView
from backstay.store.measures import LATENCY_MS, MINUTE_MS, Measure, Step, sum_measures

LINE_CHARACTERS: Final = 200
BODY_CHARACTERS: Final = 8_000
INDENTED_CHARACTERS: Final = 100_000  # longer JSON is shown as it is
_YEAR_9999_MS: Final = 253_402_300_799_000
LINES: Final = "\n\t"
SENTENCE_CHARACTERS: Final = 500


class Excerpt(NamedTuple):
    """A text to be shown, or the beginning of it, and how long the whole is."""

    text: str
    characters: int
    is_cut: bool


def line(text: object, characters: int = LINE_CHARACTERS) -> str:
    """A text on one line, cut to a length."""
    said = "" if text is None else str(text)
    return visible(" ".join(said[:characters].split())) + ("…" if len(said) > characters else "")


def excerpt(text: str | None, characters: int = BODY_CHARACTERS) -> Excerpt | None:
    """A body for people: JSON is indented, and a long text is cut."""
    if text is None:
        return None
    shown = text
    if len(text) <= INDENTED_CHARACTERS:
        try:
            shown = _indent(json.loads(text), characters + 1)
        except (ValueError, RecursionError):
            shown = text
    return Excerpt(visible(shown[:characters], LINES), len(text), len(shown) > characters)


def _indent(value: Any, characters: int) -> str:
    """Indents no more than is shown: indentation makes deep JSON many times longer."""
    pieces, length = [], 0
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        pieces.append(piece)
        length += len(piece)
        if length >= characters:
            break
    return "".join(pieces)


def moment(ms: int | None, kind: str = "") -> Markup:
    """A time, which the page's script shows in the viewer's time zone. The kind "ago" is relative to now, "short"
    has no seconds."""
    if ms is None or not 0 < ms < _YEAR_9999_MS:
        return Markup("–")
    at = datetime.fromtimestamp(ms / 1000, UTC)
    relative = Markup(" data-{}").format(kind) if kind else Markup("")
    iso = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"
    return Markup('<time datetime="{}"{}>{}</time>').format(iso, relative, at.strftime("%Y-%m-%d %H:%M:%S UTC"))


def sentence(text: str) -> Markup:
    """One of Backstay's own sentences, with a capital letter. Its times are shown in the viewer's time zone; times
    inside a quoted text stay text."""
    said, left = Markup(""), SENTENCE_CHARACTERS
    for part in parts_of(text):
        if isinstance(part, TimePoint):
            said += moment(part.at) + f" ({part.distance})"
        else:
            plain = visible(str(part)[:left])
            said += plain if said else plain[:1].upper() + plain[1:]
            left -= len(plain)
    return said


def count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def money(micros: int | None) -> str:
    return "–" if micros is None else show_money(micros)


def latency(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms < 1_000 else f"{ms / 1_000:,.1f} s"


def size(number: int) -> str:
    """Bytes, in the unit that fits."""
    for unit, worth in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if number >= worth:
            return f"{number / worth:,.3g} {unit}"
    return f"{number} B"


def decimal(number: float) -> str:
    return f"{number:,g}"


def share(part: int, whole: int) -> str:
    """Percent; never 100 before everything is done, and never 0 after the first."""
    if whole <= 0:
        return "–"
    if 0 < part < whole:
        return f"{min(max(part * 100 / whole, 0.1), 99.9):.1f} %"
    return "100 %" if part else "0 %"


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "ceiling": show_ceiling,
    "count": count,
    "counted": count_of,
    "decimal": decimal,
    "excerpt": excerpt,
    "latency": latency,
    "line": line,
    "moment": moment,
    "money": money,
    "rate": show_rate,
    "seconds": show_seconds,
    "sentence": sentence,
    "hours": show_hours,
    "share": share,
    "size": size,
    "span": show_span,
    "tokens": show_tokens,
    "visible": visible,
}


NEAR_SHARE = 0.9  # of a budget: from here on a person is warned


class Outlook(NamedTuple):
    """The progress of a job and its forecast. Money is in micro-dollars; None: not known."""

    done: int
    left: int
    per_second: float | None
    ready_at: int | None
    forecast_micros: int | None
    is_near_budget: bool


def outlook(job: JobView, now_ms: int) -> Outlook:
    left = max(job.total - job.done, 0)
    per_second = _speed(job, now_ms)
    ready_at = None
    if left and per_second and job.state is JobState.RUNNING and not job.held_by_budget:
        ready_at = now_ms + int(left / per_second * 1_000)
    state = RunState(
        job.total,
        job.succeeded,
        job.failed,
        job.cancelled + job.skipped,
        reused=job.reused,
        spent_micros=job.spent_micros or None,
    )
    return Outlook(job.done, left, per_second, ready_at, forecast(state), is_near_budget(job))


def _speed(job: JobView, now_ms: int) -> float | None:
    """Items per second since the job started."""
    sent = job.done - job.reused
    if job.started_at is None or not sent:
        return None
    ended_at = now_ms if job.finished_at is None else job.finished_at
    return sent / max((ended_at - job.started_at) / 1_000, 1.0)


def is_near_budget(job: JobView) -> bool:
    return job.budget_micros is not None and job.used_micros >= NEAR_SHARE * job.budget_micros


# Charts as plain bars: geometry for an SVG, and the same figures as a table for people who do not see it.

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


def throughput_chart(steps: Sequence[Step], span: Span, now_ms: int) -> Chart:
    series = [
        Series("succeeded", "good", lambda one: one.succeeded / span.step),
        Series("failed", "bad", lambda one: one.failed / span.step),
    ]
    whole = sum_measures([step.measure for step in steps]) if steps else Measure()
    headline = f"{count(whole.ended)} items"
    return _chart("Throughput, items per minute", series, steps, span, now_ms, headline, lambda v: f"{v:,.4g}")


def latency_chart(steps: Sequence[Step], span: Span, now_ms: int) -> Chart:
    series = [Series("mean", "accent", lambda one: one.mean_ms or 0.0)]
    whole = sum_measures([step.measure for step in steps]) if steps else Measure()
    return _chart("Latency of a call, mean", series, steps, span, now_ms, most_within(whole), latency)


def spend_chart(steps: Sequence[Step], span: Span, now_ms: int) -> Chart:
    series = [Series("spent", "money", lambda one: float(one.cost_micros))]
    whole = sum_measures([step.measure for step in steps]) if steps else Measure()
    per = "per minute" if span.step == 1 else f"per {span.step} minutes"
    return _chart(f"Spend {per}", series, steps, span, now_ms, money(whole.cost_micros), lambda v: money(round(v)))


def most_within(measured: Measure) -> str:
    """The time within which 95 % of the calls ended, as far as it was measured."""
    if not measured.calls:
        return "no calls"
    within = measured.within_ms(0.95)
    longest = latency(LATENCY_MS[-1] if within is None else within)
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
