"""A request as it is stored: its body is kept byte for byte as its author wrote it."""

import json
from typing import Any, NamedTuple

from backstay.core.errors import UsageError

_BODY = ',"body":'  # inside a JSON string its quotes would be escaped, so the first one is the key
_FIRST = '{"custom_id":"'
_MEMBERS = (("custom_id", "url", "body"), ("custom_id", "url", "metadata", "body"))
_URL = '","url":"'  # likewise; without escapes, the text between these is the value


class LlmRequest(NamedTuple):
    """One line of a file of requests: `url` is its path, `body` the JSON text to send.

    `metadata` is JSON text that is not sent and comes back in the line of the result. It is stored as a string.
    """

    custom_id: str
    url: str
    body: str
    metadata: str | None = None


def seal(request: LlmRequest) -> str:
    kept = "" if request.metadata is None else f',"metadata":{json.dumps(request.metadata)}'
    names = f'"custom_id":{json.dumps(request.custom_id)},"url":{json.dumps(request.url)}{kept}'
    return f"{{{names}{_BODY}{request.body}}}"


def unseal(text: str) -> LlmRequest:
    head, _, rest = text.partition(_BODY)
    custom_id, found, url = head[len(_FIRST) : -1].partition(_URL)
    if not found or not head.startswith(_FIRST) or "\\" in head or '"' in url:
        named = json.loads(head + "}")
        return LlmRequest(named["custom_id"], named["url"], rest[:-1], named.get("metadata"))
    return LlmRequest(custom_id, url, rest[:-1])


def require_request(payload: Any) -> LlmRequest:
    """The request of a payload: text as `seal` writes it, or the parsed value of such text."""
    said = _read(payload) if isinstance(payload, str) else payload
    if not isinstance(said, dict) or tuple(said) not in _MEMBERS:
        raise UsageError("a request must have a custom_id, a url and a body, in this order")
    custom_id, url, body, metadata = said["custom_id"], said["url"], said["body"], said.get("metadata")
    if not (isinstance(custom_id, str) and isinstance(url, str) and isinstance(body, dict)):
        raise UsageError("the custom_id and the url of a request must be text, and its body an object")
    if "metadata" in said and (not isinstance(metadata, str) or _read(metadata) is None):
        raise UsageError("the metadata of a request must be JSON, written as a text")
    return LlmRequest(custom_id, url, json.dumps(body), metadata)


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
