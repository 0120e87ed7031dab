"""A request as it is stored: its body stands there byte for byte as its author wrote it."""

import json
from typing import NamedTuple

_BODY = ',"body":'  # inside a JSON string its quotes would be escaped, so the first one is the key


class Request(NamedTuple):
    """One line of a file of requests: `url` is the path that it names, `body` the JSON text to be sent."""

    custom_id: str
    url: str
    body: str


def seal(request: Request) -> str:
    return f'{{"custom_id":{json.dumps(request.custom_id)},"url":{json.dumps(request.url)}{_BODY}{request.body}}}'


def unseal(text: str) -> Request:
    head, _, rest = text.partition(_BODY)
    named = json.loads(head + "}")
    return Request(named["custom_id"], named["url"], rest[:-1])
