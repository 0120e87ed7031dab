"""The options of a run: where requests go, how fast, and what they may cost."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backstay.core.display import show_count
from backstay.core.errors import UsageError
from backstay.core.pace import FurtherLimits, PersonsLimits
from backstay.run.destination import CHEAPEST, Destination, own_settings

if TYPE_CHECKING:
    from backstay.llm.endpoint import Endpoint, Lane
    from backstay.llm.fallbacks import Fallback, Route
    from backstay.llm.intake import FileSurvey
    from backstay.llm.prices import PricePerMillion
    from backstay.llm.schemas import AnswerSchema
    from backstay.run.submission import Order, ProviderTerms, WeighedRun

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
        what, count, least = few[0]
        raise UsageError(
            f"{what} has {show_count(count, 'request')}, and its provider takes no batch with fewer than {least}",
            hint="use --lane call, or --lane cheapest with a --deadline",
        )

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


def too_few_for_batches(surveyed: "FileSurvey") -> list[tuple[str, int, int]]:
    """The models that have too few requests for a batch, each with its number of requests and the provider's
    minimum."""
    from backstay.llm.providers import provider_named, provider_of_url

    found = []
    for api in surveyed.providers:
        if (least_of := provider_named(api).batch_requests_min) is None:
            continue
        for (url, model), count in surveyed.kinds.items():
            mine = len(surveyed.providers) == 1 or provider_of_url(url) == api
            if mine and count < (least := least_of()):
                found.append((model or url, count, least))
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
