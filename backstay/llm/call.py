"""The lane `call`: one request, one answer, as the endpoint of the line gives it."""

from typing import Any, Final
from urllib.parse import quote

from backstay.clock import Clock
from backstay.core.errors import ErrorCode, Permanent, Transient, UsageError
from backstay.core.failures import error_of_failure
from backstay.core.outcomes import CannotAsk, Failed, NeverArrived, Succeeded
from backstay.core.retry import RetryPolicy
from backstay.handlers.context import Context
from backstay.handlers.handler import ASKS_AT_ONCE, Rules
from backstay.llm.described import described
from backstay.llm.endpoint import Endpoint
from backstay.llm.flaws import fail_flawed
from backstay.llm.http.wire import ProviderReply, Wire
from backstay.llm.marked import REF, marked
from backstay.llm.prices import LanePrices
from backstay.llm.rate_limits import Pacer, learn
from backstay.llm.replies import read_reply
from backstay.llm.requests import LlmRequest, require_request, unseal
from backstay.llm.task_lane import object_in, rules_for, seconds_of

CHAT: Final = "/v1/chat/completions"
LOOK_SECONDS: Final = 30.0
NO_LIST: Final = (404, 405, 501)  # the service keeps no completions, or none that can be looked for
# Up to 1 s, 4 s, 16 s and a minute, each time anywhere in between: the first hiccup costs little, and a provider that
# is ill is not met by everyone at once when it comes back.
RETRY: Final = RetryPolicy("call", attempts_max=5, base_ms=500, factor=4, cap_ms=30_000, spread=1.0)
RULES: Final = Rules(retry=RETRY, timeout_seconds=600.0)
_STORED: Final = {"store": "true"}


class CallHandler:
    """A completion that is stored at the provider under a reference can be found again after a crash."""

    def __init__(self, endpoint: Endpoint, wire: Wire, rules: Rules | None = None, clock: Clock | None = None) -> None:
        self.name = endpoint.name
        self.provider = endpoint.provider_of(wire.account)
        self.pace_name = endpoint.pace_name
        self.account: str | None = wire.account
        self.rules = rules or rules_for(endpoint, RULES)
        self.askable = endpoint.reconcilable
        self.asks_at_once = ASKS_AT_ONCE
        self._seconds = seconds_of(self.rules)
        self._fail_on = endpoint.fail_on
        self._base_url = endpoint.base_url
        self._wire = wire
        self._clock = clock or Clock()
        self._price_of = LanePrices(endpoint)
        self._pacer = Pacer()
        self.answers = self._pacer.answers

    def check(self, payload: Any) -> None:
        request = require_request(payload)
        if self.askable and request.url != CHAT:
            raise UsageError(_only_chat(request.url))

    async def run(self, body: str, context: Context) -> Succeeded | Failed:
        request = unseal(body)
        ref = context.idempotency_key
        text = _findable(request, ref) if self.askable else request.body
        context.guard()
        began = self._clock.monotonic()
        reply = await self._wire.post(request.url, text, self._seconds, ref, context.outside_traceparent)
        learned = learn(reply.headers, self._clock.now_ms())
        self._pacer.answered(reply.status, self._clock.monotonic() - began, learned)
        return fail_flawed(read_reply(reply, learned, self._price_of), self._fail_on)

    def described(self, body: str) -> dict[str, str | int]:
        return described(self._base_url, body)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Failed | NeverArrived | CannotAsk:
        """The stored completion that carries the reference; what is not certain raises."""
        reply = await self._wire.get(CHAT, {f"metadata[{REF}]": client_ref}, LOOK_SECONDS)
        if reply.status in NO_LIST:
            return CannotAsk()
        self._read(reply)
        page = object_in(reply) or {}
        listed = page.get("data")
        if not isinstance(listed, list) or (page.get("has_more") and not listed):
            raise Transient("the look-up gave no list")
        if not listed:
            return NeverArrived()
        found = next((each["id"] for each in listed if _carries(each, client_ref)), None)
        if found is None:  # it does not heed the reference, so that it lists none says nothing
            raise Transient("the look-up gave completions of other requests")
        completion = await self._wire.get(f"{CHAT}/{quote(found, safe='')}", timeout_seconds=LOOK_SECONDS)
        return self._read(completion)

    def _read(self, reply: ProviderReply) -> Succeeded | Failed:
        """The answer, even if a flaw makes a failure of it; a refusal of the look-up itself raises."""
        read = read_reply(reply, learn(reply.headers, self._clock.now_ms()), self._price_of)
        if isinstance(read, Failed):
            raise error_of_failure(read.failure)
        return fail_flawed(read, self._fail_on)


def _only_chat(url: str) -> str:
    return f"only chat completions can be found again after a crash, not {url[1:]}"


def _findable(request: LlmRequest, ref: str) -> str:
    """The body of a completion that is to be stored under the reference. One that cannot carry it is not sent at all:
    later, that it is not found would be taken for certain that it never arrived."""
    if request.url != CHAT:
        raise Permanent(_only_chat(request.url), ErrorCode.GW_4XX)
    text = marked(request.body, ref, _STORED)
    if f'"{ref}"' not in text:
        raise Permanent("its metadata is full or no object, so it could not be found again", ErrorCode.GW_4XX)
    return text


def _carries(each: Any, ref: str) -> bool:
    if not isinstance(each, dict) or not isinstance(each.get("id"), str):
        return False
    metadata = each.get("metadata")
    return isinstance(metadata, dict) and metadata.get(REF) == ref
