"""Failures: a public code, a kind, and one line of text that is safe to show; and when a failed item is tried again.

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

The next try follows a named backoff policy; a Retry-After of the provider overrides it.
"""

import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
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
    UsageError,
)

RETRY_AFTER_CAP_MS: Final = 3_600_000
# A throttled item spends no attempt, so a Retry-After of 0 would spin until the item times out.
RETRY_AFTER_FLOOR_MS: Final = 1_000
_YEAR_MS: Final = 366 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how late an item is tried again.

    The delay is min(base · factor^attempt, cap), then times U(1 - spread, 1 + spread), then plus U(0, jitter).
    The cap bounds the formula before it is spread: capping afterwards would pile the items that wait
    longest onto one instant. So the longest delay is `delay_ms_max`, a little above `cap_ms`.
    `attempts_max` includes the first try; None means that only the time limits end the tries.
    """

    name: str
    attempts_max: int | None
    base_ms: int
    factor: float
    cap_ms: int
    jitter_ms: int = 0
    spread: float = 0.0

    def __post_init__(self) -> None:
        attempts_ok = self.attempts_max is None or self.attempts_max >= 1
        rules = (
            (attempts_ok, f"attempts_max must be at least 1, or None, not {self.attempts_max}"),
            (0 <= self.base_ms <= self.cap_ms, f"base_ms must be from 0 to cap_ms, not {self.base_ms}"),
            (self.cap_ms <= _YEAR_MS, f"cap_ms must be at most {_YEAR_MS}, not {self.cap_ms}"),
            (1 <= self.factor <= 100, f"factor must be from 1 to 100, not {self.factor}"),
            (0 <= self.jitter_ms <= _YEAR_MS, f"jitter_ms must be from 0 to {_YEAR_MS}, not {self.jitter_ms}"),
            (0 <= self.spread <= 1, f"spread must be from 0 to 1, not {self.spread}"),
        )
        for kept, sentence in rules:
            if not kept:
                raise UsageError(f"retry policy {self.name!r}: {sentence}")

    @property
    def delay_ms_max(self) -> int:
        return math.ceil(self.cap_ms * (1 + self.spread)) + self.jitter_ms

    def delay_ms(self, attempt: int, rng: random.Random) -> int:
        """The wait after a failed attempt, counted from 0: attempt 0 is the first try."""
        spread = rng.uniform(1 - self.spread, 1 + self.spread)
        jitter = rng.uniform(0, self.jitter_ms)
        return max(0, round(self._formula_ms(max(0, attempt)) * spread + jitter))

    def _formula_ms(self, attempt: int) -> float:
        if self.base_ms == 0 or self.factor == 1:
            return float(self.base_ms)
        # Compared as logarithms, because factor ** attempt overflows long before attempt does.
        if attempt >= math.log(self.cap_ms / self.base_ms, self.factor):
            return float(self.cap_ms)
        return min(self.base_ms * self.factor**attempt, float(self.cap_ms))


GATEWAY: Final = RetryPolicy("gateway", attempts_max=3, base_ms=5_000, factor=2, cap_ms=3_600_000, jitter_ms=5_000)
QUEUE: Final = RetryPolicy("queue", attempts_max=3, base_ms=2_000, factor=2, cap_ms=300_000, spread=0.2)
TIMED: Final = RetryPolicy("timed", attempts_max=None, base_ms=2_000, factor=2, cap_ms=300_000, spread=0.2)
NONE: Final = RetryPolicy("none", attempts_max=1, base_ms=0, factor=1, cap_ms=0)

NAMED: Final[Mapping[str, RetryPolicy]] = MappingProxyType(
    {policy.name: policy for policy in (GATEWAY, QUEUE, TIMED, NONE)}
)


def policy_named(name: str) -> RetryPolicy:
    policy = NAMED.get(name)
    if policy is None:
        raise UsageError(f"there is no retry policy {name!r}; choose from {', '.join(NAMED)}")
    return policy


def next_delay_ms(policy: RetryPolicy, attempt: int, retry_after_ms: int | None, rng: random.Random) -> int:
    """The wait that the provider asked for, within a floor and a cap; without one, the wait of the policy."""
    if retry_after_ms is None:
        return policy.delay_ms(attempt, rng)
    return min(max(retry_after_ms, RETRY_AFTER_FLOOR_MS), RETRY_AFTER_CAP_MS)


def retry_after_ms_of(seconds: float | str | None) -> int | None:
    """Also accepts the text of a header; text that is not a number is ignored."""
    try:
        number = math.nan if seconds is None else float(seconds)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else _within_a_year(number * 1_000)


def parse_retry_after(value: str, now_ms: int | None) -> int | None:
    """Milliseconds to wait by a Retry-After of seconds or an HTTP date; None when it is neither."""
    text = value.strip()
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text, re.ASCII):
        return _within_a_year(float(text) * 1_000)
    if now_ms is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
        # RFC 5322 writes "-0000" for a time in UTC of unknown origin, which Python reads as naive.
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _within_a_year(aware.timestamp() * 1_000 - now_ms)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _within_a_year(ms: float) -> int:
    return math.ceil(min(max(ms, 0), _YEAR_MS))


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
