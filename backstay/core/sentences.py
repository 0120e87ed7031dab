"""Texts for people that know their parts: which are moments, and which are commands to type next."""

from datetime import UTC, datetime
from typing import Any, NamedTuple, Self


class TimePoint(NamedTuple):
    """A time in a sentence, and the present, from which its distance is counted."""

    at: int
    now: int

    def __str__(self) -> str:
        return f"{show_utc(self.at)} ({self.distance})"

    @property
    def distance(self) -> str:
        span = show_span(abs(self.at - self.now))
        return f"in {span}" if self.at > self.now else f"{span} ago"


class NextCommand(NamedTuple):
    """A command of `backstay` that helps, without its first word. The command line adds which database it is for."""

    text: str

    def __str__(self) -> str:
        return f"backstay {self.text}"


class Sentence(str):
    """A plain text to everybody else. Who shows it may show its moments and commands in another way: see `parts`."""

    parts: "tuple[str | TimePoint | NextCommand, ...]"

    def __new__(cls, *parts: str | TimePoint | NextCommand) -> Self:
        made = super().__new__(cls, "".join(map(str, parts)))
        made.parts = tuple(inner for part in parts for inner in parts_of(part))
        return made

    def __getnewargs__(self) -> Any:
        return self.parts


def parts_of(text: str | TimePoint | NextCommand) -> tuple[str | TimePoint | NextCommand, ...]:
    """Of a text that knows no parts, the text."""
    return text.parts if isinstance(text, Sentence) else (text,)


def show_utc(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def show_span(ms: int) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return f"{ms / 1000:.0f} s"
