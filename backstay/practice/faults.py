"""The faults that can be practised: their settings and names, and how a request gets one."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple

from backstay.core.errors import UsageError

OUTAGE_NOW = "outage_seconds"  # an outage that begins when the faults are changed
FAULT_HEADER = "X-Practice-Fault"
FAULT_METADATA = "practice_fault"
FAULT_MODEL_PREFIX = "practice-"
SHARES = ("fail", "throttle", "hang", "cut", "slow_body", "nonsense", "invalid")
_RATE = re.compile(r"([1-9]\d*)(rpm|tpm)")
_TEXTS = ("key",)
_WHOLE = ("seed", "rpm", "tpm", "quota", "concurrency", "answer_tokens", "batch_enqueued_tokens", "huge_bytes")
_OPTIONAL = ("rpm", "tpm", "quota", "concurrency", "answer_tokens", "batch_enqueued_tokens", "key")
_STATUS = re.compile(r"[45]\d\d")
_REPEATED = re.compile(r"(.+)x([1-9]\d*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Shares are of requests, from 0 to 1, and exclude each other; times are in seconds."""

    seed: int = 0
    latency: float = 0.0  # the mean; a call takes half to one and a half of it
    fail: float = 0.0  # 500, 502, 503: not done
    throttle: float = 0.0  # 429, some with a time to wait and some without: not done
    retry_after: float = 1.0  # the time to wait that a throttled answer names
    hang: float = 0.0  # never answers; one half is done and billed
    cut: float = 0.0  # the connection ends: before the call was done, after it, or in the middle of the answer
    slow_body: float = 0.0  # the answer comes in pieces
    slow_seconds: float = 5.0  # the time that a slow body takes
    nonsense: float = 0.0  # status 200 and a body that is not a valid answer
    invalid: float = 0.0  # an answer that does not fit the schema that the request asks for
    huge_bytes: int = 64 << 20  # the size of the body that is too long
    rpm: int | None = None
    tpm: int | None = None
    window_seconds: float = 60.0  # in which rpm and tpm are counted
    quota: int | None = None  # charged calls, then 429 insufficient_quota
    concurrency: int | None = None  # calls at once; more wait in line
    outage: tuple[tuple[float, float], ...] = ()  # (seconds after the start, how long)
    key: str | None = None  # every other key gets 401
    answer_tokens: int | None = None  # the length of an answer; None: a short echo
    visible_after: float = 0.0  # the time until a stored completion is listed
    background_seconds: float = 1.0  # the time that a background response takes
    file_seconds: float = 0.0  # the time that a file for a batch is pending, as at Azure: no batch can use it yet
    batch_seconds: float = 5.0  # the time that a batch takes
    batch_expire: float = 0.0  # the share of batches that expire half-way
    batch_enqueued_tokens: int | None = None  # the tokens that may wait in all batches together

    def __post_init__(self) -> None:
        for name in fields(self):
            _check(name.name, getattr(self, name.name))
        if sum(getattr(self, name) for name in SHARES) > 1:
            raise UsageError(f"the shares of {', '.join(SHARES)} add up to more than 1")

    @property
    def is_random(self) -> bool:
        """Whether chance decides anything about a request."""
        return self.latency > 0 or any(getattr(self, name) > 0 for name in SHARES)

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    def with_changes(self, values: Mapping[str, Any]) -> "Faults":
        known = {field.name for field in fields(self)}
        if unknown := sorted(values.keys() - known):
            raise UsageError(
                f"there is no fault {unknown[0]!r}", hint=f"there are {', '.join(sorted((*known, OUTAGE_NOW)))}"
            )
        given = dict(values)
        if "outage" in given:
            given["outage"] = tuple(map(tuple, given["outage"] or ()))
        return replace(self, **given)

    def with_outage(self, at: float, seconds: float) -> "Faults":
        return replace(self, outage=(*self.outage, (at, seconds)))

    def is_out(self, at: float) -> bool:
        return any(start <= at < start + seconds for start, seconds in self.outage)


def parse_rate(text: str) -> tuple[str, int]:
    """500rpm or 100000tpm, as the name of a limit and its value."""
    found = _RATE.fullmatch(text.strip().lower())
    if not found:
        raise UsageError(f"{text!r} is not a rate limit", hint="write 500rpm or 100000tpm")
    return found[2], int(found[1])


def parse_outage(text: str) -> tuple[float, float]:
    """START:SECONDS, counted from the start of the provider."""
    start, _, seconds = text.partition(":")
    try:
        return float(start), float(seconds)
    except ValueError:
        raise UsageError(f"{text!r} is not an outage", hint="write START:SECONDS, for example 30:60") from None


def _check(name: str, value: Any) -> None:
    if value is None and name in _OPTIONAL:
        return
    if name in _TEXTS:
        valid = isinstance(value, str)
    elif name == "outage":
        valid = all(len(each) == 2 and all(map(_is_number, each)) for each in value)
    elif name in _WHOLE:
        valid = isinstance(value, int) and not isinstance(value, bool) and (name == "seed" or value >= 0)
    else:
        valid = _is_number(value) and (value <= 1 or name not in (*SHARES, "batch_expire"))
    if not valid:
        raise UsageError(f"{name} cannot be {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


class LimitFault(StrEnum):
    """A reply with status 429, in one of the forms that providers use."""

    WAIT_SECONDS = "429"
    WAIT_MS = "429-ms"
    WAIT_UNKNOWN = "429-bare"
    WAIT_DATE = "429-date"
    QUOTA = "quota"


class DeliveryFault(StrEnum):
    """The reply arrives late, in part or never."""

    HANG = "hang"
    HANG_BILLED = "hang-billed"
    CUT = "cut"
    CUT_BILLED = "cut-billed"
    CUT_HALF = "cut-half"
    SLOW = "slow"


class BodyFault(StrEnum):
    """Status 200 with a body that no client can use."""

    HTML = "nonsense-html"
    TYPE = "nonsense-type"
    CHARSET = "nonsense-charset"
    TRUNCATED = "nonsense-truncated"
    EMPTY = "nonsense-empty"
    HUGE = "nonsense-huge"
    BOMB = "nonsense-bomb"


class UsageFault(StrEnum):
    """A good answer whose figures of tokens are absent or odd."""

    MISSING = "usage-missing"
    NULL = "usage-null"
    ODD = "usage-odd"


class BatchFault(StrEnum):
    """A fault of one line of a batch, of the whole batch, or of its file."""

    LINE_MISSING = "missing"
    LINE_DUPLICATE = "duplicate"
    LINE_ZERO = "zero"
    EXPIRE = "expire"
    TOKEN_LIMIT = "token-limit"
    FILE_ERROR = "file-error"


class ResponseFault(StrEnum):
    """How a response ends, instead of being completed."""

    FAILED = "failed"
    INCOMPLETE = "incomplete"


class AnswerFault(StrEnum):
    """The answer does not fit the schema that its request asks for; without a schema it is an answer as usual."""

    INVALID = "invalid"
    INVALID_ONCE = "invalid-once"  # a request that shows an earlier answer gets one that fits


# A number is an HTTP status.
AnyFault = int | LimitFault | DeliveryFault | BodyFault | UsageFault | BatchFault | ResponseFault | AnswerFault

NO_FAULT_NAME = "ok"
FAIL: tuple[AnyFault, ...] = (500, 502, 503)
THROTTLE: tuple[AnyFault, ...] = (LimitFault.WAIT_SECONDS, LimitFault.WAIT_MS, LimitFault.WAIT_UNKNOWN)
HANG: tuple[AnyFault, ...] = (DeliveryFault.HANG, DeliveryFault.HANG_BILLED)
CUT: tuple[AnyFault, ...] = (DeliveryFault.CUT, DeliveryFault.CUT_BILLED, DeliveryFault.CUT_HALF)
SLOW: tuple[AnyFault, ...] = (DeliveryFault.SLOW,)
NONSENSE: tuple[AnyFault, ...] = tuple(BodyFault)
INVALID: tuple[AnyFault, ...] = (AnswerFault.INVALID,)
NOT_DONE = frozenset({DeliveryFault.HANG, DeliveryFault.CUT})  # the call is not made, so it is not billed either
NOT_DELIVERED = frozenset({*HANG, *CUT})  # the client gets no whole reply

NAMED_FAULTS: dict[str, AnyFault] = {
    str(fault): fault
    for group in (LimitFault, DeliveryFault, BodyFault, UsageFault, BatchFault, ResponseFault, AnswerFault)
    for fault in group
}


class RequestedFault(NamedTuple):
    """A fault that a request asks for, on each of its first `times` arrivals; None: always."""

    fault: AnyFault | None
    times: int | None = None

    def on_arrival(self, number: int) -> AnyFault | None:
        return self.fault if self.times is None or number <= self.times else None


def parse_fault(name: str) -> RequestedFault | None:
    """503 or 503x2, which means the first two arrivals only. None: there is no such fault."""
    repeated = _REPEATED.fullmatch(name)
    bare, times = (repeated[1], int(repeated[2])) if repeated else (name, None)
    if bare == NO_FAULT_NAME:
        return RequestedFault(None, times)
    if bare in NAMED_FAULTS:
        return RequestedFault(NAMED_FAULTS[bare], times)
    return RequestedFault(int(bare), times) if _STATUS.fullmatch(bare) else None


def fault_name(fault: AnyFault | None) -> str:
    return NO_FAULT_NAME if fault is None else str(fault)


def model_named_after(fault: AnyFault) -> str:
    """The model by whose name a request asks for a fault."""
    return f"{FAULT_MODEL_PREFIX}{fault}"


def requested_fault(metadata: object, model: object) -> RequestedFault | None:
    """The fault that a request asks for by its metadata or its model; both may also say anything else."""
    if isinstance(metadata, dict) and isinstance(named := metadata.get(FAULT_METADATA), str):
        found = parse_fault(named)
        if found is not None:
            return found
    if isinstance(model, str) and model.startswith(FAULT_MODEL_PREFIX):
        return parse_fault(model.removeprefix(FAULT_MODEL_PREFIX))
    return None


def draw_fault(faults: Faults, rng: Random) -> AnyFault | None:
    """At most one fault, in the shares that the settings name."""
    point = rng.random()
    for share, group in (
        (faults.fail, FAIL),
        (faults.throttle, THROTTLE),
        (faults.hang, HANG),
        (faults.cut, CUT),
        (faults.slow_body, SLOW),
        (faults.nonsense, NONSENSE),
        (faults.invalid, INVALID),
    ):
        point -= share
        if point < 0:
            return rng.choice(group)
    return None
