"""When a cron line fires: in a time zone, and correct on the days when clocks change.

A line with a fixed minute and hour follows the wall clock. If clocks go forward over its time, it fires as soon as they
have; if its time comes twice, it fires once. A line whose minute or hour begins with `*` follows real time.
"""

import difflib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from backstay.core.errors import UsageError

LINE_CHARACTERS_MAX: Final = 200
ZONE_CHARACTERS_MAX: Final = 100
_OF_THE_MACHINE: Final = ("localtime", "posixrules")  # each machine may have another one: workers would not agree
_STEPS_MAX: Final = {"minute": 60, "hour": 24, "day of month": 31, "month": 12, "day of week": 7}
_FIELDS: Final = ", ".join(_STEPS_MAX)
_SPANS_MS: Final = (3_600_000, 86_400_000, 31 * 86_400_000)


def check_line(line: str, timezone: str) -> str:
    """The line with single blanks, if it and the time zone are valid and it ever fires."""
    for what, text in (("cron line", line), ("time zone", timezone)):
        if not isinstance(text, str):
            raise UsageError(f"a {what} must be a text, not {text!r}")
    parts = line.split()
    why = _fault(line, parts)
    if why is not None:
        shown = repr(line[:LINE_CHARACTERS_MAX]) + ("…" if len(line) > LINE_CHARACTERS_MAX else "")
        raise UsageError(f"the cron line {shown} is not valid: {why}", hint=f"the five fields are: {_FIELDS}")
    zone_named(timezone)
    if next_after(line, timezone, 0) is None:
        raise UsageError(f"the cron line {line!r} never fires", hint="no such day is in the calendar")
    return " ".join(parts)


def _fault(line: str, parts: list[str]) -> str | None:
    """Why a line is not valid; None: it is."""
    if len(line) > LINE_CHARACTERS_MAX:
        return f"it has {len(line):,} characters; the limit is {LINE_CHARACTERS_MAX}"
    if len(parts) != 5:
        return "seconds are not supported" if len(parts) == 6 else f"it must have five fields, not {len(parts)}"
    for (field, most), text in zip(_STEPS_MAX.items(), parts, strict=True):
        for step in (part.partition("/")[2] for part in text.split(",")):
            if step.isdecimal() and int(step) > most:
                return f"the step {step} of its {field} is above {most}"
    error = _error_of(parts)
    if error is None:
        return None
    minute, hour, day, month, weekday = parts
    alone = ([minute, hour, day, "*", weekday], [minute, hour, "*", month, weekday])
    return error if any(map(_error_of, alone)) else "this date never comes"


def _error_of(parts: list[str]) -> str | None:
    try:
        CronSim(" ".join(parts), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return str(error).lower()
    return None


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo:
    try:
        if name in _OF_THE_MACHINE:
            raise KeyError
        if len(name) <= ZONE_CHARACTERS_MAX:
            return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found; not a name; the name of a folder
        close = difflib.get_close_matches(name, available_timezones().difference(_OF_THE_MACHINE), n=1)
        hint = f"did you mean {close[0]}?" if close else "use a name such as Europe/Berlin or UTC"
        raise UsageError(f"there is no time zone {name!r}", hint=hint) from None
    raise UsageError(f"there is no time zone {name[:ZONE_CHARACTERS_MAX]!r}…")


def next_after(line: str, timezone: str, after_ms: int) -> int | None:
    """The first firing after a moment; None if the line does not fire within 50 years."""
    return next(_firings(line, timezone, after_ms), None)


def firings_between(line: str, timezone: str, first_ms: int, until_ms: int) -> Iterator[int]:
    """All firings from one moment to another, both included."""
    return takewhile(lambda at: at <= until_ms, _firings(line, timezone, first_ms - 1))


def last_between(line: str, timezone: str, first_ms: int, until_ms: int) -> int | None:
    """The last of them. The search begins near the end: a year of a line that fires each minute costs no more than a
    day."""
    for span in (*_SPANS_MS, until_ms - first_ms):
        start = max(first_ms, until_ms - span)
        found = deque(firings_between(line, timezone, start, until_ms), maxlen=1)
        if found or start == first_ms:
            return found[0] if found else None
    return None


def show_local(at_ms: int, timezone: str) -> str:
    """A moment as the clocks of its time zone show it: 2026-03-29 03:00 CEST."""
    return datetime.fromtimestamp(at_ms / 1000, zone_named(timezone)).strftime("%Y-%m-%d %H:%M %Z")


def _firings(line: str, timezone: str, after_ms: int) -> Iterator[int]:
    """Without end, each later than the one before it. In an hour that comes twice, cronsim may repeat a time."""
    last = after_ms
    for at in CronSim(line, datetime.fromtimestamp(after_ms // 1000, zone_named(timezone))):
        ms = int(at.timestamp()) * 1000
        if ms > last:
            last = ms
            yield ms
