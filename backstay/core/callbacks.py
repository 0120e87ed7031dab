"""The messages of remote workers about items: one JSON object each, checked strictly, and its meaning as an outcome."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn

from backstay.core.errors import ErrorCode, UsageError
from backstay.core.failures import Failure, FailureKind, one_line, public_code
from backstay.core.ids import read_item, show_item
from backstay.core.models import Failed, Succeeded

NESTING_MAX: Final = 128


def is_too_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(NESTING_MAX):
        if not level:
            return False
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
    return True


VERSION: Final = 1  # of messages to and from remote workers
CALLBACK_BYTES_MAX: Final = 4 << 20
TAG_LENGTH_MAX: Final = 100
_TASK: Final = re.compile(r"(?P<item>[0-9]{1,12}-[0-9]{1,9})/(?P<fence>[0-9]{1,18})")
# With these codes a remote worker's failure is retried, unless the worker says otherwise.
_AGAIN: Final = frozenset({ErrorCode.GW_5XX, ErrorCode.GW_TIMEOUT, ErrorCode.IO_ERROR})


class Kind(StrEnum):
    PROGRESS = "progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Callback:
    """One message, as it is stored: `body` is its JSON in plain ASCII."""

    kind: Kind
    body: str
    progress: int | None = None


class TaggedCallback(NamedTuple):
    """A message that names its own item and try; the tag proves that its sender may do so."""

    item: str
    fence: str
    tag: str
    callback: Callback


class StoredCallback(NamedTuple):
    """A stored message: its item, its try and its length."""

    number: int
    item_id: int
    fence: int
    kind: str
    length: int


def read_callback(raw: bytes) -> Callback:
    """A message, or a UsageError that says what is wrong with it."""
    return callback_of(read_object(raw))


def read_tagged_callback(raw: bytes) -> TaggedCallback:
    """A message of a broker, which names its own task; or a UsageError. Its tag is not checked yet."""
    if len(raw) > CALLBACK_BYTES_MAX:
        raise UsageError(f"the body has more than {CALLBACK_BYTES_MAX:,} bytes")
    said = read_object(raw)
    version, task, tag = (said.pop(name, None) for name in ("v", "task", "tag"))
    if version != VERSION or isinstance(version, bool):
        raise UsageError(f"v must be {VERSION}")
    if not isinstance(task, str) or (parts := _TASK.fullmatch(task)) is None:
        raise UsageError("task must be the same as in the request")
    if not isinstance(tag, str) or not 0 < len(tag) <= TAG_LENGTH_MAX:
        raise UsageError("tag must be the same as in the request")
    return TaggedCallback(parts["item"], parts["fence"], tag, callback_of(said))


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise _not_json() from None
    if is_too_deep(said):
        raise UsageError(f"the body is nested more than {NESTING_MAX} levels deep")
    if not isinstance(said, dict):
        raise UsageError("the body must be a JSON object")
    return said


def callback_of(said: dict[str, Any]) -> Callback:
    try:
        body = json.dumps(said, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise _not_json() from None
    status = said.get("status")
    if status not in list(Kind):
        raise UsageError("status must be progress, succeeded or failed")
    progress = _progress(said.get("progress"), needed=status == Kind.PROGRESS)
    if status == Kind.SUCCEEDED and "result" not in said:
        raise UsageError("a success must have a result", hint='send "result": null if there is no result')
    if status == Kind.FAILED:
        _check_error(said.get("error"))
    return Callback(Kind(status), body, progress)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _not_json() -> UsageError:
    return UsageError("the body is not JSON")


def _progress(value: Any, needed: bool) -> int | None:
    if value is None and not needed:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise UsageError("progress must be a number from 0 to 100")
    return int(value)


def _check_error(error: Any) -> None:
    if not isinstance(error, dict):
        raise UsageError("a failure must have an error", hint='send "error": {"code": …, "message": …}')
    for name in ("code", "message"):
        if not isinstance(error.get(name, ""), str):
            raise UsageError(f"error.{name} must be a text")
    if not isinstance(error.get("retryable", True), bool):
        raise UsageError("error.retryable must be true or false")


def digest_of(callback: Callback, fence: int) -> str:
    """The same message again has the same digest. For each try only the last progress message is kept."""
    told = "" if callback.kind is Kind.PROGRESS else callback.body
    return hashlib.sha256(f"{fence}\0{callback.kind}\0{told}".encode()).hexdigest()


def result_of(body: str) -> str:
    """The result of a success as JSON text."""
    return json.dumps(json.loads(body)["result"], separators=(",", ":"))


def outcome_of(kind: str, body: str) -> Succeeded | Failed:
    if kind == Kind.SUCCEEDED:
        return Succeeded(result_of(body))
    error = json.loads(body)["error"]
    code = public_code(error.get("code", ""))
    retryable = error.get("retryable", code in _AGAIN)
    failure = FailureKind.INFRASTRUCTURE if retryable else FailureKind.BUSINESS
    message = one_line(error.get("message", "")) or "the remote worker failed"
    return Failed(Failure(code, failure, message), task_ended=True)


def deciding_callback(said: Sequence[StoredCallback], fence: int) -> StoredCallback | None:
    """The message that decides a try: a success of any try (the work is the same), or a failure of this try."""
    success = (one for one in said if one.kind == Kind.SUCCEEDED)
    failure = (one for one in said if one.kind == Kind.FAILED and one.fence == fence)
    return next(success, None) or next(failure, None)


def name_task(item: int, fence: int) -> str:
    """A try at an item, as the engine remembers it while a remote worker has it."""
    return f"{show_item(item)}/{fence}"


def read_task(name: str) -> tuple[int, int]:
    item, _, fence = name.partition("/")
    return read_item(item), int(fence)
