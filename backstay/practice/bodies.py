"""A request's body, the client's name for it, and a digest of what it asks."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from backstay.practice.refusals import Refused

# A client may add these to find a request again, or to say how it wants its answer: it is no other request.
BOOKKEEPING = ("metadata", "store", "background", "stream")

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # json.dumps would make one every time


class Call(NamedTuple):
    """The digest is the same on every way that a request can come: directly, in the background, in a batch."""

    body: dict[str, Any]
    ref: str
    digest: str


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused(400, "We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict):
        raise Refused(400, "The body of a request must be a JSON object.")
    return body


def call_of(url: str, body: dict[str, Any], headers: Mapping[str, str]) -> Call:
    digest = digest_of(url, body)
    metadata = body.get("metadata")
    ref = metadata.get("backstay_ref") if isinstance(metadata, dict) else None
    ref = ref or headers.get("Idempotency-Key") or headers.get("X-Client-Request-Id") or digest
    return Call(body, str(ref), digest)


def digest_of(url: str, body: dict[str, Any]) -> str:
    """The order of keys, blanks and bookkeeping make no difference."""
    if not body.keys().isdisjoint(BOOKKEEPING):
        body = {name: value for name, value in body.items() if name not in BOOKKEEPING}
    return hashlib.blake2b(f"{url} {_canonical(body)}".encode(), digest_size=8).hexdigest()
