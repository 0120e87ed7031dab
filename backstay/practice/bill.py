"""The bill, with every call that a real provider would charge for, and the counts of all requests."""

import json
import os
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from backstay.core.errors import UsageError

MILLION = 1_000_000


class BillPrice(NamedTuple):
    """Micro-dollars for a million tokens."""

    input_micros: int
    output_micros: int

    def cost_micros(self, input_tokens: int, output_tokens: int, halved: bool = False) -> int:
        """Rounded up, and half of it in a batch."""
        times = input_tokens * self.input_micros + output_tokens * self.output_micros
        return -(-times // (2 * MILLION if halved else MILLION))


def parse_price(text: str) -> BillPrice:
    """Dollars for a million tokens, in/out."""
    try:
        micros = [int(Decimal(part.strip()) * MILLION) for part in text.split("/")]
        price = BillPrice(*micros)
    except (InvalidOperation, TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not a price", hint="write dollars per million tokens, for example 0.15/0.60"
        ) from None
    if min(price) < 0:
        raise UsageError("a price cannot be below zero")
    return price


class BillCharge(NamedTuple):
    """One line of the bill."""

    ref: str
    body: str  # the digest of the request, which does not depend on its reference
    input_tokens: int
    output_tokens: int
    cost_micros: int


class BillAccount:
    """All charges under one reference."""

    __slots__ = ("body", "cost_micros", "input_tokens", "output_tokens", "times")

    def __init__(self, body: str) -> None:
        self.body = body
        self.times = self.input_tokens = self.output_tokens = self.cost_micros = 0

    def dump(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in sorted(self.__slots__)}


class Bill:
    """Charges by the client's own reference. A file, if one is named, keeps them for the next process."""

    def __init__(self, price: BillPrice, file: Path | None = None) -> None:
        self.price = price
        self._path = file
        self._file: int | None = None
        self.clear()
        if file is not None:
            with _name_file_in_errors(file):
                for charge in _read_charges(file):
                    self._add(charge)

    def charge(self, ref: str, body: str, input_tokens: int, output_tokens: int, halved: bool = False) -> None:
        cost = self.price.cost_micros(input_tokens, output_tokens, halved)
        charge = BillCharge(ref, body, input_tokens, output_tokens, cost)
        if self._file is not None:
            # One unbuffered write for one line: a kill cannot lose it.
            os.write(self._file, json.dumps(charge).encode() + b"\n")
        self._add(charge)

    def _add(self, charge: BillCharge) -> None:
        account = self.by_ref.get(charge.ref)
        if account is None:
            account = self.by_ref[charge.ref] = BillAccount(charge.body)
        elif account.times == 1:
            self.paid_twice.append(charge.ref)
        bodies = self.by_body[charge.body] = self.by_body.get(charge.body, 0) + 1
        if bodies == 2:
            self.bodies_paid_twice.append(charge.body)
        self.charged += 1
        for total in (account, self.total):
            total.times += 1
            total.input_tokens += charge.input_tokens
            total.output_tokens += charge.output_tokens
            total.cost_micros += charge.cost_micros

    def clear(self) -> None:
        self.charged = 0
        self.total = BillAccount("")
        self.by_ref: dict[str, BillAccount] = {}
        self.by_body: dict[str, int] = {}
        self.paid_twice: list[str] = []
        self.bodies_paid_twice: list[str] = []
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def dump(self, summary: bool = False) -> dict[str, Any]:
        shown = {
            "charged": self.charged,
            "input_tokens": self.total.input_tokens,
            "output_tokens": self.total.output_tokens,
            "cost_micros": self.total.cost_micros,
            "refs": len(self.by_ref),
            "bodies": len(self.by_body),
            "paid_again": self.charged - len(self.by_ref),
        }
        if summary:
            return shown
        twice = {"paid_twice": self.paid_twice, "bodies_paid_twice": self.bodies_paid_twice}
        return {**shown, **twice, "by_ref": {ref: each.dump() for ref, each in self.by_ref.items()}}

    def open(self) -> None:
        """From now on charges go to the file too."""
        if self._path is not None and self._file is None:
            with _name_file_in_errors(self._path):
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def _name_file_in_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot keep the bill in {file}: {error.strerror}") from None


def _read_charges(file: Path) -> Iterator[BillCharge]:
    """The charges of earlier processes. A last line without a line end is not a whole charge, and is removed."""
    if not file.exists():
        return
    whole = 0
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                yield BillCharge(*json.loads(line))
            except (ValueError, TypeError):
                raise UsageError(
                    f"{file} is not a bill of the practice provider: it contains {line[:40]!r}",
                    hint="name a new file with --bill-file",
                ) from None
    os.truncate(file, whole)


class SlidingWindow:
    """The requests and tokens of the last seconds, and the most that there ever were in such a time."""

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
        """The time until so many requests or tokens have left the window; without numbers, until the oldest has."""
        for at, size in self._entries:
            requests, tokens = requests - 1, tokens - size
            if requests <= 0 and tokens <= 0:
                return max(at + self.seconds - now, 0.0)
        return 0.0


class Counts:
    """The provider's own counts, from its start or from the last reset of the bill."""

    def __init__(self, window_seconds: float = 60.0) -> None:
        self.requests = 0  # of every kind
        self.calls = 0  # of endpoints that cost money
        self.running = 0
        self.concurrency_peak = 0
        self.statuses: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        self.limited = 0
        self.calls_window = SlidingWindow(window_seconds)

    def arrive(self) -> None:
        self.requests += 1
        self.running += 1
        if self.running > self.concurrency_peak:
            self.concurrency_peak = self.running

    def leave(self) -> None:
        self.running -= 1

    def add_call(self, now: float, tokens: int) -> None:
        """Counts a call, whether it will be admitted or not."""
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
