"""What was learnt about how large a shard may be: bytes that are uploaded in time, and tokens that may wait at once."""

from dataclasses import replace
from typing import Final

from backstay.clock import Clock
from backstay.llm.shards import ShardBounds

REQUESTS_MIN: Final = 100
WAIT_SECONDS: Final = 60.0
WAIT_SECONDS_MAX: Final = 1_800.0
MODELS_MAX: Final = 1_000


class _Model:
    """How a model's limit of waiting tokens was met."""

    __slots__ = ("held_until", "requests_max", "wait_seconds")

    def __init__(self, requests_max: int) -> None:
        self.requests_max = requests_max
        self.wait_seconds = WAIT_SECONDS / 2
        self.held_until = 0.0


class Restraint:
    """Halves what was too much and waits longer each time; what goes well again is allowed more again."""

    def __init__(self, bounds: ShardBounds, clock: Clock) -> None:
        self._given = bounds
        self._clock = clock
        self._bytes_max = bounds.bytes_max
        self._models: dict[str | None, _Model] = {}

    def bounds(self, model: str | None) -> ShardBounds:
        known = self._models.get(model)
        requests_max = known.requests_max if known is not None else self._given.requests_max
        return replace(self._given, bytes_max=self._bytes_max, requests_max=requests_max)

    def seconds_to_wait(self, model: str | None) -> float:
        known = self._models.get(model)
        return max(known.held_until - self._clock.monotonic(), 0.0) if known is not None else 0.0

    def too_many_tokens(self, model: str | None, requests: int) -> float:
        """A batch of so many requests was refused for the tokens that wait already; returns the seconds to wait."""
        now = self._clock.monotonic()
        if len(self._models) >= MODELS_MAX:
            self._models.clear()
        known = self._models.setdefault(model, _Model(self._given.requests_max))
        if now >= known.held_until:
            known.wait_seconds = min(known.wait_seconds * 2, WAIT_SECONDS_MAX)
            known.held_until = now + known.wait_seconds
            least = min(REQUESTS_MIN, self._given.requests_max)
            known.requests_max = max(min(known.requests_max, requests) // 2, least)
        return max(known.held_until - now, 1.0)

    def tokens_fit(self, model: str | None) -> None:
        """A batch of the model is being run."""
        known = self._models.get(model)
        if known is not None:
            known.wait_seconds = WAIT_SECONDS / 2
            known.requests_max = min(known.requests_max * 2, self._given.requests_max)

    def too_many_bytes(self, bytes_: int) -> None:
        """An upload of so many bytes was refused, or took too long. One of more was made before that was learnt."""
        if bytes_ <= self._bytes_max:
            self._bytes_max = max(bytes_ // 2, 1)  # whatever the bound, a shard has room for one request

    def bytes_fit(self, bytes_: int) -> None:
        if bytes_ > self._bytes_max // 2:
            self._bytes_max = min(self._bytes_max * 2, self._given.bytes_max)
