"""What a person or a test asks the provider beside its work: the bill, the counts, and other faults from now on."""

import json
from typing import Any

from aiohttp import web

from backstay.core.errors import UsageError
from backstay.practice.bill import Bill
from backstay.practice.counts import Counts
from backstay.practice.faults import OUTAGE_NOW
from backstay.practice.gate import Gate


class Control:
    """Answers also during an outage, and without a key."""

    def __init__(self, gate: Gate, bill: Bill) -> None:
        self._gate = gate
        self._bill = bill

    async def show_bill(self, request: web.Request) -> web.Response:
        summary = request.query.get("summary", "0") not in ("", "0", "false")
        return web.json_response({"calls": self._gate.counts.calls, **self._bill.dump(summary)})

    async def reset_bill(self, request: web.Request) -> web.Response:
        """Begins anew, with the counts."""
        self._bill.clear()
        running = self._gate.counts.running
        self._gate.counts = Counts(self._gate.faults.window_seconds)
        self._gate.counts.running = running
        return await self.show_bill(request)

    async def show_counts(self, request: web.Request) -> web.Response:
        return web.json_response(self._gate.counts.dump())

    async def show_faults(self, request: web.Request) -> web.Response:
        shown = self._gate.faults.dump()
        return web.json_response({**shown, "key": None if shown["key"] is None else "…"})

    async def change_faults(self, request: web.Request) -> web.Response:
        try:
            values = json.loads(await request.read())
            if not isinstance(values, dict):
                raise UsageError("the faults to change are one JSON object")
            self.change(values)
        except (ValueError, TypeError, RecursionError, UsageError) as error:
            hint = getattr(error, "hint", "")
            said = {"message": f"{error}; {hint}" if hint else str(error), "type": "invalid_request_error"}
            return web.json_response({"error": {**said, "param": None, "code": None}}, status=400)
        return await self.show_faults(request)

    def change(self, values: dict[str, Any]) -> None:
        """`outage_seconds` is an outage that begins now."""
        given = dict(values)
        seconds = given.pop(OUTAGE_NOW, None)
        faults = self._gate.faults.changed(given)
        if seconds is not None:
            faults = faults.with_outage(self._gate.elapsed(), seconds)
        self._gate.change(faults)
        self._gate.counts.calls_window.seconds = faults.window_seconds
