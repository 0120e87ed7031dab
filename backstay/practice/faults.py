"""What goes wrong and how often, and the terms of the practice provider; all of it can change while it runs."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from backstay.core.errors import UsageError

OUTAGE_NOW = "outage_seconds"  # an outage that begins when it is told
SHARES = ("fail", "throttle", "hang", "cut", "slow_body", "nonsense")
_RATE = re.compile(r"([1-9]\d*)(rpm|tpm)")
_TEXTS = ("key",)
_WHOLE = ("seed", "rpm", "tpm", "quota", "concurrency", "answer_tokens", "batch_enqueued_tokens", "huge_bytes")
_OPTIONAL = ("rpm", "tpm", "quota", "concurrency", "answer_tokens", "batch_enqueued_tokens", "key")


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
    nonsense: float = 0.0  # status 200 and a body that is none
    huge_bytes: int = 64 << 20  # of the body that is too long
    rpm: int | None = None
    tpm: int | None = None
    window_seconds: float = 60.0  # in which rpm and tpm are counted
    quota: int | None = None  # charged calls, then 429 insufficient_quota
    concurrency: int | None = None  # calls at once; more wait in line
    outage: tuple[tuple[float, float], ...] = ()  # (seconds after the start, how long)
    key: str | None = None  # every other one gets 401
    answer_tokens: int | None = None  # the length of an answer; None: a short echo
    visible_after: float = 0.0  # until a stored completion can be listed
    background_seconds: float = 1.0  # that a background response takes
    file_seconds: float = 0.0  # that a file for a batch is pending, as at Azure; no batch is made of it until then
    batch_seconds: float = 5.0  # that a batch takes
    batch_expire: float = 0.0  # the share of batches that expire half-way
    batch_enqueued_tokens: int | None = None  # waiting in all batches together

    def __post_init__(self) -> None:
        for name in fields(self):
            _check(name.name, getattr(self, name.name))
        if sum(getattr(self, name) for name in SHARES) > 1:
            raise UsageError(f"the shares of {', '.join(SHARES)} add up to more than 1")

    @property
    def uncertain(self) -> bool:
        """Whether a request needs luck at all."""
        return self.latency > 0 or any(getattr(self, name) > 0 for name in SHARES)

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, values: Mapping[str, Any]) -> "Faults":
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
        raise UsageError(f"{text!r} is no rate limit", hint="write 500rpm or 100000tpm")
    return found[2], int(found[1])


def parse_outage(text: str) -> tuple[float, float]:
    """START:SECONDS, counted from the start of the provider."""
    start, _, seconds = text.partition(":")
    try:
        return float(start), float(seconds)
    except ValueError:
        raise UsageError(f"{text!r} is no outage", hint="write START:SECONDS, for example 30:60") from None


def _check(name: str, value: Any) -> None:
    if value is None and name in _OPTIONAL:
        return
    if name in _TEXTS:
        right = isinstance(value, str)
    elif name == "outage":
        right = all(len(each) == 2 and all(map(_is_number, each)) for each in value)
    elif name in _WHOLE:
        right = isinstance(value, int) and not isinstance(value, bool) and (name == "seed" or value >= 0)
    else:
        right = _is_number(value) and (value <= 1 or name not in (*SHARES, "batch_expire"))
    if not right:
        raise UsageError(f"{name} cannot be {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
