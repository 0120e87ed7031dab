"""A model of Pydantic AI whose requests go through Backstay: `Agent(BackstayModel(model="gpt-5-mini"))`."""

import asyncio
import json
from typing import Any, Final, NoReturn, Unpack

import httpx2
from openai import AsyncOpenAI
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles import ModelProfileSpec
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from typing_extensions import override

from backstay.adapters.requests import AdapterSender, RequestGroups, reply_of
from backstay.core.errors import RequestsRefused, RowsFailed, UsageError
from backstay.core.models import Flaw
from backstay.rows.options import SendOptions, sent_model

_PATH: Final = "/chat/completions"
_KEPT: Final = (Flaw.REFUSED.value, Flaw.FILTERED.value)  # the client has its own words for these
_NO_STREAMS: Final = "answers cannot be streamed through Backstay"


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
            raise UsageError(_NO_STREAMS, hint="ask for the whole answer")
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


class BackstayModel(OpenAIChatModel):
    """Pydantic AI writes each request in OpenAI's chat format; Backstay sends it to any of its providers. Requests of
    many agents that run at the same time are gathered in one run. `budget` is for all of them together."""

    def __init__(
        self,
        *,
        settings: ModelSettings | None = None,
        profile: ModelProfileSpec | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        named = sent_model(options)
        if not named:
            raise UsageError("BackstayModel needs a model", hint="for example model='gpt-5-mini'")
        provider = OpenAIProvider(openai_client=client_of(AdapterSender(options, "Pydantic AI")))
        super().__init__(named.rpartition(":")[2] or named, provider=provider, profile=profile, settings=settings)

    @override
    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        try:
            return await super().request(messages, model_settings, model_request_parameters)
        except (RequestsRefused, RowsFailed) as error:  # as FallbackModel expects it
            raise ModelAPIError(self.model_name, error.message) from error

    @override
    def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> NoReturn:
        raise UsageError(_NO_STREAMS, hint="use agent.run(...), without a handler of stream events")
