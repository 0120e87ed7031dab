"""A run on a terminal: a live block that is drawn again in place."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from backstay.core.display import show_ceiling, show_money, show_rate, show_seconds, show_tokens
from backstay.run.run_state import Meter, MeterReading, RunState
from backstay.run.summary import Summary
from backstay.run.view import describe_hold

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
