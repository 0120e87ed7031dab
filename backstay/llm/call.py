"""The lane `call`: one request, one answer, as the endpoint of the line gives it."""

import json
from typing import Any, Final

from backstay.clock import Clock
from backstay.core.errors import Transient, UsageError
from backstay.core.outcomes import Failed, NeverArrived, Succeeded
from backstay.core.retry import NAMED
from backstay.handlers.context import Context
from backstay.handlers.handler import Rules
from backstay.llm.endpoint import Endpoint
from backstay.llm.envelope import unseal
from backstay.llm.headers import learn
from backstay.llm.marked import REF, marked
from backstay.llm.pacer import Pacer
from backstay.llm.replies import read_reply
from backstay.llm.task_lane import prices_of
from backstay.llm.wire import Wire

CHAT: Final = "/v1/chat/completions"
LOOK_SECONDS: Final = 30.0


class CallHandler:
    """A completion that is stored at the provider under a reference can be found again after a crash."""

    def __init__(self, endpoint: Endpoint, wire: Wire, rules: Rules | None = None, clock: Clock | None = None) -> None:
        self.name = endpoint.name
        self.provider = endpoint.provider
        self.account: str | None = wire.account
        self.rules = rules or Rules(retry=NAMED["gateway"], timeout_seconds=endpoint.timeout_seconds)
        self.askable = endpoint.reconcilable
        self._seconds = endpoint.timeout_seconds
        self._wire = wire
        self._clock = clock or Clock()
        self._price_of = prices_of(endpoint)
        self._pacer = Pacer()
        self.answers = self._pacer.answers

    def check(self, payload: Any) -> None:
        if not isinstance(payload, dict) or payload.keys() != {"custom_id", "url", "body"}:
            raise UsageError("a request has a custom_id, a url and a body", hint="see backstay.llm.envelope")

    async def run(self, body: str, context: Context) -> Succeeded | Failed:
        request = unseal(body)
        ref = context.idempotency_key
        text = request.body
        if self.askable and request.url == CHAT:
            text = marked(text, ref, {"store": "true"})
        context.guard()
        began = self._clock.monotonic()
        reply = await self._wire.post(request.url, text, self._seconds, ref)
        learned = learn(reply.headers, self._clock.now_ms())
        self._pacer.answered(reply.status, self._clock.monotonic() - began, learned)
        return read_reply(reply, learned, self._price_of)

    async def ask(self, client_ref: str) -> Succeeded | NeverArrived:
        """The stored completion that carries the reference; what is not certain raises."""
        params = {f"metadata[{REF}]": client_ref}
        reply = await self._wire.get(CHAT, params, timeout_seconds=LOOK_SECONDS)
        learned = learn(reply.headers, self._clock.now_ms())
        found = read_reply(reply, learned, self._price_of)
        if isinstance(found, Failed):
            raise Transient(f"the look-up failed: {found.failure.message}")
        listed = json.loads(reply.text).get("data")
        if not isinstance(listed, list):
            raise Transient("the look-up gave no list")
        if not listed:
            return NeverArrived()
        said = read_reply(reply._replace(text=json.dumps(listed[0])), learned, self._price_of)
        if isinstance(said, Failed):
            raise Transient(f"the stored completion cannot be read: {said.failure.message}")
        return said
