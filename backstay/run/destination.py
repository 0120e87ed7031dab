"""The options about the service that gets the requests: its address, its key, and the fallbacks if it does not
answer."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.llm.fallbacks import FallbackPlace, FallbackPrices
    from backstay.llm.formats import InputOptions, OnlyPath
    from backstay.llm.provider import ProviderAccess
    from backstay.llm.schemas import AnswerSchema
    from backstay.settings import ProviderSettings

CHEAPEST: Final = "cheapest"


class Destination(NamedTuple):
    """The options about the service that gets the requests, as the user gave them."""

    provider: str | None
    base_url: str | None
    lane: str = "call"
    reconcilable: bool = False
    api_key_env: str | None = None
    header: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    api_key_command: str | None = None
    fallback: str | None = None
    schema: "AnswerSchema | None" = None

    @property
    def only_provider(self) -> str | None:
        """The provider of all requests; None: each request shows its own."""
        from backstay.llm.endpoint import DEFAULT_API

        return self.provider or (None if self.base_url is None else DEFAULT_API)

    def url(self, api: str) -> str:
        if self.base_url is not None and not self.base_url.strip():
            raise UsageError("--base-url is empty", hint="give the URL of the service, or leave the option out")
        own = _access_of(api)
        given = self.base_url or own_settings(api).base_url
        found = (given or os.environ.get(own.base_url_env) or own.base_url).rstrip("/")
        if not found:
            hint = own.address_hint or f"set {own.base_url_env} to the address of your service, or give --base-url"
            raise UsageError(f"{api} has no address: {own.base_url_env} is not set", hint=hint)
        return found

    def key_env(self, api: str) -> str:
        return self.api_key_env or own_settings(api).api_key_env or _access_of(api).key_env

    def headers(self, api: str) -> tuple[tuple[str, str], ...]:
        """The further headers of requests: names, and the variables of their values."""
        return tuple(_header(text) for text in self.header) or tuple(own_settings(api).headers.items())

    @property
    def fallbacks(self) -> "FallbackPrices":
        """The providers and models that a request goes to one after the other, with the prices that are given."""
        from backstay.llm.fallbacks import parse_fallbacks

        return {} if self.fallback is None else parse_fallbacks(self.fallback)

    def of_fallback(self, api: str) -> "Destination":
        """The options for a fallback: it is called at its own address with its own key, so URL, key and headers given
        here are left out."""
        return Destination(api, None, max_output_tokens=self.max_output_tokens, schema=self.schema)

    def check_fallbacks(self) -> None:
        if self.fallback is not None and self.lane == CHEAPEST:
            hint = "use --lane batch: requests that the batches fail or do not finish in time go to the fallback"
            raise UsageError("--fallback does not work with --lane cheapest", hint=hint)
        for fallback in self.fallbacks:
            self.of_fallback(fallback.api).url(fallback.api)

    def require_key(self, api: str, line: int | None = None, whose: str = "") -> None:
        """Raises UsageError for a missing key or address, before anything is sent and refused by the service."""
        key_env, own = self.key_env(api), _access_of(api)
        if own.check_ready is not None:
            own.check_ready(self.url(api), self.lane in ("batch", CHEAPEST), bool(os.environ.get(key_env)))
        if (
            self._has_command(api)
            or os.environ.get(key_env)
            or any(name.lower() == "authorization" for name, _ in self.headers(api))
        ):
            return
        where = whose if line is None else f" (line {line} is for {api})"
        hint = f"set {key_env} to your API key"
        if key_env != own.key_env:
            raise UsageError(f"the environment variable {key_env} is not set{where}", hint=hint)
        if own.needs_key and self.url(api) == (own.base_url or self.url(api)):
            host = urlsplit(self.url(api)).hostname
            others = "choose another provider with --provider, or give a --base-url"
            raise UsageError(f"{key_env} is not set, and {host} needs a key{where}", hint=f"{hint}, {others}")

    def _has_command(self, api: str) -> bool:
        """Whether a command or a library gives the key."""
        from backstay import settings

        setting = settings.load().api_key_command
        named = api in setting if isinstance(setting, dict) else bool(setting)
        named = named or own_settings(api).api_key_command is not None
        return bool(self.api_key_command or named or _access_of(api).token_source)

    def key_commands(self, api: str) -> dict[str, str] | None:
        """The setting that the option stands for: it is for one provider, and wins over the key in a variable."""
        from backstay.llm.credentials import split_command

        if self.api_key_command is None:
            return None
        split_command(self.api_key_command)
        return {api: self.api_key_command}

    def require_keys(self, providers: Mapping[str, int]) -> None:
        """Checks all providers that a file needs; each comes with the number of its first line."""
        self.check_one_key(providers)
        for api, line in sorted(providers.items(), key=lambda found: found[1]):
            self.require_key(api, None if len(providers) == 1 else line)
        self.require_fallback_keys()

    def require_fallback_keys(self) -> None:
        for fallback in self.fallbacks:
            self.of_fallback(fallback.api).require_key(fallback.api, whose=f" (for --fallback {fallback})")

    def check_one_key(self, providers: Mapping[str, int]) -> None:
        """One provider's key must not be sent to another."""
        if self.api_key_env is not None and self.api_key_command is not None:
            raise UsageError("--api-key-env and --api-key-command are both given", hint="give one of them")
        options = ("--api-key-env", "--api-key-command", "--header")
        for option, given in zip(options, (self.api_key_env, self.api_key_command, self.header), strict=True):
            if given and len(providers) > 1:
                names = " and ".join(sorted(providers))
                hint = "give --provider, or put each provider's requests into a file of its own"
                raise UsageError(f"{option} works with one provider only; the file has requests for {names}", hint=hint)

    def only(self, api: str) -> "OnlyPath | None":
        """The only path that the chosen lane can send; None: any path."""
        from backstay.llm.endpoint import Lane
        from backstay.llm.formats import OnlyPath
        from backstay.llm.providers import check_lane, provider_named

        kind = Lane.BACKGROUND if self.lane == Lane.BACKGROUND else Lane.CALL
        check_lane(api, Lane.BATCH if self.lane == CHEAPEST else Lane(self.lane), self.reconcilable)
        path = provider_named(api).requests.only_path(kind, self.reconcilable)
        option = "--lane background" if kind is Lane.BACKGROUND else "--reconcilable"
        return None if path is None else OnlyPath(path, option, kind is Lane.BACKGROUND)

    def input_options(self, base: "InputOptions") -> "InputOptions":
        """How a file is read: for one provider, or each line for its own."""
        from backstay import settings
        from backstay.llm.endpoint import DEFAULT_API
        from backstay.llm.providers import ProviderChoice

        if (api := self.only_provider) is not None:
            return self._for(base, api, named=self.provider is not None)
        known: dict[str, InputOptions] = {}
        own_key = self.api_key_env or self.api_key_command
        named = settings.load().providers
        choice = ProviderChoice(fallback=None if own_key is None else DEFAULT_API, configured=named)

        def choose(model: str | None, url: str | None) -> "InputOptions":
            api = choice(model, url)
            if api not in known:
                known[api] = self._for(base, api, named=True)
            return known[api]

        return replace(base, choose=choose)

    def _for(self, base: "InputOptions", api: str, named: bool) -> "InputOptions":
        only = self.only(api)
        background = only is not None and only.background
        found = replace(base, api=api, base_url=self.url(api), only=only, background=background, named=named)
        found = replace(found, output_tokens_default=self.max_output_tokens, fallbacks=self._fallback_places())
        found = replace(found, schema=self.schema)
        return found if found.model is None else replace(found, model=found.sent_model(found.model))

    def _fallback_places(self) -> "tuple[FallbackPlace, ...]":
        from backstay.llm.fallbacks import FallbackPlace

        schema = None if self.schema is None else self.schema.dump()
        return tuple(
            FallbackPlace(*each, self.of_fallback(each.api).url(each.api), self.max_output_tokens, schema)
            for each in self.fallbacks
        )


def own_settings(api: str) -> "ProviderSettings":
    """The settings of a provider."""
    from backstay import settings
    from backstay.llm.providers import provider_named

    known = settings.load().providers
    for name in known:
        provider_named(name)  # a misspelt name would be ignored silently
    return known.get(api, settings.NO_PROVIDER_SETTINGS)


def _access_of(api: str) -> "ProviderAccess":
    from backstay.llm.providers import provider_named

    return provider_named(api).access_in(os.environ)


def _header(text: str) -> tuple[str, str]:
    name, equals, variable = text.partition("=")
    if not (equals and name.strip() and re.fullmatch(r"[A-Za-z_]\w*", variable.strip(), re.ASCII)):
        raise UsageError(
            f"--header {name!r} must have the form NAME=VARIABLE",
            hint="the value is read from the environment, for example X-Org=MY_ORG",
        )
    return name.strip(), variable.strip()
