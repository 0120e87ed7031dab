"""Which provider each request of a batch goes to, and how a line is read for it."""

from dataclasses import replace
from typing import Final

from backstay.core.errors import UsageError
from backstay.llm.endpoint import DEFAULT_API, Endpoint
from backstay.llm.formats import InputOptions
from backstay.llm.lines import LinePart, LineRefused, preview
from backstay.llm.providers import provider_shown
from backstay.run.submission import Order, Scales
from backstay.server.service import ServiceOptions

MODELS_REMEMBERED_MAX: Final = 10_000
MESSAGES: Final = "/v1/messages"
MESSAGES_API: Final = "anthropic"  # the provider whose format message batches have
_MESSAGE_BATCH: Final = "msgbatch_"


def is_message_batch(batch_id: str) -> bool:
    """Whether it was created over Anthropic's API, in that provider's own format."""
    return batch_id.startswith(_MESSAGE_BATCH)


class ModelUnplaced(LineRefused):
    """None of the providers here has the model."""

    def __init__(self, model: str | None, owner: str | None, there: list[str]) -> None:
        listed = ", ".join(there)
        if model is None:
            reason = f"names no model, so its provider is not known; this service has: {listed}"
        elif owner is None:
            how = f"write the provider before it, for example {there[0]}:{model[:60]}"
            reason = f"has the model {preview(model)}, whose provider is not known; this service has: {listed}; {how}"
        else:
            reason = f"has the model {preview(model)} of the provider {owner}; this service has only: {listed}"
        super().__init__(reason, LinePart.MODEL)


def require_upstream(options: ServiceOptions) -> Endpoint:
    if options.upstream is None:
        raise UsageError("this service has no provider to send requests to", hint="start it with --base-url")
    return options.upstream


def reading_of(options: ServiceOptions) -> InputOptions:
    """How the lines of a batch are read: for the one provider, or each for the provider of its model.

    What a batch may not ask for is found when its file comes in; a batch that has begun is read to its end.
    """
    upstream = require_upstream(options)
    known = {endpoint.api: _reading(endpoint, options) for endpoint in upstream.all}
    own = known[upstream.api]
    if len(known) == 1:
        return own
    chosen: dict[tuple[str | None, str | None], InputOptions] = {}

    def choose(model: str | None, url: str | None) -> InputOptions:
        found = chosen.get((model, url))
        if found is None:
            if len(chosen) >= MODELS_REMEMBERED_MAX:
                chosen.clear()
            found = chosen[model, url] = known[_place(model, url, sorted(known))]
        return found

    return replace(own, choose=choose)


def _reading(endpoint: Endpoint, options: ServiceOptions) -> InputOptions:
    return InputOptions(
        base_url=endpoint.base_url,
        background=True,
        api=endpoint.api,
        output_tokens_default=options.output_tokens_default,
        named=endpoint.api != DEFAULT_API or bool(require_upstream(options).beside),
    )


def _place(model: str | None, url: str | None, there: list[str]) -> str:
    found = provider_shown(model, url)
    if found not in there:
        raise ModelUnplaced(model, found, there)
    return found


def scales_of(options: ServiceOptions) -> dict[str, Scales]:
    """What weighs the requests of batches, by provider."""
    order = Order(
        require_upstream(options),
        "-",
        budget_micros=options.budget_micros,
        output_tokens_default=options.output_tokens_default,
    )
    return Scales.by_provider(order)


def handlers_of(options: ServiceOptions) -> dict[str, str]:
    """The handler of each provider."""
    return {endpoint.api: endpoint.name for endpoint in require_upstream(options).all}
