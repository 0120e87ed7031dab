"""What went wrong, in ten public codes, five kinds and one line that is safe to show.

| status           | code       | kind           | why                                                        |
|------------------|------------|----------------|------------------------------------------------------------|
| 401 402 403 407  | FORBIDDEN  | held           | credentials or money: every other item would fail as well  |
| 400 429, no money| FORBIDDEN  | held           | some providers say "no credit left" with these             |
| 408              | GW_TIMEOUT | infrastructure | the provider gave up waiting for the request: not begun    |
| 410              | EXPIRED    | business       | what was asked for is gone for good                        |
| 413              | TOO_LARGE  | business       | the same body is too large again                           |
| 425              | GW_4XX     | infrastructure | too early: asked to come again                             |
| 429              | GW_4XX     | throttled      | not the item's fault, so it costs no attempt               |
| other 4xx        | GW_4XX     | business       | the request is wrong and stays wrong                       |
| 504              | GW_TIMEOUT | infrastructure |                                                            |
| other 5xx        | GW_5XX     | infrastructure | with its Retry-After, if it sends one                      |
| anything else    | UNKNOWN    | business       | no status of a failure                                     |
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from backstay.core.errors import (
    DatabaseUnreachable,
    ErrorCode,
    HandlerError,
    OutcomeUnknown,
    Permanent,
    ProviderHeld,
    Throttled,
    Transient,
)
from backstay.core.retry import parse_retry_after, retry_after_ms_of

__all__ = [
    "INNER_CODES",
    "ErrorCode",
    "Failure",
    "FailureKind",
    "failure_of_exception",
    "failure_of_status",
    "one_line",
    "parse_retry_after",
    "public_code",
]


class FailureKind(StrEnum):
    """Who acts on a failure, in the order in which they win when several happened at once."""

    UNKNOWN = "unknown"  # It may have been done and paid for: looked up before it is sent again.
    HELD = "held"  # The provider is held; the item goes back without an attempt.
    THROTTLED = "throttled"  # Retried, costs no attempt, honours retry_after.
    INFRASTRUCTURE = "infrastructure"  # Retried.
    BUSINESS = "business"  # Not retried.


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item did not succeed; its message is made safe here, whoever wrote it."""

    code: ErrorCode
    kind: FailureKind
    message: str
    retry_after_ms: int | None = None
    provider_status: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))
        object.__setattr__(self, "code", public_code(self.code))  # a handler may have made one up


_BY_STATUS: Final[Mapping[int, tuple[ErrorCode, FailureKind]]] = MappingProxyType(
    {
        **dict.fromkeys((401, 402, 403, 407), (ErrorCode.FORBIDDEN, FailureKind.HELD)),
        408: (ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE),
        410: (ErrorCode.EXPIRED, FailureKind.BUSINESS),
        413: (ErrorCode.TOO_LARGE, FailureKind.BUSINESS),
        425: (ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE),
        429: (ErrorCode.GW_4XX, FailureKind.THROTTLED),
        504: (ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE),
    }
)
_NO_MONEY: Final = re.compile(
    r"insufficient_quota|billing_hard_limit|credit balance is too low|insufficient balance", re.IGNORECASE
)

# Nuances that stay inside; outside, each is one of the ten.
INNER_CODES: Final[Mapping[str, ErrorCode]] = MappingProxyType(
    {
        **{code.value: code for code in ErrorCode},
        "GW_UNAVAILABLE": ErrorCode.GW_5XX,
        "NETWORK_ERROR": ErrorCode.GW_5XX,
        "CONNECTION_ERROR": ErrorCode.GW_5XX,
        "CALL_TIMEOUT": ErrorCode.GW_TIMEOUT,
        "HANDLER_TIMEOUT": ErrorCode.GW_TIMEOUT,
        "ITEM_TIMEOUT": ErrorCode.GW_TIMEOUT,
        "JOB_TIMEOUT": ErrorCode.GW_TIMEOUT,
        "DEADLINE_PASSED": ErrorCode.GW_TIMEOUT,
        "PARSE_ERROR": ErrorCode.GW_4XX,
        "VALIDATION_ERROR": ErrorCode.GW_4XX,
        "INVALID_MAPPING": ErrorCode.GW_4XX,
        "RATE_LIMITED": ErrorCode.GW_4XX,
        "MEMORY_ERROR": ErrorCode.IO_ERROR,
        "DISK_FULL": ErrorCode.IO_ERROR,
        "AUTH_ERROR": ErrorCode.FORBIDDEN,
        "QUOTA_EXCEEDED": ErrorCode.FORBIDDEN,
    }
)


def public_code(name: str) -> ErrorCode:
    return INNER_CODES.get(name.strip().upper(), ErrorCode.UNKNOWN)


def failure_of_status(status: int, message: str = "", retry_after_ms: int | None = None) -> Failure:
    """The failure that an HTTP status stands for, by the table above."""
    if status in (400, 429) and _NO_MONEY.search(message):
        code, kind = ErrorCode.FORBIDDEN, FailureKind.HELD
    elif status in _BY_STATUS:
        code, kind = _BY_STATUS[status]
    elif 400 <= status <= 499:
        code, kind = ErrorCode.GW_4XX, FailureKind.BUSINESS
    elif 500 <= status <= 599:
        code, kind = ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE
    else:
        code, kind = ErrorCode.UNKNOWN, FailureKind.BUSINESS
    return Failure(code, kind, message or _status_words(status), retry_after_ms, status)


def failure_of_exception(exc: BaseException, now_ms: int | None = None) -> Failure:
    """The failure that an exception stands for; without `now_ms` a Retry-After given as a date is ignored.

    Cancellation and Skip are no failures: the caller deals with them before it asks.
    """
    if isinstance(exc, BaseExceptionGroup):
        failures = [failure_of_exception(inner, now_ms) for inner in exc.exceptions]
        return min(failures, key=lambda failure: list(FailureKind).index(failure.kind))
    if isinstance(exc, HandlerError):
        return _failure_of_handler_error(exc)
    status = _status_of(exc)
    if status is not None:
        return failure_of_status(status, _words(exc), _retry_after_of(exc, now_ms))
    code, kind = _verdict(exc)
    return Failure(code, kind, _words(exc))


def one_line(text: str, length_max: int = 300) -> str:
    """The first line that says something, without control characters, server paths and secrets, capped."""
    work_max = max(4_000, length_max * 4)
    line = _first_meaningful(_ANSI.sub("", text[:20_000]))[:work_max]
    for pattern, masked in _SECRETS:
        line = pattern.sub(masked, line)
    line = _PATH.sub(lambda found: found["url"] or "<path>", line)
    return line if len(line) <= length_max else line[: max(0, length_max - 1)] + "…"[:length_max]


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
# URLs are matched first, so that what follows their host is not taken for a path of the server.
_PATH: Final = re.compile(
    r"(?P<url>\b(?!file:|sqlite)[a-z][a-z0-9+.-]{1,20}://[^\s'\"]*)"
    r"|\b(?:file|sqlite)[a-z0-9+]{0,20}:/[^\s'\"]*"
    r"|(?<=(?P<quote>['\"`]))(?:~?/|[a-z]:[\\/]|\\\\)[^'\"`]*(?=(?P=quote))"
    r"|(?<![\w.~/\\])~?/(?:[^\s/'\"`:,;()<>]+/+[^\s'\"`:,;()<>]*|(?:etc|home|opt|root|srv|tmp|usr|var)\b)"
    r"|(?<![\w])[a-z]:[\\/][^\s'\"`:,;()<>]*"
    r"|(?<![\w\\])\\\\[\w.$-]+\\[^\s'\"`:,;()<>]*",
    re.IGNORECASE,
)


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


def _status_words(status: int) -> str:
    try:
        return f"the provider answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the provider answered {status}"


def _failure_of_handler_error(exc: HandlerError) -> Failure:
    match exc:
        case Transient():
            after_ms = retry_after_ms_of(exc.retry_after_seconds)
            return Failure(exc.code, FailureKind.INFRASTRUCTURE, exc.message, after_ms)
        case Throttled():
            after_ms = retry_after_ms_of(exc.retry_after_seconds)
            return Failure(ErrorCode.GW_4XX, FailureKind.THROTTLED, exc.message, after_ms)
        case Permanent():
            return Failure(exc.code, FailureKind.BUSINESS, exc.message)
        case ProviderHeld():
            return Failure(ErrorCode.FORBIDDEN, FailureKind.HELD, exc.message)
        case OutcomeUnknown():
            return Failure(ErrorCode.GW_TIMEOUT, FailureKind.UNKNOWN, exc.message)
        case _:
            return Failure(ErrorCode.UNKNOWN, FailureKind.BUSINESS, exc.message)


_NEVER_CONNECTED: Final = ("ConnectionRefused", "ConnectError", "ConnectorError", "NewConnectionError")


def _verdict(exc: BaseException) -> tuple[ErrorCode, FailureKind]:
    """Code and kind by type, or by the name of a type from a client library that is not imported here."""
    names = [cls.__name__ for cls in type(exc).__mro__]

    def named(*parts: str) -> bool:
        return any(part in name for name in names for part in parts)

    if named("ConnectTimeout", "ConnectionTimeout", "PoolTimeout"):
        return ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE  # It ran out of time before anything was sent.
    if isinstance(exc, TimeoutError) or named("Timeout"):
        return ErrorCode.GW_TIMEOUT, FailureKind.UNKNOWN
    causes = [cls.__name__ for cls in type(exc.__cause__).__mro__] if named("Connect") else []
    if any(part in name for name in names + causes for part in _NEVER_CONNECTED):
        return ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE  # There never was a connection to send it over.
    if isinstance(exc, ConnectionError) or named("Connect", "NetworkError", "ProtocolError", "IncompleteRead"):
        return ErrorCode.GW_5XX, FailureKind.UNKNOWN  # It broke off, maybe after the request was sent.
    if isinstance(exc, OSError | MemoryError | DatabaseUnreachable):
        return ErrorCode.IO_ERROR, FailureKind.INFRASTRUCTURE
    return ErrorCode.GW_4XX if "ValidationError" in names else ErrorCode.UNKNOWN, FailureKind.BUSINESS


def _words(exc: BaseException) -> str:
    name = type(exc).__name__
    try:
        return f"{name}: {text}" if (text := str(exc).strip()) else name
    except Exception:  # A __str__ that raises must not hide the failure it belongs to.
        return name


def _status_of(exc: BaseException) -> int | None:
    for holder in _answers(exc):
        for name in ("status", "status_code"):
            status = _attribute(holder, name)
            if isinstance(status, int) and 400 <= status <= 599:
                return int(status)
    return None


def _retry_after_of(exc: BaseException, now_ms: int | None) -> int | None:
    for holder in _answers(exc):
        read = _attribute(_attribute(holder, "headers"), "get")
        for name in ("Retry-After", "retry-after") if callable(read) else ():
            value = _called(read, name)
            if isinstance(value, str | int | float):
                return parse_retry_after(str(value), now_ms)
    return None


def _answers(exc: BaseException) -> Iterator[object]:
    yield exc
    yield _attribute(exc, "response")


def _attribute(holder: object, name: str) -> object:
    # Client libraries compute these, and some raise when there was no answer.
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def _called(read: object, name: str) -> object:
    try:
        return read(name) if callable(read) else None
    except Exception:
        return None
