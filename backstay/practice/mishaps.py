"""The names of all that can go wrong with a request, and which of them one meets: by request or by seeded luck."""

import re
from collections import Counter
from collections.abc import Mapping
from email.utils import formatdate
from random import Random
from typing import Any

from backstay.practice.faults import Faults
from backstay.practice.refusals import Refused

OK = "ok"
FAIL = ("500", "502", "503")
THROTTLE = ("429", "429-ms", "429-bare")
HANG = ("hang", "hang-billed")
CUT = ("cut", "cut-billed", "cut-half")
SLOW = ("slow",)
NONSENSE = tuple(f"nonsense-{kind}" for kind in ("html", "type", "charset", "truncated", "empty", "huge", "bomb"))
UNDONE = frozenset({"hang", "cut"})  # the call is not done, so it is not billed either
UNHEARD = frozenset({*HANG, *CUT})  # no whole answer reaches the client
# What befalls the lines of a batch, all of it, or its file.
BATCH = ("missing", "duplicate", "zero", "expire", "token-limit", "file-error")
RESPONSE = ("failed", "incomplete")  # how a response ends

NAMES = frozenset({OK, "quota", "429-date", *THROTTLE, *HANG, *CUT, *SLOW, *NONSENSE, *BATCH, *RESPONSE})

HEADER = "X-Practice-Fault"
MODEL = "practice-"
METADATA = "practice_fault"

_STATUS = re.compile(r"[45]\d\d")
_TIMES = re.compile(r"(.+)x([1-9]\d*)")


class Luck:
    """Seeded chance. What a request meets depends on its content and on how often it came, never on the order."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def again(self, key: str) -> int:
        """How often a request has come, this time included."""
        self._seen[key] += 1
        return self._seen[key]

    def of(self, faults: Faults, key: str, time: int) -> Random:
        return Random(f"{faults.seed} {key} {time}")


def asked_for(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """The mishap that a request wants for itself, by header, metadata or model."""
    if (named := headers.get(HEADER)) is not None:
        if not is_mishap(named):
            raise Refused(400, f"There is no fault '{named}' to practise.", param=HEADER)
        return named
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and isinstance(named := metadata.get(METADATA), str) and is_mishap(named):
        return named
    model = body.get("model")
    if isinstance(model, str) and model.startswith(MODEL) and is_mishap(model[len(MODEL) :]):
        return model[len(MODEL) :]
    return None


def is_mishap(name: str) -> bool:
    repeated = _TIMES.fullmatch(name)
    bare = repeated[1] if repeated else name
    return bare in NAMES or bool(_STATUS.fullmatch(bare))


def at_time(name: str, time: int) -> str:
    """A name such as 429x2 means the first two times only."""
    repeated = _TIMES.fullmatch(name)
    if not repeated:
        return name
    return repeated[1] if time <= int(repeated[2]) else OK


def drawn(faults: Faults, rng: Random) -> str:
    point = rng.random()
    for share, names in (
        (faults.fail, FAIL),
        (faults.throttle, THROTTLE),
        (faults.hang, HANG),
        (faults.cut, CUT),
        (faults.slow_body, SLOW),
        (faults.nonsense, NONSENSE),
    ):
        point -= share
        if point < 0:
            return rng.choice(names)
    return OK


def refusal(name: str, faults: Faults, now_ms: int) -> Refused | None:
    """The answer that says no, if this mishap is one."""
    if name == "quota":
        return out_of_quota()
    if not _STATUS.fullmatch(name[:3]):
        return None
    status = int(name[:3])
    if status == 429:
        headers = _waits(name, faults.retry_after, now_ms)
        return Refused(429, "Rate limit reached (practice).", "rate_limit_exceeded", headers=headers)
    if status == 401:
        return Refused(401, "Incorrect API key provided (practice).", "invalid_api_key")
    if status == 404:
        return Refused(404, "The model does not exist (practice).", "model_not_found", "model")
    return Refused(status, f"The practice provider was asked to answer {status}.")


def _waits(name: str, seconds: float, now_ms: int) -> dict[str, str]:
    if name == "429-bare":
        return {}
    if name == "429-ms":
        return {"retry-after-ms": f"{seconds * 1000:g}"}
    if name == "429-date":
        return {"Retry-After": formatdate(now_ms / 1000 + seconds, usegmt=True)}
    return {"Retry-After": f"{seconds:g}"}


def out_of_quota() -> Refused:
    said = "You exceeded your current quota, please check your plan and billing details (practice)."
    return Refused(429, said, "insufficient_quota", kind="insufficient_quota")
