"""The practice provider as a whole: its parts, and how it is served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from backstay.clock import Clock
from backstay.practice.background import Background
from backstay.practice.batches import Batches
from backstay.practice.bill import Bill, parse_price
from backstay.practice.calls import Calls
from backstay.practice.control import Control
from backstay.practice.counts import Counts
from backstay.practice.faults import Faults
from backstay.practice.files import Files
from backstay.practice.gate import Gate
from backstay.practice.gateway import Gateway
from backstay.practice.routes import Parts, application
from backstay.practice.shop import Shop
from backstay.practice.stored import Stored

PRICE = "0.15/0.60"
BACKLOG = 4_096
SHUTDOWN_SECONDS = 0.1


class Practice:
    """`async with Practice(Faults(fail=0.1)).serving() as base_url`; its `bill` and `counts` can be read meanwhile."""

    def __init__(
        self,
        faults: Faults | None = None,
        price: str = PRICE,
        bill_file: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._gate = Gate(faults or Faults(), clock or Clock())
        self.bill = Bill(parse_price(price), bill_file)
        self._control = Control(self._gate, self.bill)

    @property
    def counts(self) -> Counts:
        return self._gate.counts

    @property
    def faults(self) -> Faults:
        return self._gate.faults

    def change(self, **values: object) -> None:
        """Other faults from now on; `outage_seconds` is an outage that begins now."""
        self._control.change(values)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serves until the block ends, and cuts off at once whatever still runs then."""
        parts = self._parts()
        runner = web.AppRunner(application(parts), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        self.bill.open()
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, backlog=BACKLOG).start()
            yield f"http://{_shown(host)}:{runner.addresses[0][1]}/v1"
        finally:
            parts.background.close()
            await parts.batches.close()
            await runner.cleanup()
            parts.files.close()
            self.bill.close()

    def _parts(self) -> Parts:
        gate = self._gate
        stored, background, files = Stored(gate), Background(gate), Files(gate)
        calls = Calls(gate, self.bill, stored, background)
        batches = Batches(Shop(gate, self.bill, files, calls, {}))
        return Parts(gate, calls, stored, background, files, batches, self._control, Gateway(gate, self.bill))


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
