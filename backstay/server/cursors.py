"""Pages of lists: cursors that are valid for one owner and one list, limits, and the ids in paths."""

import base64
import binascii
from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from backstay.core.errors import NotFound, UsageError
from backstay.core.ids import POSITION_BITS, read_item
from backstay.server.problems import Problem
from backstay.server.service import Service
from backstay.server.shapes import JSON

_LENGTH_MAX: Final = 100
_HINT: Final = "take next_cursor from the page before, with the same filters"


def encode(service: Service, owner: str, what: str, place: int | None) -> str | None:
    """`what` names the list and its filters; the last page of a list has no cursor."""
    if place is None:
        return None
    text = f"{place}.{service.signer.tag('cursor', owner, what, place)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(service: Service, owner: str, what: str, cursor: str | None) -> int | None:
    """The position in a cursor; a cursor of another owner or list is not valid."""
    if cursor is None:
        return None
    try:
        padded = cursor[:_LENGTH_MAX].encode("ascii") + b"=" * (-len(cursor) % 4)
        place, _, tag = base64.urlsafe_b64decode(padded).decode("ascii").partition(".")
        number = int(place)
    except (UnicodeError, binascii.Error, ValueError):
        raise Problem(400, "the cursor is not valid", hint=_HINT) from None
    if not service.signer.fits(tag, "cursor", owner, what, number):
        raise Problem(400, "the cursor is not valid", hint=_HINT)
    return number


PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 50
_ROW_DIGITS_MAX: Final = 18
_JOB_DIGITS_MAX: Final = len(str(1 << (63 - POSITION_BITS)))

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="how many at most")]
Cursor = Annotated[str | None, Query(max_length=100, description="next_cursor of the page before")]
JobId = Annotated[str, Path(description="a job's id", examples=["12"])]
ItemId = Annotated[str, Path(description="an item's id: JOB-POSITION", examples=["12-345"])]


def job_number(text: str) -> int:
    """A text that is not an id is handled like an unknown id."""
    if text.isascii() and text.isdigit() and len(text) <= _JOB_DIGITS_MAX and int(text) < 1 << (63 - POSITION_BITS):
        return int(text)
    raise NotFound(f"no job {text[:40]}")


def row_number(text: str, what: str) -> int:
    """The number of a row other than a job, from a path."""
    if text.isascii() and text.isdigit() and len(text) <= _ROW_DIGITS_MAX:
        return int(text)
    raise NotFound(f"no {what} {text[:40]}")


def item_number(text: str) -> int:
    try:
        return read_item(text)
    except UsageError:
        raise NotFound(f"no item {text[:40]}") from None


def page(request: Request, data: Iterable[dict[str, Any]], next_cursor: str | None) -> Response:
    """A page, with the next cursor in its body and in a Link header."""
    body = to_json({"data": list(data), "has_more": next_cursor is not None, "next_cursor": next_cursor})
    headers = {"cache-control": "private, no-cache"}
    if next_cursor is not None:
        following = request.url.include_query_params(cursor=next_cursor)
        headers["link"] = f'<{following.path}?{following.query}>; rel="next"'
    return Response(body, headers=headers, media_type=JSON)
