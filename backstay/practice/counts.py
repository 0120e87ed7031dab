"""What the provider counts for itself: how many came, at once and per minute, and how it answered."""

from collections import Counter
from typing import Any

from backstay.practice.limits import Window


class Counts:
    """Kept from the start, or from the last reset of the bill."""

    def __init__(self, window_seconds: float = 60.0) -> None:
        self.requests = 0  # of any kind
        self.calls = 0  # that would be paid for
        self.running = 0
        self.concurrency_peak = 0
        self.statuses: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        self.limited = 0
        self.calls_window = Window(window_seconds)

    def arrive(self) -> None:
        self.requests += 1
        self.running += 1
        if self.running > self.concurrency_peak:
            self.concurrency_peak = self.running

    def leave(self) -> None:
        self.running -= 1

    def call(self, now: float, tokens: int) -> None:
        """A call came, whether it will be let in or not."""
        self.calls += 1
        self.calls_window.add(now, tokens)

    def dump(self) -> dict[str, Any]:
        statuses = self.statuses
        return {
            "requests": self.requests,
            "calls": self.calls,
            "running": self.running,
            "concurrency_peak": self.concurrency_peak,
            "window_seconds": self.calls_window.seconds,
            "requests_per_window_peak": self.calls_window.requests_peak,
            "tokens_per_window_peak": self.calls_window.tokens_peak,
            "throttled": statuses[429],
            "limited": self.limited,
            "server_errors": sum(count for status, count in statuses.items() if status >= 500),
            "statuses": {str(status): count for status, count in sorted(statuses.items())},
            "faults": dict(self.faults),
        }
