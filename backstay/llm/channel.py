"""The HTTP client of a provider together with the meaning of its replies: all that a provider's own code needs of a
lane."""

import json
from typing import TYPE_CHECKING, Any, Final

from backstay.clock import Clock
from backstay.core.failures import error_of_failure
from backstay.core.outcomes import Failed, Succeeded
from backstay.llm.provider import LlmProvider, PriceOf, ProviderReply
from backstay.llm.rate_limits import NO_HINTS, THROTTLED, LimitHints, Pacer

if TYPE_CHECKING:
    from backstay.llm.http.wire import Wire

GONE: Final = (404, 410)
GONE_SECONDS: Final = 2.0  # before something reported as gone is asked for again: reads may lag behind writes
_ID_CHARACTERS_MAX: Final = 500


class Channel:
    def __init__(self, provider: LlmProvider, wire: "Wire", price_of: PriceOf, clock: Clock) -> None:
        self.provider = provider
        self.wire = wire
        self.price_of = price_of
        self.clock = clock
        self.pacer = Pacer()

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


def object_in(reply: ProviderReply) -> dict[str, Any] | None:
    """The reply's content, if it is a JSON object."""
    try:
        value = json.loads(reply.text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def id_in(value: dict[str, Any] | None, key: str = "id") -> str | None:
    """The id of what the provider created, if it can be stored and asked for."""
    named = value.get(key) if value is not None else None
    return named if isinstance(named, str) and 0 < len(named) <= _ID_CHARACTERS_MAX and named.isprintable() else None
