"""The result of a form, shown once on the next page."""

import base64
import binascii
import json
from typing import Final, Literal, NamedTuple

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from backstay.server.pages.page_request import Visit, local
from backstay.server.pages.session import is_https
from backstay.server.service import Service

COOKIE: Final = "backstay_flash"
SECONDS: Final = 60
TEXT_MAX: Final = 500
_LENGTH_MAX: Final = 4_000


class Flash(NamedTuple):
    kind: Literal["done", "refused"]
    text: str


def redirected(visit: Visit, path: str, text: str, kind: Literal["done", "refused"] = "done") -> Response:
    """To the page that shows what was done, with a sentence about it; loading that again does nothing again."""
    response = RedirectResponse(local(path), 303)
    said = base64.urlsafe_b64encode(json.dumps([kind, text[:TEXT_MAX]]).encode()).decode()
    value = f"{said}.{visit.service.signer.tag('flash', said)}"
    secure = is_https(visit.request, visit.service)
    response.set_cookie(COOKIE, value, max_age=SECONDS, path="/", secure=secure, httponly=True, samesite="strict")
    return response


def read(request: Request, service: Service) -> Flash | None:
    """What the last form left, if this service wrote it."""
    said, _, tag = request.cookies.get(COOKIE, "")[:_LENGTH_MAX].partition(".")
    if not said or not service.signer.fits(tag, "flash", said):
        return None
    try:
        return Flash(*json.loads(base64.urlsafe_b64decode(said)))
    except (binascii.Error, ValueError, TypeError):
        return None
