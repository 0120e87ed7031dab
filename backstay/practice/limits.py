"""The provider's own count of requests and tokens in a sliding window, and the limits on them."""

from collections import deque

from backstay.practice.faults import Faults
from backstay.practice.refusals import Refused


class Window:
    """What came within the last seconds, and the most there ever was in any such time."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self.requests = 0
        self.tokens = 0
        self.requests_peak = 0
        self.tokens_peak = 0
        self._entries: deque[tuple[float, int]] = deque()

    def add(self, now: float, tokens: int) -> None:
        self.forget(now)
        self._entries.append((now, tokens))
        self.requests += 1
        self.tokens += tokens
        self.requests_peak = max(self.requests_peak, self.requests)
        self.tokens_peak = max(self.tokens_peak, self.tokens)

    def forget(self, now: float) -> None:
        entries, gone = self._entries, now - self.seconds
        while entries and entries[0][0] <= gone:
            self.tokens -= entries.popleft()[1]
            self.requests -= 1

    def frees_in(self, now: float, requests: int = 0, tokens: int = 0) -> float:
        """How long until so many requests or tokens have left; without them, until the oldest has."""
        for at, size in self._entries:
            requests, tokens = requests - 1, tokens - size
            if requests <= 0 and tokens <= 0:
                return max(at + self.seconds - now, 0.0)
        return 0.0


class RateLimits:
    """Requests and tokens per minute. What is refused does not count against them."""

    def __init__(self) -> None:
        self._window = Window()
        self.refused = 0

    def admit(self, now: float, tokens: int, faults: Faults) -> dict[str, str]:
        """Counts a request in, and returns the headers that tell how much is left."""
        if faults.rpm is None and faults.tpm is None:
            return {}
        window = self._window
        window.seconds = faults.window_seconds
        window.forget(now)
        over = _over(window.requests + 1, faults.rpm), _over(window.tokens + tokens, faults.tpm)
        if any(over):
            self.refused += 1
            raise self._refusal(now, over, faults)
        window.add(now, tokens)
        return self._headers(now, faults)

    def _refusal(self, now: float, over: tuple[int, int], faults: Faults) -> Refused:
        wait = self._window.frees_in(now, *over) or faults.window_seconds
        waits = {"Retry-After": f"{-(-wait // 1):.0f}", "retry-after-ms": f"{wait * 1000:.0f}"}
        kind = "requests" if over[0] else "tokens"
        said = f"Rate limit reached on {kind} per min (practice). Please try again in {go_duration(wait)}."
        headers = {**self._headers(now, faults), **waits}
        return Refused(429, said, "rate_limit_exceeded", kind=kind, headers=headers)

    def _headers(self, now: float, faults: Faults) -> dict[str, str]:
        reset = go_duration(self._window.frees_in(now))
        headers: dict[str, str] = {}
        for name, limit, used in (
            ("requests", faults.rpm, self._window.requests),
            ("tokens", faults.tpm, self._window.tokens),
        ):
            if limit is not None:
                headers[f"x-ratelimit-limit-{name}"] = str(limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(max(limit - used, 0))
                headers[f"x-ratelimit-reset-{name}"] = reset
        return headers


def _over(used: int, limit: int | None) -> int:
    return 0 if limit is None else max(used - limit, 0)


def go_duration(seconds: float) -> str:
    """As OpenAI writes it: 12ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"
