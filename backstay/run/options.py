"""The options of a run: where requests go, how fast, and what they may cost. A `Destination` is the service that gets
the requests: its address, its key, and the fallbacks if it does not answer.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from backstay.core.display import show_count
from backstay.core.errors import UsageError
from backstay.core.pace import FurtherLimits, PersonsLimits

if TYPE_CHECKING:
    from backstay.llm.endpoint import Endpoint, Lane
    from backstay.llm.fallbacks import Fallback, FallbackPlace, FallbackPrices, Route
    from backstay.llm.forecast import Forecast
    from backstay.llm.formats import InputOptions, OnlyPath
    from backstay.llm.intake import FileSurvey
    from backstay.llm.prices import PricePerMillion
    from backstay.llm.provider import ProviderAccess
    from backstay.llm.schemas import AnswerSchema
    from backstay.run.submission import Order, ProviderTerms, WeighedRun
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

    def forecast(
        self, price: "PricePerMillion | None", reasks: int = 0, output_tokens: int | None = None
    ) -> "Forecast":
        """Estimates requests to this service. The cheapest lane expects the price of batches, and at worst everything
        is called in the end."""
        from backstay.llm.endpoint import Lane
        from backstay.llm.forecast import Forecast, ForecastPrices
        from backstay.llm.prices import PriceList
        from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED

        most, given = self.max_output_tokens, self.fallbacks
        lanes = (Lane.BATCH, Lane.CALL) if self.lane == CHEAPEST else (Lane(self.lane), Lane(self.lane))

        def prices_of(api: str) -> ForecastPrices:
            return ForecastPrices(*(PriceList(self.url(api), lane, price, most, api) for lane in lanes))

        def fallback_prices_of(fallback: "Fallback") -> PriceList:
            url = self.of_fallback(fallback.api).url(fallback.api)
            return PriceList(url, Lane.CALL, given[fallback], most, fallback.api)

        return Forecast(
            prices_of,
            output_tokens or min(OUTPUT_TOKENS_EXPECTED, most or OUTPUT_TOKENS_EXPECTED),
            output_tokens_default=most,
            fallback_prices_of=fallback_prices_of,
            reasks=reasks,
        )

    def schema_losses(self, apis: "Iterable[str]") -> dict[str, list[str]]:
        """What the schema loses at each provider: the answers are checked for it all the same."""
        from backstay.llm.providers import provider_named

        if self.schema is None:
            return {}
        names = dict.fromkeys((*apis, *(fallback.api for fallback in self.fallbacks)))
        return {name: list(provider_named(name).answers.express(self.schema).losses) for name in names}

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
            raise UsageError("--api-key-env and --api-key-command cannot be used together", hint="give one of them")
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
        choice = ProviderChoice(os.environ, fallback=None if own_key is None else DEFAULT_API, configured=named)

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


CONCURRENCY_MAX: Final = 10_000


class Reuse(NamedTuple):
    """Which answers of earlier runs a run uses: all, none, or only those that are not older than `age_seconds`."""

    wanted: bool = True
    age_seconds: float | None = None


ALWAYS: Final = Reuse()
NEVER: Final = Reuse(wanted=False)


class RunOptions(NamedTuple):
    """Where requests go, how fast, and what they may cost, as the user gave it."""

    base_url: str | None
    provider: str | None
    lane: str
    api_key_env: str | None
    header: tuple[str, ...]
    concurrency: int
    rpm: int | None
    tpm: int | None
    timeout: float | None
    price: "PricePerMillion | None"
    budget: int | None
    max_output_tokens: int | None
    reconcilable: bool = False
    delivery: str | None = None
    deadline: float | None = None
    dedupe: bool = False
    new: bool = False
    fail_on: tuple[str, ...] = ()
    api_key_command: str | None = None
    itpm: int | None = None
    otpm: int | None = None
    rpd: int | None = None
    fallback: str | None = None
    schema: "AnswerSchema | None" = None  # that every answer must fit
    reuse: Reuse | None = None  # which answers of earlier runs are used; None: all, but with `new` none
    reasks: int | None = None  # how often the model is asked for a better answer; None: as usual, if there is a schema

    @property
    def destination(self) -> Destination:
        return Destination(*(getattr(self, name) for name in Destination._fields))

    def check(self) -> None:
        """Raises UsageError for options that are wrong whatever the file contains."""
        from backstay.llm.fallbacks import Route

        if self.lane == CHEAPEST:
            _check_deadline(self.deadline, self.timeout)
        if self.reconcilable and self.lane != "call":
            raise UsageError(
                "--reconcilable works only with --lane call", hint="leave out --reconcilable, or use --lane call"
            )
        self.destination.check_fallbacks()
        if (api := self.destination.only_provider) is not None:
            self.destination.only(api)
            self.order([Route(api, tuple(self.destination.fallbacks))], out="-")

    def fit(self, surveyed: "FileSurvey") -> "RunOptions":
        """Raises UsageError if the requests are too few for a batch of their provider. With `--lane cheapest`, a file
        without enough requests for any batch is sent as calls; if only some models have too few, these are called
        later."""
        from backstay.llm.endpoint import Lane

        if self.lane not in (Lane.BATCH, CHEAPEST) or not (few := too_few_for_batches(surveyed)):
            return self
        if self.lane == CHEAPEST:
            return self._replace(lane=Lane.CALL.value) if len(few) == len(surveyed.kinds) else self
        raise UsageError(few[0].words, hint="use --lane call, or --lane cheapest with a --deadline")

    def weigher(self) -> "WeighedRun | None":
        """Checks the cost of every request; None: there is no budget."""
        from backstay.run.submission import WeighedRun

        return None if self.budget is None else WeighedRun(lambda route: self.order([route], out="-"))

    def order(self, routes: "Iterable[Route]", **more: Any) -> "Order":
        """The order for a file whose requests have these routes."""
        from backstay.llm.endpoint import Lane
        from backstay.run.submission import Order, ProviderTerms

        cheapest, ways = self.lane == CHEAPEST, sorted(routes)
        usual = ProviderTerms(PersonsLimits(concurrency=self.concurrency))
        apis = {api for way in ways for api in (way.api, *(fallback.api for fallback in way.fallbacks))}
        terms = {api: self._terms(api) for api in sorted(apis)}
        return Order(
            endpoint=self._endpoints(ways, Lane.BATCH if cheapest else Lane(self.lane)),
            call_instead=self._endpoints(ways, Lane.CALL) if cheapest else None,
            concurrency=self.concurrency,
            terms={api: each for api, each in terms.items() if each != usual},
            budget_micros=self.budget,
            output_tokens_default=self.max_output_tokens,
            delivery=self.delivery,
            deadline_seconds=self.deadline,
            dedupe=self.dedupe,
            new=self.new,
            reuse=self.reuse or (NEVER if self.new else ALWAYS),
            **more,
        )

    def _endpoints(self, ways: "Sequence[Route]", lane: "Lane") -> "Endpoint":
        """The endpoint of the first route, with the endpoints of the others beside it."""
        first, *others = [
            replace(self._endpoint(way.api, lane), then=tuple(map(self._fallback_endpoint, way.fallbacks)))
            for way in ways
        ]
        return replace(first, beside=tuple(other.dump() for other in others))

    def _terms(self, api: str) -> "ProviderTerms":
        """The limits of one provider. An option wins over the settings, but of two limits on simultaneous calls the
        lower one counts."""
        from backstay.run.submission import ProviderTerms

        own = own_settings(api)
        rpm, tpm, *further = (
            getattr(own, name) if (given := getattr(self, name)) is None else given
            for name in ("rpm", "tpm", "itpm", "otpm", "rpd")
        )
        at_once = min(self.concurrency, own.concurrency or CONCURRENCY_MAX)
        limits = PersonsLimits(rpm, tpm, at_once, FurtherLimits(*further))
        return ProviderTerms(limits, None if own.budget is None else round(own.budget * 1_000_000))

    def _endpoint(self, api: str, lane: "Lane") -> "Endpoint":
        from backstay.llm.endpoint import Endpoint
        from backstay.llm.providers import check_base_url

        price = None if self.price is None else tuple(rate for rate in self.price[:3] if rate is not None)
        url = self.destination.url(api)
        check_base_url(url, api)
        timeout = self.timeout if self.timeout is not None else own_settings(api).timeout_seconds
        terms = (price, self.reconcilable, timeout, self.fail_on)
        found = Endpoint(url, lane, self.destination.key_env(api), self.destination.headers(api), *terms, api)
        schema = None if self.schema is None else self.schema.dump()
        return replace(found, schema=schema, reasks=reasks_of(self.schema, self.reasks))

    def _fallback_endpoint(self, fallback: "Fallback") -> str:
        """The endpoint of a fallback, as it is stored. A lost call cannot be found at a fallback."""
        from backstay.llm.endpoint import Lane
        from backstay.llm.providers import provider_named

        price = self.destination.fallbacks[fallback]
        own = self._replace(price=price, **self.destination.of_fallback(fallback.api)._asdict())
        endpoint = own._endpoint(fallback.api, Lane.CALL)
        translates = provider_named(fallback.api).chat is not None  # otherwise the body stays without a bound
        bound = self.max_output_tokens if translates else None
        return replace(endpoint, model=fallback.model, output_tokens_default=bound).dump()


def reasks_of(schema: "AnswerSchema | None", given: int | None) -> int:
    from backstay.llm.schemas import REASKS_DEFAULT

    return given if given is not None else 0 if schema is None else REASKS_DEFAULT


class TooFew(NamedTuple):
    """A model with fewer requests than its provider takes in a batch."""

    model: str  # or the path, if there is no model
    requests: int
    requests_min: int

    @property
    def words(self) -> str:
        has = show_count(self.requests, "request")
        return f"{self.model} has {has}, and its provider takes no batch with fewer than {self.requests_min}"


def too_few_for_batches(surveyed: "FileSurvey") -> list[TooFew]:
    from backstay.llm.providers import provider_named, provider_of_url

    found = []
    for api in surveyed.providers:
        if (least_of := provider_named(api).batch_requests_min) is None:
            continue
        for (url, model), count in surveyed.kinds.items():
            mine = len(surveyed.providers) == 1 or provider_of_url(url) == api
            if mine and count < (least := least_of()):
                found.append(TooFew(model or url, count, least))
    return found


def _check_deadline(deadline: float | None, timeout: float | None) -> None:
    """Batches may begin until the last quarter of the deadline, which must be enough to gather and create one."""
    from backstay import settings
    from backstay.core.display import show_seconds
    from backstay.llm.batch import RUN_SECONDS

    if deadline is None:
        raise UsageError("--lane cheapest needs a deadline", hint="for example --deadline 24h")
    least = 3 * min(RUN_SECONDS, timeout or settings.load().call_seconds() or RUN_SECONDS)
    if deadline < least:
        raise UsageError(
            f"{show_seconds(deadline)} is too short for a batch: --lane cheapest needs {show_seconds(least)} or more",
            hint="give a later --deadline, or --lane call",
        )
