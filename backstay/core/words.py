"""Makes text from outside safe to show: the one line of an error, and any text without hidden characters."""

import re
import unicodedata
from typing import Final


def one_line(text: str, length_max: int = 300) -> str:
    """The first line that says something, without control characters, files' paths and secrets, capped."""
    work_max = max(4_000, length_max * 4)
    line = _first_meaningful(_ANSI.sub("", text[:20_000]))[:work_max]
    for pattern, masked in _SECRETS:
        line = pattern.sub(masked, line)
    line = _PATH.sub(_veiled, line)
    return line if len(line) <= length_max else line[: max(0, length_max - 1)] + "…"[:length_max]


def visible(text: object, keeping: str = "") -> str:
    """A text in which nothing is hidden: marks that reverse it, control characters and NUL are shown as numbers."""
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
# as "url". It is veiled if it begins like a folder of a machine, has a part named like a file, or the error is about
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


def _veiled(found: re.Match[str]) -> str:
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
        line = " ".join("".join(filter(_shown, raw)).split())
        if line.startswith("Traceback (most recent call last)"):
            in_traceback = True
        elif any(map(str.isalnum, line)) and not (in_traceback and raw[:1].isspace()):
            return line
        fallback = fallback or line
    return fallback


def _shown(character: str) -> bool:
    # Cf holds the marks that reverse or hide text, Cs the lone surrogates that no database takes.
    return character.isspace() or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
