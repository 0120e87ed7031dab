"""The interface of a provider for the lanes: its requests, the meaning of its replies, and which services it has.

The lanes know no path, no header and no field name of any provider. Everything of that kind is behind `LlmProvider`:
one module or folder for each provider in `backstay.llm.providers`. ARCHITECTURE.md lists what a new one writes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

from yarl import URL

from backstay.clock import Clock
from backstay.core.failures import error_of_failure
from backstay.core.limits import Limits
from backstay.core.models import CannotAsk, Failed, NeverArrived, Succeeded, Usage
from backstay.handlers.function import TaskAnswer
from backstay.llm.endpoint import DEFAULT_API, Lane
from backstay.llm.lines import LlmRequest
from backstay.llm.rate_limits import NO_HINTS, THROTTLED, LimitHints, Pacer
from backstay.llm.schemas import OPENAI_ANSWERS, ChatAnswers
from backstay.llm.shards import Shard, ShardBounds

if TYPE_CHECKING:
    from backstay.llm.batch_results import BatchResults
    from backstay.llm.http.wire import Wire

TOKENS_MAX: Final = 10**9  # of one call, many times what any model can read; a higher claim is not credible
OUTPUT_TOKENS_EXPECTED: Final = 300  # of a reply, where the request sets no lower bound
MODEL_CHARACTERS_MAX: Final = 100  # of its name in a trace
GONE: Final = (404, 410)
GONE_SECONDS: Final = 2.0  # until something that is reported as gone is asked for again: reads may lag behind writes
LAG_SECONDS: Final = Limits().batch_lag_seconds


class ProviderReply(NamedTuple):
    """A reply of a provider. Bytes that are not UTF-8 are in the text as lone surrogates."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    text: str
    cut: bool = False  # there was more than is ever read
    path: str = ""  # of the call; some providers name a model there, and not in the reply


class TokenEstimate(NamedTuple):
    """Tokens of one request, and what its price depends on. No bound means None: the input may depend on what the
    provider has stored."""

    input_tokens: int
    output_tokens_expected: int
    output_tokens_max: int | None
    input_tokens_max: int | None
    replies: int = 1
    one_pass: bool = True  # the model reads its input once, so that its context window is a bound too
    model: str | None = None
    tier: str | None = None


class TokenPrice(Protocol):
    def cost_micros(
        self, input_tokens: int, output_tokens: int, cached_tokens: int = 0, written_tokens: int = 0
    ) -> int: ...


class PriceOf(Protocol):
    """The cost of the replies of one lane."""

    def __call__(self, model: str, tier: str | None, /) -> TokenPrice | None:
        """The price of a model in a service tier; None if it is not known."""

    def usage_by_list(self, model: str, tier: str | None, body: Mapping[str, Any], /) -> Iterable[Usage]:
        """The usage that the published price list reads in a reply, with its cost; there may be several ways to read
        it."""


class Certainty(StrEnum):
    """What the result of a look-up after a crash means."""

    CERTAIN = "certain"  # a call that is not found never arrived
    IF_FOUND = "if found"  # a call that is found is certain; one that is not found may still exist
    NEVER = "never"  # there is no look-up


class ProviderAccess(NamedTuple):
    """The provider's own service, used unless the user names another."""

    base_url: str  # empty if every user has another one
    base_url_env: str  # the variable that may name another one
    key_env: str  # the variable that holds the key
    models_path: str  # a list that costs nothing: to see whether the service answers and takes the key
    reference_header: str | None = None  # identifies a request at the provider, for questions to its support
    needs_key: bool = True  # at its own address; a service on the user's machine needs none
    address_hint: str = ""  # what to do if there is no address, where more than one variable makes it
    token_source: str | None = None  # where tokens come from if no key is set, by its name in `llm.credentials`
    # Raises UsageError if this machine lacks what a run needs: by base URL, if it has batches, if there is a key.
    check_ready: Callable[[str, bool, bool], None] | None = None


class RequestSigner(Protocol):
    """Authorises each request by its content."""

    async def sign(self, method: str, url: URL, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Further headers, names in lower case; none for a host that is not the provider's."""


class RequestForm(Protocol):
    """How a request to the provider is addressed, authorised and written."""

    def check_base(self, base: SplitResult) -> None:
        """Raises UsageError for a base URL that is certainly wrong."""

    def address(self, base: SplitResult, path: str) -> URL: ...

    def auth_headers(self, base: SplitResult, key: str | None) -> dict[str, str]: ...

    def only_path(self, lane: Lane, reconcilable: bool) -> str | None:
        """The one path that such a lane accepts; None: any."""

    def check_body(self, url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
        """The model that a request names. Raises LineRefused, with the wrong part, for a request that would certainly
        fail."""

    def is_body(self, fields: Mapping[str, Any]) -> bool:
        """Whether an object looks like the body of a request."""

    def sends_metadata(self, fields: Mapping[str, Any]) -> bool:
        """Whether the metadata in a body is for the provider; otherwise it is kept here and added to the result."""

    def url_of_body(self, fields: Mapping[str, Any], model: str | None) -> str:
        """The url of a body that comes without one."""

    def url_of_prompt(self, model: str | None) -> str:
        """The url of a prompt that comes without one."""

    def prompt_member(self, url: str, prompt: str, is_text: bool) -> str:
        """The member of a body with the prompt; `prompt` is JSON, a text or messages."""

    def model_members(self, fields: Mapping[str, Any], model: str | None) -> list[str]:
        """The further members that a body needs to name the user's model."""

    def with_model(self, url: str, body: str, model: str) -> tuple[str, str]:
        """The url and the body of the same request for another model."""

    def estimate(
        self, url: str, body: str, fields: Mapping[str, Any], output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED
    ) -> TokenEstimate: ...

    def trace_attributes(self, base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
        """The attributes of a request in a trace, by OpenTelemetry's names; never its content."""

    def question(self, fields: Mapping[str, Any]) -> str | None:
        """The text that a person asked with this body, to be shown: the last message of the user; None if there is
        none."""


def request_attributes(
    base_url: str, operation: str, service: str, model: object, output_tokens_max: object
) -> dict[str, str | int]:
    """The attributes of a request in a trace; a model and a bound that are not valid are left out."""
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": service,
        "server.address": urlsplit(base_url).hostname or "",
    }
    if isinstance(model, str) and model:
        attributes["gen_ai.request.model"] = model[:MODEL_CHARACTERS_MAX]
    if type(output_tokens_max) is int:
        attributes["gen_ai.request.max_tokens"] = output_tokens_max
    return attributes


class ReplyForm(Protocol):
    """The meaning of the provider's replies. A reply is untrusted input: these methods return something for any
    content."""

    def limit_hints(self, reply: ProviderReply, now_ms: int) -> LimitHints: ...

    def read_reply(self, reply: ProviderReply, hints: LimitHints, price_of: PriceOf) -> Succeeded | Failed:
        """The outcome of the request: result, usage, flaw, or the kind of failure and when to try again.

        A result is the text of a `response` object: status_code, request_id, body.
        """


class CallLookup(Protocol):
    """Finds a single call again whose reply was lost."""

    @property
    def certainty(self) -> Certainty: ...

    def check(self, request: LlmRequest) -> None:
        """Raises UsageError for a request that could not be found again."""

    def body(self, request: LlmRequest, ref: str) -> str:
        """The body that is sent, so that the request can be found by its reference; Permanent if that cannot be."""

    async def find(self, ref: str, since_ms: int) -> Succeeded | Failed | NeverArrived | CannotAsk:
        """Raises if the outcome is not certain."""


class TaskApi(Protocol):
    """Requests that the provider works on in the background, and that are polled."""

    def body(self, request: LlmRequest, ref: str) -> str:
        """The body that starts a task; Permanent if there is no such task."""

    def task_id(self, reply: ProviderReply) -> str | None:
        """The id of the task that a reply of success names."""

    async def look(self, task_id: str) -> TaskAnswer:
        """The state of the task. Raises if there is no answer now; a Failed means that the task has ended."""

    async def cancel(self, task_id: str) -> None: ...


class BatchView(Protocol):
    """A batch as the provider shows it."""

    @property
    def id(self) -> str: ...
    @property
    def running(self) -> bool:
        """Whether its requests are being processed."""

    @property
    def ended(self) -> bool: ...
    @property
    def total(self) -> int:
        """The number of its requests; 0 if the provider does not report it."""

    @property
    def percent(self) -> int | None: ...
    @property
    def model(self) -> str | None:
        """The model whose limit of waiting tokens it counts against."""


class StagedShard(Protocol):
    """A shard that is ready, at the provider or here. It has cost nothing yet."""

    async def wait_ready(self, create_seconds: float) -> Failed | None:
        """Waits while the provider processes it, but leaves its claims enough time to create a batch."""

    async def create(self, seconds: float) -> str | Failed:
        """The id of the batch. A refusal gives the outcome of every request; OutcomeUnknown if the provider may have
        created it nevertheless. The request is sent before anything else is awaited."""


ViewT = TypeVar("ViewT", bound=BatchView)


class BatchApi(Protocol[ViewT]):
    """The provider's own batches. Every request is known there by its reference."""

    @property
    def bounds(self) -> ShardBounds:
        """The limits of one batch, well below the provider's own."""

    @property
    def certainty(self) -> Certainty:
        """The certainty of `find`."""

    def group_of(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[str | None, str]:
        """Requests of one group may share a batch: the model whose limits they share, and their path."""

    async def stage(self, shard: Shard, seconds: float) -> StagedShard | Failed:
        """Writes the shard's requests and uploads them, if the provider needs them before the batch."""

    async def find(self, ref: str, since_ms: int) -> str | None:
        """The batch that has the request, which was not sent before `since_ms`. Raises if it is not certain;
        `certainty` defines what None means."""

    async def show(self, batch_id: str) -> ViewT | None:
        """None if the provider answers that it does not exist."""

    async def read_results(self, batch: ViewT) -> "BatchResults":
        """The results of a batch that has ended."""

    async def cancel(self, batch_id: str) -> None: ...

    async def close(self) -> None: ...


class ChatTranslation(Protocol):
    """OpenAI's chat format for a provider that has another: requests on their way out, replies on their way back."""

    def is_chat(self, fields: Mapping[str, Any]) -> bool:
        """Whether a body that comes without a url is a chat request, and not one in the provider's own format."""

    def request(
        self, fields: Mapping[str, Any], model: str | None, output_tokens_default: int | None
    ) -> tuple[str, dict[str, Any]]:
        """The path and the body for a chat request; the default bounds a reply that the request does not. Raises
        LineRefused, with the part at fault, for what the provider's own format cannot say: nothing is dropped
        silently."""

    def own_member(self, fields: Mapping[str, Any]) -> str | None:
        """A member of a body that OpenAI's chat format does not have, and the provider's own format has; None: there is
        none."""

    def is_reply(self, fields: Mapping[str, Any]) -> bool:
        """Whether an object looks like the body of a reply in the provider's own format, if it is not in OpenAI's."""

    def reply(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A `chat.completion` from the body of a successful reply, whatever it contains."""


@dataclass(frozen=True, slots=True)
class LlmProvider:
    """One provider. A service that it does not have is None."""

    name: str
    access: ProviderAccess
    requests: RequestForm
    replies: ReplyForm
    call_lookup: "Callable[[Channel], CallLookup] | None" = None
    tasks: "Callable[[Channel], TaskApi] | None" = None
    batches: "Callable[[Channel], BatchApi[Any]] | None" = None
    batch_requests_min: "Callable[[], int] | None" = None  # with one path and model, where it takes no smaller batch
    chat: ChatTranslation | None = None  # None: it speaks OpenAI's chat format itself
    answers: ChatAnswers = OPENAI_ANSWERS  # how its answers get the form of a schema
    is_gateway: bool = False  # its own address may serve the APIs of other providers too
    model_prefixes: tuple[str, ...] = ()  # what the names of its own models begin with
    url_prefixes: tuple[str, ...] = ()  # what the paths begin with that only its requests have
    format_of: str | None = None  # the provider whose requests it takes, if that is neither OpenAI nor it itself
    price_list: str | None = None  # its name in the published prices
    # The path of a call by base URL, path and body, where more than its own path decides.
    call_path: "Callable[[str, str, Mapping[str, Any]], str] | None" = None
    # By base URL and key, where a key in a header is not enough.
    signer: "Callable[[SplitResult, str | None], RequestSigner] | None" = None
    # Where the user's environment decides about the address, or about which variable holds the key.
    find_access: "Callable[[Mapping[str, str]], ProviderAccess] | None" = None

    def access_in(self, environ: Mapping[str, str]) -> ProviderAccess:
        return self.access if self.find_access is None else self.find_access(environ)

    @property
    def dialect(self) -> str:
        """The provider whose format its requests have."""
        return self.format_of or (DEFAULT_API if self.chat is None else self.name)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes that it has."""
        has = {Lane.CALL: True, Lane.BACKGROUND: self.tasks is not None, Lane.BATCH: self.batches is not None}
        return [lane for lane in Lane if has[lane]]


class Channel:
    """The HTTP client of a provider together with the meaning of its replies: all that a provider's own code needs of a
    lane."""

    def __init__(self, provider: LlmProvider, wire: "Wire", price_of: PriceOf, clock: Clock) -> None:
        self.provider = provider
        self.wire = wire
        self.price_of = price_of
        self.clock = clock
        self.pacer = Pacer()
        self.lag_seconds = LAG_SECONDS  # how long a new batch may be missing in the provider's answers

    def limit_hints(self, reply: ProviderReply) -> LimitHints:
        return self.provider.replies.limit_hints(reply, self.clock.now_ms())

    def read(self, reply: ProviderReply) -> Succeeded | Failed:
        return self.provider.replies.read_reply(reply, self.limit_hints(reply), self.price_of)

    def refusal(self, reply: ProviderReply) -> Failed:
        """The error that an unsuccessful reply stands for."""
        outcome = self.read(reply)
        assert isinstance(outcome, Failed), "only an answer can be a success"
        return outcome

    def require_answer(self, reply: ProviderReply) -> ProviderReply:
        """Returns the reply to a question if it is a success; raises the error that it stands for otherwise."""
        if 200 <= reply.status <= 299:
            return reply
        self._tell_throttled(reply)
        raise error_of_failure(self.refusal(reply).failure)

    def count_answer(self, reply: ProviderReply, requests: int) -> None:
        """Records that one reply answered so many requests. The latency of files and batches says nothing about the
        pace."""
        hints = self.limit_hints(reply)
        for _ in range(requests):
            self.pacer.note_answer(reply.status, 0.0, hints)
            hints = NO_HINTS  # it was one call, whatever it answered

    def _tell_throttled(self, reply: ProviderReply) -> None:
        """A refused question does not count against the number of requests, but requests wait as long as it must."""
        if reply.status == THROTTLED:
            wait_ms = self.limit_hints(reply).wait_ms or 0
            self.pacer.answers.add(0.0, throttled=True, pause_ms=wait_ms, exhausted_ms=wait_ms)
