"""The parts of the provider that batches use."""

from typing import NamedTuple

from backstay.practice.bill import Bill
from backstay.practice.calls import Calls
from backstay.practice.files import Files
from backstay.practice.gate import Gate


class Shop(NamedTuple):
    gate: Gate
    bill: Bill
    files: Files
    calls: Calls
    enqueued: dict[str, int]  # tokens that wait, by batch

    def now(self) -> int:
        return self.gate.clock.now_ms() // 1000
