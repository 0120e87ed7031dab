"""Fallbacks of a request: the providers and models that get it next, and its form at each of them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from backstay.core.errors import UsageError
from backstay.llm.endpoint import DEFAULT_API, Endpoint
from backstay.llm.lines import LinePart, LineRefused, LlmRequest, value_of, write_json
from backstay.llm.prices import PricePerMillion, parse_price
from backstay.llm.provider import LlmProvider
from backstay.llm.providers import CHAT, provider_named, provider_of_url
from backstay.llm.schemas import load_schema

FALLBACKS_MAX: Final = 5
_FORM: Final = "write PROVIDER:MODEL, for example anthropic:claude-sonnet-4-5, with commas between several"
FallbackPrices = Mapping["Fallback", PricePerMillion | None]  # None: the published price
_CHAT_END: Final = CHAT.removeprefix("/v1")  # Azure has the name of a deployment before it


class Fallback(NamedTuple):
    """A provider, and the model to ask for there."""

    api: str
    model: str

    def __str__(self) -> str:
        return f"{self.api}:{self.model}"


class Route(NamedTuple):
    """Where a request goes: first to its own provider, then to the others in their order."""

    api: str
    fallbacks: tuple[Fallback, ...] = ()


class FallbackPlace(NamedTuple):
    """A fallback, and the terms that decide how a request is written for it."""

    api: str
    model: str
    base_url: str
    output_tokens_default: int | None = None
    schema: str | None = None

    @property
    def fallback(self) -> Fallback:
        return Fallback(self.api, self.model)


def place_of(endpoint: Endpoint) -> FallbackPlace | None:
    """The place of an endpoint that is a fallback; None if it is not one."""
    if endpoint.model is None:
        return None
    bound = endpoint.output_tokens_default
    return FallbackPlace(endpoint.api, endpoint.model, endpoint.base_url, bound, endpoint.schema)


def route_of(start: Endpoint) -> Route:
    """The route of requests that begin at this endpoint."""
    places = [place for endpoint in start.chain if (place := place_of(endpoint)) is not None]
    return Route(start.api, tuple(place.fallback for place in places))


class FallbackRequest(NamedTuple):
    """A request as a fallback gets it."""

    fallback: Fallback
    url: str
    body: str
    fields: Mapping[str, Any]


def parse_fallbacks(text: str) -> FallbackPrices:
    """PROVIDER:MODEL in their order, with commas between several, each with =IN/OUT if its price is given."""
    found: dict[Fallback, PricePerMillion | None] = {}
    for part in text.split(","):
        named, equals, price = part.strip().partition("=")
        api, colon, model = (each.strip() for each in named.partition(":"))
        if not api or not colon or not model:
            missing = "no model" if api else "no provider"
            raise UsageError(f"--fallback {part.strip()!r} names {missing}", hint=_FORM)
        provider_named(api)
        fallback = Fallback(api, model)
        if fallback in found:
            raise UsageError(f"--fallback names {fallback} twice", hint="name each fallback once")
        found[fallback] = parse_price(price) if equals else None
    if len(found) > FALLBACKS_MAX:
        raise UsageError(f"--fallback has {len(found)} entries; the limit is {FALLBACKS_MAX}")
    return found


def request_for(place: FallbackPlace, request: LlmRequest, fields: Mapping[str, Any] | None = None) -> FallbackRequest:
    """The request for a fallback: a chat request is written in its format, any other only gets its model.

    `fields` is the body of the request as a value, where the caller has it. Raises LineRefused, with the part at fault.
    """
    provider = provider_named(place.api)
    url, chat = request.url, request.chat
    if chat is None and _is_chat(request.url):
        chat = request.body
    if chat is not None and place.schema is not None:
        chat = write_json(provider.answers.put_schema(CHAT, value_of(chat), load_schema(place.schema)))
        fields = None
    if chat is None:
        _require_dialect(provider, request.url)
        url, body = provider.requests.with_model(request.url, request.body, place.model)
        fields = value_of(body)
    elif provider.chat is None:
        url, body = provider.requests.with_model(CHAT, chat, place.model)
        fields = value_of(body)
    else:
        asked = value_of(chat) if fields is None or request.chat is not None else fields
        url, fields = provider.chat.request({**asked, "model": place.model}, place.model, place.output_tokens_default)
        body = write_json(fields)
    provider.requests.check_body(url, fields, False)
    if provider.call_path is not None:
        url = provider.call_path(place.base_url, url, fields)
    return FallbackRequest(place.fallback, url, body, fields)


def _is_chat(url: str) -> bool:
    return url.partition("?")[0].endswith(_CHAT_END)


def _require_dialect(provider: LlmProvider, url: str) -> None:
    """A request in a provider's own format can only go to a provider that takes this format."""
    written_for = provider_of_url(url) or DEFAULT_API
    if provider.dialect != written_for:
        wanted = f"{provider.name} takes another; write a chat request"
        reason = f"is for {url}, in the format of {written_for}, and {wanted}"
        raise LineRefused(reason, LinePart.URL)
