"""A model of Pydantic AI whose requests go through Backstay: `Agent(BackstayModel(model="gpt-5-mini"))`."""

from typing import Any, NoReturn, Unpack

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles import ModelProfileSpec
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from typing_extensions import override

from backstay.adapters.openai_transport import client_of
from backstay.adapters.requests import AdapterSender
from backstay.core.errors import RequestsRefused, RowsFailed, UsageError
from backstay.rows.options import SendOptions, sent_model

NO_STREAMS = "answers cannot be streamed through Backstay"


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
        raise UsageError(NO_STREAMS, hint="use agent.run(...), without a handler of stream events")
