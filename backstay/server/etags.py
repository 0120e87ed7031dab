"""ETags: who has seen a thing as it is gets no body again, and who changes it says as what it was seen."""

import hashlib
from typing import Final

from fastapi import Request
from fastapi.responses import Response

from backstay.server.problems import Problem

JSON: Final = "application/json"
_BYTES: Final = 12


def etag_of(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=_BYTES).hexdigest()}"'


def answer(request: Request, body: bytes) -> Response:
    """The thing, or 304 when it is as the asker knows it."""
    tag = etag_of(body)
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    asked = request.headers.get("if-none-match")
    if asked is not None and _names(asked, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=JSON)


def require_match(request: Request, body: bytes) -> None:
    """Refuses to change what is not as the asker saw it."""
    asked = request.headers.get("if-match")
    if asked is not None and not _names(asked, etag_of(body)):
        raise Problem(
            412, "the object has changed since you read it", hint="read it again, and send its new ETag in If-Match"
        )


def _names(asked: str, tag: str) -> bool:
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in asked.split(","))
