"""The providers that Backstay can talk to, by name. A new one is one folder and one line here."""

from types import MappingProxyType
from typing import Final

from backstay.core.errors import UsageError
from backstay.llm.endpoint import DEFAULT_API, parts_of
from backstay.llm.openai import OPENAI
from backstay.llm.provider import LlmProvider

PROVIDERS: Final = MappingProxyType({provider.name: provider for provider in (OPENAI,)})


def provider_named(name: str) -> LlmProvider:
    try:
        return PROVIDERS[name]
    except KeyError:
        raise UsageError(f"there is no provider {name!r}", hint=f"known: {', '.join(PROVIDERS)}") from None


def check_base_url(base_url: str, api: str = DEFAULT_API) -> None:
    provider_named(api).requests.check_base(parts_of(base_url))
