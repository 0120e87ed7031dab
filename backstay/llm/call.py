"""The lane `call`: one request, one answer, as the endpoint of the line gives it."""

from typing import Any, Final

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.core.outcomes import CannotAsk, Failed, NeverArrived, Succeeded
from backstay.core.retry import RetryPolicy
from backstay.handlers.context import Context
from backstay.handlers.handler import ASKS_AT_ONCE, Rules
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import LaneHandler, fail_flawed, rules_for, seconds_of
from backstay.llm.provider import CallLookup, Certainty
from backstay.llm.requests import require_request, unseal

# Up to 1 s, 4 s, 16 s and a minute, each time anywhere in between: the first failure costs little time, and a provider
# that comes back is not flooded by all items at once.
RETRY: Final = RetryPolicy("call", attempts_max=5, base_ms=500, factor=4, cap_ms=30_000, spread=1.0)
RULES: Final = Rules(retry=RETRY, timeout_seconds=600.0)


class CallHandler(LaneHandler):
    """A call can be found again after a crash, if the user wants that and the provider has a look-up for it."""

    asks_at_once = ASKS_AT_ONCE

    def __init__(self, endpoint: Endpoint, wire: Wire, rules: Rules | None = None, clock: Clock | None = None) -> None:
        super().__init__(endpoint, wire, rules or rules_for(endpoint, RULES), clock)
        self._seconds = seconds_of(self.rules)
        self._lookup = self._open_lookup() if endpoint.reconcilable else None
        self.askable = self._lookup is not None
        # Every call passes here, so these are looked up once.
        self._post = wire.post
        self._answered = self.channel.pacer.answered
        self._limit_hints = self.llm.replies.limit_hints
        self._read_reply = self.llm.replies.read_reply
        self._price_of = self.channel.price_of

    def check(self, payload: Any) -> None:
        request = require_request(payload)
        if self._lookup is not None:
            self._lookup.check(request)

    async def run(self, body: str, context: Context) -> Succeeded | Failed:
        request, clock = unseal(body), self.clock
        ref = context.idempotency_key
        text = request.body if self._lookup is None else self._lookup.body(request, ref)
        context.guard()
        began = clock.monotonic()
        reply = await self._post(request.url, text, self._seconds, ref, context.outside_traceparent)
        hints = self._limit_hints(reply, clock.now_ms())
        self._answered(reply.status, clock.monotonic() - began, hints)
        return fail_flawed(self._read_reply(reply, hints, self._price_of), self.fail_on)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Failed | NeverArrived | CannotAsk:
        """The outcome of a call whose reply was lost; raises if it is not certain."""
        if self._lookup is None:
            return CannotAsk()
        found = await self._lookup.find(client_ref, since_ms)
        if isinstance(found, NeverArrived) and self._lookup.certainty is not Certainty.CERTAIN:
            return CannotAsk()
        return fail_flawed(found, self.fail_on)

    def _open_lookup(self) -> CallLookup:
        if self.llm.call_lookup is None:
            raise UsageError(f"{self.llm.name} has no way to find a call again", hint="leave --reconcilable out")
        return self.llm.call_lookup(self.channel)
