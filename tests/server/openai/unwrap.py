"""Reads an event as a program with OpenAI's client does, whichever major is installed.

{body, headers, secrets} come on stdin. What each secret made of the event it prints as JSON. It knows nothing of
Backstay.
"""

import json
import sys
from typing import Any

import openai


def read(client: Any, given: dict[str, Any], secret: str) -> list[str]:
    try:
        event = client.webhooks.unwrap(given["body"], given["headers"], secret=secret)
    except openai.InvalidWebhookSignatureError:
        return ["not signed"]
    return [type(event).__name__, event.type, event.data.id]


given = json.load(sys.stdin)
client = openai.OpenAI(api_key="none", _strict_response_validation=True)
print(json.dumps({"version": openai.__version__, "read": [read(client, given, secret) for secret in given["secrets"]]}))
