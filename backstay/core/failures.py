"""Failures: a public code, a kind, and one line of text that is safe to show.

| status           | code       | kind           | why                                                        |
|------------------|------------|----------------|------------------------------------------------------------|
| 401 402 407      | FORBIDDEN  | held           | credentials or money: every other item would fail as well  |
| 400 403 429      | FORBIDDEN  | held           | if the text says "bad key" or "no credit left"             |
| 401 403          | FORBIDDEN  | business       | if the text says that the model or the content is refused  |
| 403, no text     | FORBIDDEN  | refused        | this request or all of them: the next try shows it         |
| 408              | GW_TIMEOUT | infrastructure | the provider gave up waiting for the request: not begun    |
| 410              | EXPIRED    | business       | the requested thing is gone permanently                    |
| 413              | TOO_LARGE  | business       | the same body is too large again                           |
| 425              | GW_4XX     | infrastructure | too early: the provider asks for another try               |
| 429              | GW_4XX     | throttled      | not the item's fault, so it costs no attempt               |
| other 4xx        | GW_4XX     | business       | the request is wrong and stays wrong                       |
| 504              | GW_TIMEOUT | infrastructure |                                                            |
| other 5xx        | GW_5XX     | infrastructure | with its Retry-After, if it sends one                      |
| anything else    | UNKNOWN    | business       | no status of a failure                                     |
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from backstay.core.display import one_line
from backstay.core.errors import (
    DatabaseUnreachable,
    ErrorCode,
    FilesUnreachable,
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
    "error_of_failure",
    "failure_of_exception",
    "failure_of_status",
    "one_line",
    "parse_retry_after",
    "public_code",
]


class FailureKind(StrEnum):
    """How the engine reacts to a failure. If several happened at once, the first in this order decides."""

    UNKNOWN = "unknown"  # The call may have been processed and paid: looked up before it is sent again.
    HELD = "held"  # The account is refused: the provider is put on hold; the item goes back and loses no attempt.
    REFUSED = "refused"  # This request is refused, or all requests: tried once more at no cost, then failed.
    THROTTLED = "throttled"  # Retried, costs no attempt, honours retry_after.
    INFRASTRUCTURE = "infrastructure"  # Retried.
    BUSINESS = "business"  # Not retried.


NO_REASON: Final = "no reason was given"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item did not succeed; its message is made safe here, from any source."""

    code: ErrorCode
    kind: FailureKind
    message: str
    retry_after_ms: int | None = None
    provider_status: int | None = None

    def __post_init__(self) -> None:
        status = self.provider_status
        told = one_line(self.message) or (NO_REASON if status is None else _status_text(status))
        object.__setattr__(self, "message", told)
        object.__setattr__(self, "code", public_code(self.code))  # a handler may have passed a code of its own


_BY_STATUS: Final[Mapping[int, tuple[ErrorCode, FailureKind]]] = MappingProxyType(
    {
        **dict.fromkeys((401, 402, 407), (ErrorCode.FORBIDDEN, FailureKind.HELD)),
        403: (ErrorCode.FORBIDDEN, FailureKind.REFUSED),
        408: (ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE),
        410: (ErrorCode.EXPIRED, FailureKind.BUSINESS),
        413: (ErrorCode.TOO_LARGE, FailureKind.BUSINESS),
        425: (ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE),
        429: (ErrorCode.GW_4XX, FailureKind.THROTTLED),
        504: (ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE),
    }
)
# The codes and phrases by which providers refuse the account, and those by which they refuse one request.
_ACCOUNT_WORDS: Final = (
    r"insufficient_quota|billing_(?:hard_limit|not_active)|(?:your )?credit balance"
    r"|insufficient (?:balance|credit|funds)|invalid_api_key|api_key_invalid|account_deactivated"
    r"|(?:invalid|incorrect) api key|api key (?:not valid|expired)"
)
_ACCOUNT: Final = re.compile(_ACCOUNT_WORDS, re.IGNORECASE)
# The text of a 400 may quote the request, so there the words count only where a quoted request cannot stand.
_ACCOUNT_IN_400: Final = re.compile(rf"^(?:{_ACCOUNT_WORDS})|\((?:{_ACCOUNT_WORDS})\w*\)$", re.IGNORECASE)
_REQUEST: Final = re.compile(
    r"model_(?:not_found|access)|access to (?:the )?model|access model|content_(?:policy|filter)|moderation|safety",
    re.IGNORECASE,
)

# Finer codes for internal use; each is shown as one of the public codes.
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
    account = _ACCOUNT_IN_400 if status == 400 else _ACCOUNT
    if status in (400, 401, 402, 403, 429) and account.search(message):
        code, kind = ErrorCode.FORBIDDEN, FailureKind.HELD
    elif status in (401, 403) and _REQUEST.search(message):
        code, kind = ErrorCode.FORBIDDEN, FailureKind.BUSINESS
    elif status in _BY_STATUS:
        code, kind = _BY_STATUS[status]
    elif 400 <= status <= 499:
        code, kind = ErrorCode.GW_4XX, FailureKind.BUSINESS
    elif 500 <= status <= 599:
        code, kind = ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE
    else:
        code, kind = ErrorCode.UNKNOWN, FailureKind.BUSINESS
    return Failure(code, kind, message, retry_after_ms, status)


def failure_of_exception(exc: BaseException, now_ms: int | None = None) -> Failure:
    """The failure that an exception stands for; without `now_ms` a Retry-After given as a date is ignored.

    Cancellation and Skip are not failures: the caller handles them first.
    """
    if isinstance(exc, BaseExceptionGroup):
        failures = [failure_of_exception(inner, now_ms) for inner in exc.exceptions]
        return min(failures, key=lambda failure: list(FailureKind).index(failure.kind))
    if isinstance(exc, HandlerError):
        return _failure_of_handler_error(exc)
    status = _status_of(exc)
    if status is not None:
        return failure_of_status(status, _text_of(exc), _retry_after_of(exc, now_ms))
    code, kind = _verdict(exc)
    return Failure(code, kind, _text_of(exc))


def _status_text(status: int) -> str:
    try:
        return f"the provider answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the provider answered {status}"


def error_of_failure(failure: Failure) -> HandlerError:
    """The exception for a failure, for code that must raise."""
    after = None if failure.retry_after_ms is None else failure.retry_after_ms / 1_000
    match failure.kind:
        case FailureKind.UNKNOWN:
            return OutcomeUnknown(failure.message)
        case FailureKind.HELD:
            return ProviderHeld(failure.message)
        case FailureKind.THROTTLED:
            return Throttled(failure.message, after)
        case FailureKind.INFRASTRUCTURE:
            return Transient(failure.message, failure.code, after)
        case FailureKind.BUSINESS | FailureKind.REFUSED:
            return Permanent(failure.message, failure.code)


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

    def has_name(*parts: str) -> bool:
        return any(part in name for name in names for part in parts)

    if has_name("ConnectTimeout", "ConnectionTimeout", "PoolTimeout"):
        return ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE  # The call timed out before anything was sent.
    if isinstance(exc, TimeoutError) or has_name("Timeout"):
        return ErrorCode.GW_TIMEOUT, FailureKind.UNKNOWN
    causes = [cls.__name__ for cls in type(exc.__cause__).__mro__] if has_name("Connect") else []
    if any(part in name for name in names + causes for part in _NEVER_CONNECTED):
        return ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE  # There was no connection, so nothing was sent.
    broke_off = has_name("Connect", "NetworkError", "ProtocolError", "IncompleteRead", "PayloadError")
    if isinstance(exc, ConnectionError) or broke_off or _is_invalid_http(exc):
        return ErrorCode.GW_5XX, FailureKind.UNKNOWN  # The connection broke, maybe after the request was sent.
    if isinstance(exc, OSError | MemoryError | DatabaseUnreachable | FilesUnreachable):
        return ErrorCode.IO_ERROR, FailureKind.INFRASTRUCTURE
    return ErrorCode.GW_4XX if "ValidationError" in names else ErrorCode.UNKNOWN, FailureKind.BUSINESS


def _text_of(exc: BaseException) -> str:
    name = type(exc).__name__
    try:
        return f"{name}: {text}" if (text := str(exc).strip()) else name
    except Exception:  # A __str__ that raises must not hide the failure it belongs to.
        return name


def _is_invalid_http(exc: BaseException) -> bool:
    """Whether the answer was not valid HTTP: aiohttp then reports its own status, 400."""
    return any(cls.__name__ == "HttpProcessingError" for cls in type(exc.__cause__).__mro__)


def _status_of(exc: BaseException) -> int | None:
    if _is_invalid_http(exc):
        return None
    for holder in _status_holders(exc):
        for name in ("status", "status_code"):
            status = _attribute(holder, name)
            if isinstance(status, int) and 400 <= status <= 599:
                return int(status)
    return None


def _retry_after_of(exc: BaseException, now_ms: int | None) -> int | None:
    for holder in _status_holders(exc):
        read = _attribute(_attribute(holder, "headers"), "get")
        for name in ("Retry-After", "retry-after") if callable(read) else ():
            value = _call(read, name)
            if isinstance(value, str | int | float):
                return parse_retry_after(str(value), now_ms)
    return None


def _status_holders(exc: BaseException) -> Iterator[object]:
    yield exc
    yield _attribute(exc, "response")


def _attribute(holder: object, name: str) -> object:
    # Client libraries compute these attributes, and some raise when there was no answer.
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def _call(read: object, name: str) -> object:
    try:
        return read(name) if callable(read) else None
    except Exception:
        return None
