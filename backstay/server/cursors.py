"""Where a list continues: an opaque text that is valid for one owner and one list with its filters."""

import base64
import binascii
from typing import Final

from backstay.server.problems import Problem
from backstay.server.service import Service

_LENGTH_MAX: Final = 100
_HINT: Final = "take next_cursor from the page before, with the same filters"


def give(service: Service, owner: str, what: str, place: int | None) -> str | None:
    """`what` names the list and its filters; the last page of a list has no cursor."""
    if place is None:
        return None
    text = f"{place}.{service.signer.tag('cursor', owner, what, place)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def take(service: Service, owner: str, what: str, cursor: str | None) -> int | None:
    """The place that a cursor stands for; one of another owner or list is refused like nonsense."""
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
