"""The HTTP layer of OpenAI's client, which gives its chat requests to Backstay."""

import asyncio
import json
from typing import Any

import httpx2
from openai import AsyncOpenAI
from typing_extensions import override

from backstay.adapters.requests import AdapterSender, RequestGroups, reply_of
from backstay.core.errors import UsageError
from backstay.core.outcomes import Flaw

_PATH = "/chat/completions"
_KEPT = (Flaw.REFUSED.value, Flaw.FILTERED.value)  # the client has its own words for these


class RequestTransport(httpx2.AsyncBaseTransport):
    """Answers the chat requests of a client. The model, the address and the key are those of Backstay's options."""

    def __init__(self, sender: AdapterSender) -> None:
        self._sender = sender
        self._groups = RequestGroups(sender)

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith(_PATH):
            raise UsageError(f"only chat completions go through Backstay, not {request.url.path}")
        members: dict[str, Any] = json.loads(await request.aread())
        if members.pop("stream", None):
            raise UsageError("answers cannot be streamed through Backstay", hint="ask for the whole answer")
        members.pop("model", None)
        body = self._sender.body(members.pop("messages"), members)
        answer = await asyncio.wrap_future(self._groups.ask(body))
        return httpx2.Response(200, json=dict(reply_of(answer, _KEPT)), request=request)


def client_of(sender: AdapterSender) -> AsyncOpenAI:
    """Its address is never called, and its key never sent; Backstay makes the retries."""
    http = httpx2.AsyncClient(transport=RequestTransport(sender))
    return AsyncOpenAI(
        api_key="in-the-environment", base_url="http://backstay.invalid/v1", max_retries=0, http_client=http
    )
