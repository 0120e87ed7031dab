"""Shows a run: as a live block on a terminal, as a line now and then elsewhere, or as JSON events.

| where                    | what                                                                          |
|--------------------------|-------------------------------------------------------------------------------|
| stderr is a terminal     | a block that is drawn again in place; NO_COLOR takes its colours away         |
| it is not, or TERM=dumb  | a line on stderr at the start, and then every 10 % but 10 to 60 seconds apart |
| `--json`                 | events on stdout: progress, held, released, note, summary; an object a line   |
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Protocol, Self, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from backstay.core.display import show_ceiling, show_money, show_rate, show_seconds, show_tokens
from backstay.run.run_state import Meter, MeterReading, RunState
from backstay.run.summary import Summary

DRAW_SECONDS: Final = 0.2
BAR_WIDTH_MAX: Final = 60
NARROW: Final = 40  # below this the bar has a line to itself

Part = tuple[str, str]  # words and their style


class Terminal:
    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._console = console or Console(stderr=True, highlight=False)
        self._meter = Meter()
        self._drawn_at: float | None = None
        # Drawn only when it is shown something, so no thread draws while others write.
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.start()
        self._console.show_cursor(True)  # a process that is killed could not bring it back
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def show(self, state: RunState, now: float) -> None:
        reading = self._meter.read(state, now)
        if self._drawn_at is None or now - self._drawn_at >= DRAW_SECONDS:
            self._drawn_at = now
            self._live.update(Block(self._title, state, reading), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(Text(" ".join(text.split())))

    def end(self, summary: Summary) -> None:
        self._live.stop()
        first, *rest = summary.lines()
        self._console.print(Text(first, "bold"))
        for line in rest:
            self._console.print(Text(line), soft_wrap=True)


class Block:
    """The run at one moment, as wide as the terminal is."""

    def __init__(self, title: str, state: RunState, reading: MeterReading) -> None:
        self._title = title
        self._state = state
        self._reading = reading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state, width = self._state, options.max_width
        dot = ", " if options.ascii_only else " · "
        yield Text(self._title, "bold", no_wrap=True, overflow="ellipsis")
        yield _bar(state, width)
        for row in (_counts(state, width), _pace(state, self._reading), _money(state, self._reading)):
            yield from _pack_lines(row, dot, width)
        if state.held is not None:
            yield Text(describe_hold(state), "yellow")
        if state.stopping:
            yield Text(_describe_stop(state.running), "yellow")


def _so_far(state: RunState) -> str:
    return f"{state.done:,} of {state.total:,}"


def _bar(state: RunState, width: int) -> Table:
    figures = f"{state.percent:>3} %" + (f"  {_so_far(state)}" if width >= NARROW else "")
    room = max(min(width - len(figures) - 2, BAR_WIDTH_MAX), 4)
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(ProgressBar(total=max(state.total, 1), completed=state.done, width=room), Text(figures, no_wrap=True))
    return row


def _counts(state: RunState, width: int) -> Iterator[Part]:
    if width < NARROW:
        yield _so_far(state), ""
    yield f"{state.succeeded:,} succeeded", "green"
    yield f"{state.failed:,} failed", "red" if state.failed else ""
    if state.cancelled:
        yield f"{state.cancelled:,} cancelled", ""
    yield f"{state.retrying:,} retrying", "yellow" if state.retrying else ""
    yield f"{state.running:,} running", ""
    if state.submitted is not None and state.submitted < state.total:
        yield f"{state.submitted:,} stored", ""
    for name, number in state.flaws:
        yield f"{number:,} {name}", "yellow"
    if state.repeats:
        yield f"{state.repeats:,} lost answers, maybe paid", "yellow"


def _pace(state: RunState, reading: MeterReading) -> Iterator[Part]:
    if reading.per_second is not None:
        yield show_rate(reading.per_second), ""
    yield "time left unknown" if reading.eta_seconds is None else f"{show_seconds(reading.eta_seconds)} left", ""
    yield f"{show_tokens(state.input_tokens)} tokens in", ""
    yield f"{show_tokens(state.output_tokens)} out", ""


def _money(state: RunState, reading: MeterReading) -> Iterator[Part]:
    if state.spent_micros is None:
        yield "cost unknown", ""
    else:
        ceiling = "" if state.budget_micros is None else f" of {show_ceiling(state.budget_micros)}"
        yield f"{show_money(state.spent_micros)}{ceiling} spent", ""
    if state.reserved_micros:
        yield f"{show_money(state.reserved_micros)} reserved", ""
    if reading.forecast_micros is not None:
        beyond = state.budget_micros is not None and reading.forecast_micros > state.budget_micros
        yield f"{show_money(reading.forecast_micros)} forecast", "yellow" if beyond else ""


def _describe_stop(running: int) -> str:
    if running == 0:
        return "stopping"
    calls, them = ("1 call finishes", "it") if running == 1 else (f"{running:,} calls finish", "them")
    return f"stopping: {calls} first; Ctrl-C again cuts {them} off (may be paid twice)"


def _pack_lines(parts: Iterable[Part], dot: str, width: int) -> Iterator[Text]:
    """As many parts on a line as fit."""
    line = Text()
    for words, style in parts:
        if line and len(line) + len(dot) + len(words) > width:
            yield line
            line = Text()
        line.append(dot if line else "", "dim").append(words, style)
    yield line


LINE_PERCENT: Final = 10
LINE_SECONDS: Final = 10.0
SILENT_SECONDS_MAX: Final = 60.0
EVENT_SECONDS: Final = 1.0
EVENT_SILENT_SECONDS_MAX: Final = 10.0
HOLD_SECONDS: Final = 2.0  # a shorter hold is not shown
HOLD_AGAIN_SECONDS: Final = 10.0


class View(Protocol):
    def show(self, state: RunState, now: float) -> None:
        """How the run stands, several times a second; `now` is in seconds that only go forward."""

    def say(self, text: str) -> None:
        """One line that stays."""

    def end(self, summary: Summary) -> None:
        """Shows the summary."""


@contextmanager
def open_view(job_id: int, title: str, as_json: bool = False, plain: bool = False) -> Iterator[View]:
    """The view that fits where the output goes; `plain` when results go to the same terminal."""
    if as_json:
        yield Events(job_id, sys.stdout)
    elif plain or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainLines(job_id, sys.stderr)
    else:
        with Terminal(f"job {job_id}: {title}" if title else f"job {job_id}") as terminal:
            yield terminal


class Holds:
    """Decides which holds are shown: a hold that lasts is shown once, and again only after its reason has changed for a
    while."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._free_since: float | None = None
        self._told: str | None = None
        self._told_at = 0.0

    def change(self, held: str | None, now: float) -> str | None:
        """ "held", "released", or None when there is nothing to tell."""
        if held is None:
            self._since = None
            self._free_since = now if self._free_since is None else self._free_since
            if self._told is None or now - self._free_since < HOLD_SECONDS:
                return None
            self._told = None
            return "released"
        self._free_since = None
        self._since = now if self._since is None else self._since
        lasts = now - self._since >= HOLD_SECONDS
        other = held != self._told and now - self._told_at >= HOLD_AGAIN_SECONDS
        if (self._told is None and lasts) or (self._told is not None and other):
            self._told, self._told_at = held, now
            return "held"
        return None


class PlainLines:
    """One plain line now and then."""

    def __init__(self, job_id: int, stream: TextIO) -> None:
        self._name = f"job {job_id}"
        self._stream = stream
        self._meter = Meter()
        self._holds = Holds()
        self._said_at: float | None = None
        self._said_percent = 0

    def show(self, state: RunState, now: float) -> None:
        reading = self._meter.read(state, now)
        change = self._holds.change(state.held, now)
        if change == "held":
            self.say(f"{self._name}: {describe_hold(state)}")
        elif change == "released":
            self.say(f"{self._name}: resumed")
        if self._is_due(state, now):
            self._said_at, self._said_percent = now, state.percent
            self.say(f"{self._name}: {describe(state, reading)}")

    def _is_due(self, state: RunState, now: float) -> bool:
        if self._said_at is None:
            return True
        silent = now - self._said_at
        moved = state.percent >= self._said_percent + LINE_PERCENT
        return silent >= SILENT_SECONDS_MAX or (moved and silent >= LINE_SECONDS)

    def say(self, text: str) -> None:
        self._stream.write(f"{' '.join(text.split())}\n")
        self._stream.flush()

    def end(self, summary: Summary) -> None:
        self._stream.write("\n".join(summary.lines()) + "\n")
        self._stream.flush()


def describe(state: RunState, reading: MeterReading) -> str:
    """A run in one line."""
    parts = [f"{state.done:,} of {state.total:,} done ({state.percent} %)"]
    counts = (("failed", state.failed), ("retrying", state.retrying), *state.flaws)
    parts += [f"{number:,} {name}" for name, number in counts if number]
    if reading.per_second:
        parts.append(show_rate(reading.per_second))
    if reading.eta_seconds:
        parts.append(f"{show_seconds(reading.eta_seconds)} left")
    parts += describe_money(state, reading)
    return ", ".join(parts) + (f"; {describe_hold(state)}" if state.held else "")


def describe_hold(state: RunState) -> str:
    seconds = state.held_seconds
    return f"held: {state.held}" + (f"; next attempt in {show_seconds(seconds)}" if seconds is not None else "")


def describe_money(state: RunState, reading: MeterReading) -> list[str]:
    """Spent money, budget and forecast; "unknown" if the price is not known."""
    ceiling = "" if state.budget_micros is None else f" of {show_ceiling(state.budget_micros)}"
    if state.spent_micros is None:
        return ["cost unknown"]
    parts = [f"{show_money(state.spent_micros)}{ceiling} spent"]
    if reading.forecast_micros is not None and state.left:
        parts.append(f"forecast {show_money(reading.forecast_micros)}")
    return parts


class Events:
    """An object a line, for a program to read."""

    def __init__(self, job_id: int, stream: TextIO) -> None:
        self._job_id = job_id
        self._stream = stream
        self._meter = Meter()
        self._holds = Holds()
        self._said: RunState | None = None
        self._said_at = 0.0

    def show(self, state: RunState, now: float) -> None:
        reading = self._meter.read(state, now)
        change = self._holds.change(state.held, now)
        if change is not None:
            self._emit(change, reason=state.held, seconds=state.held_seconds)
        silent = now - self._said_at
        stands = state._replace(held_seconds=None)  # not for every second that passes
        changed = stands != self._said and silent >= EVENT_SECONDS
        if self._said is None or changed or silent >= EVENT_SILENT_SECONDS_MAX:
            self._said, self._said_at = stands, now
            self._emit("progress", **state._asdict(), done=state.done, **reading._asdict())

    def say(self, text: str) -> None:
        self._emit("note", message=text)

    def end(self, summary: Summary) -> None:
        self._emit("summary", **summary.fields())

    def _emit(self, event: str, **fields: Any) -> None:
        told = {"event": event, "job": self._job_id, **fields}
        self._stream.write(json.dumps(told, ensure_ascii=False) + "\n")
        self._stream.flush()
