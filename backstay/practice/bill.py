"""The bill: every call that a real provider would charge for, by the client's own reference."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from backstay.core.errors import UsageError

MILLION = 1_000_000


class Price(NamedTuple):
    """Micro-dollars for a million tokens."""

    input_micros: int
    output_micros: int

    def cost_micros(self, input_tokens: int, output_tokens: int, halved: bool = False) -> int:
        """Rounded up, and half of it in a batch."""
        times = input_tokens * self.input_micros + output_tokens * self.output_micros
        return -(-times // (2 * MILLION if halved else MILLION))


def parse_price(text: str) -> Price:
    """Dollars for a million tokens, in/out."""
    try:
        micros = [int(Decimal(part.strip()) * MILLION) for part in text.split("/")]
        price = Price(*micros)
    except (InvalidOperation, TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no price", hint="write dollars per million tokens, for example 0.15/0.60"
        ) from None
    if min(price) < 0:
        raise UsageError("a price cannot be below zero")
    return price


class Charge(NamedTuple):
    """One line of the bill."""

    ref: str
    body: str  # the digest of what was asked, whatever reference it came with
    input_tokens: int
    output_tokens: int
    cost_micros: int


class Account:
    """What was charged under one reference."""

    __slots__ = ("body", "cost_micros", "input_tokens", "output_tokens", "times")

    def __init__(self, body: str) -> None:
        self.body = body
        self.times = self.input_tokens = self.output_tokens = self.cost_micros = 0

    def dump(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in sorted(self.__slots__)}


class Bill:
    """Kept in memory, and in a file of lines too when one is named: it then outlives this process."""

    def __init__(self, price: Price, file: Path | None = None) -> None:
        self.price = price
        self._path = file
        self._file: int | None = None
        self.clear()
        if file is not None:
            with _complaining_of(file):
                for charge in _read(file):
                    self._enter(charge)

    def charge(self, ref: str, body: str, input_tokens: int, output_tokens: int, halved: bool = False) -> None:
        cost = self.price.cost_micros(input_tokens, output_tokens, halved)
        charge = Charge(ref, body, input_tokens, output_tokens, cost)
        if self._file is not None:
            # One write for one line, past all buffers of ours: a kill cannot lose it.
            os.write(self._file, json.dumps(charge).encode() + b"\n")
        self._enter(charge)

    def _enter(self, charge: Charge) -> None:
        account = self.by_ref.get(charge.ref)
        if account is None:
            account = self.by_ref[charge.ref] = Account(charge.body)
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
        self.total = Account("")
        self.by_ref: dict[str, Account] = {}
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
        """From here on charges go to the file too."""
        if self._path is not None and self._file is None:
            with _complaining_of(self._path):
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def _complaining_of(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot keep the bill in {file}: {error.strerror}") from None


def _read(file: Path) -> Iterator[Charge]:
    """The lines of an earlier life. A last line without an end was never a whole charge, and is cut off."""
    if not file.exists():
        return
    whole = 0
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                yield Charge(*json.loads(line))
            except (ValueError, TypeError):
                raise UsageError(f"{file} is no bill: {line[:40]!r}") from None
    os.truncate(file, whole)
