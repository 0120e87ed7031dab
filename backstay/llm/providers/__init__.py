"""The providers that Backstay can talk to, by name. Each is one module or folder here, which has it as `PROVIDER`;
services that differ from OpenAI in a few words are entries of `openai_compatible.PRESETS`.

A provider is imported when it is first asked for: a run that needs one does not load the others.
"""

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from backstay.core.errors import UsageError
from backstay.llm.endpoint import DEFAULT_API, Lane, parts_of
from backstay.llm.provider import ChatTranslation, LlmProvider

CHAT: Final = "/v1/chat/completions"  # the path of the format that other formats are translated from
MODELS_REMEMBERED_MAX: Final = 10_000
MODEL_SHOWN_MAX: Final = 80  # characters of its name in an error
_PRESETS: Final = "openai_compatible"
_known: Final[dict[str, LlmProvider]] = {}


@cache
def _in_folder() -> frozenset[str]:
    return frozenset(module.name for module in iter_modules(__path__)) - {_PRESETS}


@cache
def _presets() -> dict[str, LlmProvider]:
    return {each.name: each for each in import_module(f"{__name__}.{_PRESETS}").PRESETS}


def provider_names() -> list[str]:
    """The names of all providers, in alphabetical order."""
    return sorted(_in_folder() | _presets().keys() | _known.keys())


def provider_named(name: str) -> LlmProvider:
    if name in _known:
        return _known[name]
    if name in _in_folder():
        add_provider(import_module(f"{__name__}.{name}").PROVIDER)
    elif name in _presets():
        add_provider(_presets()[name])
    else:
        raise UsageError(f"there is no provider {name!r}", hint=f"known: {', '.join(provider_names())}")
    return _known[name]


def add_provider(provider: LlmProvider) -> None:
    """Makes a provider known that is not in this folder, for example one of a user's own."""
    _known[provider.name] = provider


def chat_translations() -> list[ChatTranslation]:
    """Of all providers that have a format of their own."""
    return [chat for name in provider_names() if (chat := provider_named(name).chat) is not None]


def check_base_url(base_url: str, api: str = DEFAULT_API) -> None:
    provider_named(api).requests.check_base(parts_of(base_url))


def check_lane(api: str, lane: Lane, reconcilable: bool = False) -> None:
    """Raises UsageError, before anything is sent, for a lane or a look-up that the provider does not have."""
    provider = provider_named(api)
    if lane not in provider.lanes:
        has = ", ".join(provider.lanes)
        raise UsageError(f"{api} has no lane {lane}; it has: {has}", hint=f"use --lane {provider.lanes[0]}")
    if reconcilable and provider.call_lookup is None:
        raise UsageError(f"{api} cannot look up a call after a crash", hint="leave --reconcilable out")


def split_model(model: str) -> tuple[str | None, str]:
    """The two parts of `provider:model`. Many names of models have a colon, so only a provider's own name counts."""
    name, colon, rest = model.partition(":")
    is_known = name in _in_folder() or name in _known or name in _presets()
    return (name, rest) if colon and rest and is_known else (None, model)


def provider_of_url(url: str) -> str | None:
    """The provider that alone has this path; None for paths that many providers share."""
    return _longest_match(url, {name: provider_named(name).url_prefixes for name in provider_names()})


def provider_of_model(model: str) -> str | None:
    """The provider that makes the model, by the beginning of its name."""
    if model.startswith(provider_named(DEFAULT_API).model_prefixes):
        return DEFAULT_API  # nearly all; the others need not be loaded
    return _longest_match(model, {name: provider_named(name).model_prefixes for name in provider_names()})


def _longest_match(text: str, prefixes: Mapping[str, Collection[str]]) -> str | None:
    found = [(len(each), name) for name, some in prefixes.items() for each in some if text.startswith(each)]
    return max(found)[1] if found else None


def provider_shown(model: str | None, url: str | None) -> str | None:
    """The provider that a request itself shows, by its model or its path."""
    named = split_model(model)[0] if model is not None else None
    if named is None and url is not None and url != CHAT:
        named = provider_of_url(url)
    if named is None and model is not None:
        named = provider_of_model(model)
    return named


class ProviderChoice:
    """Chooses the provider of each request: by its model or path, otherwise by the keys that are set."""

    def __init__(
        self,
        environ: Mapping[str, str],
        fallback: str | None = None,
        configured: Collection[str] = (),
    ) -> None:
        self._environ = environ
        self._fallback = fallback  # for requests that do not show their provider
        self._configured = configured  # those that the settings name: they count as if their keys were set
        self._chosen: dict[tuple[str | None, str | None], str] = {}

    def __call__(self, model: str | None, url: str | None) -> str:
        chosen = self._chosen.get((model, url))
        if chosen is None:
            if len(self._chosen) >= MODELS_REMEMBERED_MAX:
                self._chosen.clear()
            chosen = self._chosen[model, url] = self._choose(model, url)
        return chosen

    def _choose(self, model: str | None, url: str | None) -> str:
        return provider_shown(model, url) or self._fallback or self._by_keys(model)

    def _by_keys(self, model: str | None) -> str:
        """OpenAI, if its key or its base URL is set; otherwise the one provider whose key is set."""
        own = provider_named(DEFAULT_API).access
        if self._environ.get(own.key_env) or self._environ.get(own.base_url_env):
            return DEFAULT_API
        set_ = sorted({*providers_with_keys(self._environ), *self._configured})
        if len(set_) == 1:
            return set_[0]
        if not set_ and model is None:
            return DEFAULT_API  # the line is refused, because it names no model
        which = "for a request without a model" if model is None else f"for the model {model[:MODEL_SHOWN_MAX]!r}"
        keys = f"; keys are set for {', '.join(set_)}" if set_ else ", and no key is set"
        example = f"{(set_ or ['groq'])[0]}:{(model or 'MODEL')[:MODEL_SHOWN_MAX]}"
        hint = f"give --provider NAME, or write it before the model: {example}; known: {', '.join(provider_names())}"
        raise UsageError(f"no provider is known {which}{keys}", hint=hint)


def providers_with_keys(environ: Mapping[str, str]) -> list[str]:
    return [name for name in provider_names() if environ.get(provider_named(name).access_in(environ).key_env)]
