"""A line of a result file: what an ended item looks like in the Batch output format, and whose line one is."""

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from backstay.core.errors import ErrorCode
from backstay.core.ids import position_of
from backstay.core.outcomes import Flaw
from backstay.core.states import ItemState
from backstay.llm.lines import unseal
from backstay.store.result_views import Copy, ResultRow

OUTCOME_UNKNOWN: Final = "outcome_unknown"
LATE_RESULT: Final = "late_result"
CANCELLED: Final = "batch_cancelled"
SKIPPED: Final = "skipped"

# Every line begins with this and one of the ids below, so that whose it is can be told without parsing the reply in it.
OPENING: Final = b'{"id":"batch_req_'
HEAD: Final = re.compile(rb'\{"id":"batch_req_([0-9]{1,11})-([0-9]{1,9})(?:-([0-9]{1,9}))?","custom_id":')

_ERROR_STATUS_MIN = 400  # from here on the provider's own answer says what went wrong
_CODES: Final = {Flaw.UNKNOWN.value: OUTCOME_UNKNOWN, Flaw.LATE.value: LATE_RESULT}
_NO_REASON = "no reason was recorded"
_WAS_CANCELLED = "the job was cancelled before this request was done"


class Ended(NamedTuple):
    """An item that has ended. `response` is what the provider answered, as the text of a Batch `response` object.

    `copies` are further requests that this one item answers for, and whose lines go with its own. In a file in the
    order of requests they stand elsewhere: then each is an Ended of its own, with its `number`.
    """

    position: int
    custom_id: str
    ok: bool
    response: str | None
    code: str | None = None
    message: str | None = None
    copies: tuple[Copy, ...] = ()
    number: int | None = None
    metadata: str | None = None  # of the request, as JSON
    status: int | None = None  # of the response


def ended_of(row: ResultRow, copies: Sequence[Copy] = ()) -> Ended:
    """An ended item as the store shows it."""
    request = unseal(row.body)
    return Ended(
        position_of(row.id),
        request.custom_id,
        row.state == ItemState.SUCCEEDED,
        row.result,
        _code(row),
        row.message or (_WAS_CANCELLED if row.state == ItemState.CANCELLED else None),
        tuple(copies),
        metadata=request.metadata,
        status=row.provider_status,
    )


def _code(row: ResultRow) -> str | None:
    if row.state == ItemState.CANCELLED:
        return CANCELLED
    if row.state == ItemState.SKIPPED:
        return SKIPPED
    return _CODES.get(row.flaw or "", row.flaw) if row.flaw and row.state == ItemState.FAILED else row.error_code


def lines_of(job_id: int | str, ended: Ended) -> bytes:
    """The line of the item, after those of its copies: a cut never leaves an item's line without them."""
    kept = "" if ended.metadata is None else f',"metadata":{ended.metadata}'
    rest = f',"response":{_one_line(ended.response or "null")},"error":{_error(ended)}{kept}}}\n'
    item = f"{job_id}-{ended.position}"
    names = [(f"{item}-{copy.number}", copy.custom_id) for copy in ended.copies]
    names.append((item if ended.number is None else f"{item}-{ended.number}", ended.custom_id))
    lines = [f'{{"id":"batch_req_{own}","custom_id":{json.dumps(custom_id)}{rest}' for own, custom_id in names]
    return "".join(lines).encode("utf-8", "backslashreplace")  # half a surrogate pair becomes its JSON escape


def _one_line(text: str) -> str:
    """Providers may indent their JSON. A raw line end in it can only stand between tokens, so a blank does as well."""
    if "\n" in text or "\r" in text:
        return text.replace("\n", " ").replace("\r", " ")
    return text


def _error(ended: Ended) -> str:
    """Null when the provider's own answer is enough. An answer that came too late, makes no sense or is a redirect
    needs a code and a message."""
    if ended.ok or (ended.response and (ended.status or 0) >= _ERROR_STATUS_MIN):
        return "null"
    code, message = ended.code or ErrorCode.UNKNOWN.value, ended.message or _NO_REASON
    return f'{{"code":{json.dumps(code)},"message":{json.dumps(message)}}}'
