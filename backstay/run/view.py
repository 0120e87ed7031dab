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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TextIO

from backstay.core.display import show_ceiling, show_money, show_rate, show_seconds
from backstay.run.run_state import Meter, MeterReading, RunState
from backstay.run.summary import Summary

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
        from backstay.run.terminal import Terminal  # rich takes time to load, and only a terminal needs it

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
