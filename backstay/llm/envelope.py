"""A request as it is stored: its body stands there byte for byte as its author wrote it."""

import json
from typing import Any, NamedTuple

from backstay.core.errors import UsageError

_BODY = ',"body":'  # inside a JSON string its quotes would be escaped, so the first one is the key
_FIRST = '{"custom_id":"'
_URL = '","url":"'  # likewise, and without escapes all between these is as it stands


class Request(NamedTuple):
    """One line of a file of requests: `url` is the path that it names, `body` the JSON text to be sent."""

    custom_id: str
    url: str
    body: str


def seal(request: Request) -> str:
    return f'{{"custom_id":{json.dumps(request.custom_id)},"url":{json.dumps(request.url)}{_BODY}{request.body}}}'


def unseal(text: str) -> Request:
    head, _, rest = text.partition(_BODY)
    custom_id, found, url = head[len(_FIRST) : -1].partition(_URL)
    if not found or not head.startswith(_FIRST) or "\\" in head:
        named = json.loads(head + "}")
        custom_id, url = named["custom_id"], named["url"]
    return Request(custom_id, url, rest[:-1])


def require_request(payload: Any) -> Request:
    """The request that a payload is: text as `seal` writes it, or what such text says."""
    said = _read(payload) if isinstance(payload, str) else payload
    if not isinstance(said, dict) or tuple(said) != Request._fields:
        raise UsageError("a request has a custom_id, a url and a body, in this order")
    custom_id, url, body = said.values()
    if not (isinstance(custom_id, str) and isinstance(url, str) and isinstance(body, dict)):
        raise UsageError("the custom_id and the url of a request are text, and its body is an object")
    return Request(custom_id, url, json.dumps(body))


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
