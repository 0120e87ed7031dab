"""Shows things to people: money, tokens, rates, times, sentences, and texts from outside. And turns values of rows into
plain ones: text, numbers, bools, None, lists, dicts and bytes.
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

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
    """The sum with all digits: $5.00, $0.00408."""
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


class TimePoint(NamedTuple):
    """A time in a sentence, and the present time, so that the distance can be shown."""

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
    """A text that remembers its `parts`, so that a page or a command can show its times and commands in another way."""

    parts: "tuple[str | TimePoint | NextCommand, ...]"

    def __new__(cls, *parts: str | TimePoint | NextCommand) -> Self:
        made = super().__new__(cls, "".join(map(str, parts)))
        made.parts = tuple(inner for part in parts for inner in parts_of(part))
        return made

    def __getnewargs__(self) -> Any:
        return self.parts


def parts_of(text: str | TimePoint | NextCommand) -> tuple[str | TimePoint | NextCommand, ...]:
    """The parts of a sentence; of a plain text, the text itself."""
    return text.parts if isinstance(text, Sentence) else (text,)


def show_utc(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def show_span(ms: int) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return f"{ms / 1000:.0f} s"


def one_line(text: str, length_max: int = 300) -> str:
    """The first line that is not empty, without control characters, file paths and secrets, and not too long."""
    work_max = max(4_000, length_max * 4)
    line = _first_meaningful(_ANSI.sub("", text[:20_000]))[:work_max]
    for pattern, masked in _SECRETS:
        line = pattern.sub(masked, line)
    line = _PATH.sub(_redact, line)
    return line if len(line) <= length_max else line[: max(0, length_max - 1)] + "…"[:length_max]


def visible(text: object, keeping: str = "") -> str:
    """The text with nothing hidden: control characters, NUL and marks that reverse the text are shown as numbers."""
    said = str(text)
    if said.isprintable():
        return said
    return "".join(c if c.isprintable() or c in keeping else f"⟨U+{ord(c):04X}⟩" for c in said)


_ANSI: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -~]?")
_SECRETS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), masked)
    for pattern, masked in (
        (r"://(?:[^\s/:@]{0,200}:[^\s'\"]{0,2000}|[^\s/'\"]{0,200})@", "://<secret>@"),
        (r"\bbearer +(?!tokens?\b|auth|scheme)[^\s'\"]+", "Bearer <secret>"),
        (r"(authorization['\"]? ?[:=] ?['\"]?)(?!bearer )(?:\w+ )?[^\s'\",;]+", r"\1<secret>"),
        (
            r"((?:api[_-]?key|token|secret|passw(?:or)?d|pwd)\b['\"]? ?[:=] ?|key['\"]?=|\bsig(?:nature)?=)"
            r"(?:\"[^\"]*\"|'[^']*'|(?!<secret>)[^\s'\"&,;)}\]]+)",
            r"\1<secret>",
        ),
        (r"\b(?:sk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs])[-_][\w*.-]{6,}", "<secret>"),
        (r"\b(?:AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w.-]+)", "<secret>"),
    )
)
# URLs are matched first, so that the part after their host is not mistaken for a path of this machine.
_PATH: Final = re.compile(
    r"(?P<url>\b(?!file:|sqlite)[a-z][a-z0-9+.-]{1,20}://[^\s'\"]*)"
    r"|\b(?:file|sqlite)[a-z0-9+]{0,20}:/[^\s'\"]*"
    r"|(?<=(?P<quote>['\"`]))(?:~?/|[a-z]:[\\/]|\\\\)[^'\"`]+(?=(?P=quote))"
    r"|(?<![\w.~/\\])~?/(?:[^\s/'\"`:,;()<>]+/+[^\s'\"`:,;()<>]*|(?:etc|home|opt|root|srv|tmp|usr|var)\b)"
    r"|(?<![\w])[a-z]:[\\/][^\s'\"`:,;()<>]*"
    r"|(?<![\w\\])\\\\[\w.$-]+\\[^\s'\"`:,;()<>]*",
    re.IGNORECASE,
)


# A path is shown if it belongs to a URL: it begins like a path of an API, or stands after an HTTP method or a word such
# as "url". It is hidden if it begins like a folder of a machine, has a part named like a file, or the error is about
# files.
_OF_API: Final = re.compile(r"/(?:v\d+(?:(?:alpha|beta)\d*)?|api|openai|deployments|engines|chat/completions)(?:/|$)")
_SPOKEN_OF: Final = re.compile(
    r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|(?i:url|uri|endpoint|route|location|redirect\w* to))(?:\W+\w+)?\W*$"
)
_OF_MACHINE: Final = re.compile(
    r"/(?:app|bin|data|dev|etc|home|lib\w*|mnt|opt|private|proc|root|run|srv|sys|tmp|users|usr|var|volumes|work\w*)/"
    r"|.*\.(?!json\b)[a-z]{1,8}(?:/|$)"
    r"|.*/\.\.?/",
    re.IGNORECASE,
)
_OF_FILES: Final = re.compile(r"\[(?:Errno|WinError)|no such file|a directory", re.IGNORECASE)
_WORDS_BEFORE_MAX: Final = 40


def _redact(found: re.Match[str]) -> str:
    text = found[0]
    is_shown = found["url"] or (text.startswith("/") and _is_of_url(text.partition("?")[0], found))
    return text if is_shown else "<path>"


def _is_of_url(path: str, found: re.Match[str]) -> bool:
    if _OF_MACHINE.match(path) or _OF_FILES.search(found.string):
        return False
    before = found.string[max(0, found.start() - _WORDS_BEFORE_MAX) : found.start()]
    return bool(_OF_API.match(path) or _SPOKEN_OF.search(before))


def _first_meaningful(text: str) -> str:
    in_traceback, fallback = False, ""
    for raw in text.splitlines():
        line = " ".join("".join(filter(_is_shown, raw)).split())
        if line.startswith("Traceback (most recent call last)"):
            in_traceback = True
        elif any(map(str.isalnum, line)) and not (in_traceback and raw[:1].isspace()):
            return line
        fallback = fallback or line
    return fallback


def _is_shown(character: str) -> bool:
    # Cf: marks that reverse or hide text. Cs: lone surrogates, which no database accepts.
    return character.isspace() or unicodedata.category(character) not in ("Cc", "Cf", "Cs")


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
LEVELS_MAX: Final = 128  # as in a line of JSON; a value that contains itself has more


class NotPlain(ValueError):
    """A value that cannot be part of a row. The message is a noun phrase: "a value of the type socket"."""


def is_unicode(text: str) -> bool:
    """Whether a text can be written in UTF-8. Texts that Python made of other bytes, with `surrogateescape`, cannot."""
    return text.isascii() or _SURROGATE.search(text) is None


def plain_value(value: Any, levels: int = LEVELS_MAX) -> Any:
    """The value as text, number, bool, None, list, dict or bytes. NaN, NaT and NA become None."""
    if type(value) is str:
        if not is_unicode(value):
            raise NotPlain("a text that is not Unicode")
        return value
    if value is None or type(value) in (int, bool, bytes):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if levels < 0:
        raise NotPlain(f"a value that is nested more than {LEVELS_MAX} levels deep")
    match value:
        case Enum():
            return plain_value(value.value, levels - 1)
        case str() | bytes():
            return plain_value(str(value)) if isinstance(value, str) else bytes(value)
        case int():
            return int(value)
        case Mapping():
            return {_name_of(name): plain_value(each, levels - 1) for name, each in value.items()}
        case Set() | Sequence():
            each_in = sorted(value, key=str) if isinstance(value, Set) else value
            return [plain_value(each, levels - 1) for each in each_in]
        case _:
            return _foreign_value(value, levels - 1)


def _foreign_value(value: Any, levels: int) -> Any:
    if type(value).__name__ in ("NaTType", "NAType"):  # pandas' own words for nothing
        return None
    if isinstance(value, Decimal):
        return None if value.is_nan() else str(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | Fraction) or hasattr(value, "__fspath__"):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_value(getattr(value, field.name), levels) for field in fields(value)}
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):  # a Pydantic model
        return plain_value(dump(), levels)
    if callable(listed := getattr(value, "tolist", None)):  # NumPy's arrays and numbers, pandas' columns
        found = listed()
        return plain_value(found, levels) if type(found) is not type(value) else found
    raise NotPlain(f"a value of the type {type(value).__name__}")


def _name_of(name: Any) -> str:
    return str(plain_value(name))
