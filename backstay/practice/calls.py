"""Calls that are paid for: counted, limited, answered, and put on the bill when they are done."""

from aiohttp import web

from backstay.practice.background import Background
from backstay.practice.bill import Bill
from backstay.practice.bodies import Call, call_of, read_object
from backstay.practice.endpoints import CHAT, RESPONSES, generate
from backstay.practice.gate import NOTHING, Fate, Gate
from backstay.practice.generated import Generated, Stamp
from backstay.practice.limits import RateLimits
from backstay.practice.mishaps import UNDONE, out_of_quota
from backstay.practice.refusals import Refused, Reply
from backstay.practice.stored import Stored


class Calls:
    def __init__(self, gate: Gate, bill: Bill, stored: Stored, background: Background) -> None:
        self._gate = gate
        self._bill = bill
        self._stored = stored
        self._background = background
        self._limits = RateLimits()
        self._running = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Never stops half-way when the client hangs up: a real provider would charge for it all the same."""
        return await self._gate.attend(request, self._meet)

    async def _meet(self, request: web.Request) -> tuple[Reply, str]:
        gate, path = self._gate, request.path
        gate.enter(request)
        call = call_of(path, read_object(await request.read()), request.headers)
        fate = gate.fate(call.digest, call.body, request.headers)
        made = generate(path, call.body, self.stamp(fate.mishap))
        headers = self._admit(made)
        self._running += 1
        try:
            await self._suffer(fate, headers)
            if fate.mishap in UNDONE:
                return NOTHING, fate.mishap
            reply = self._finish(path, call, made)
            return reply._replace(headers={**reply.headers, **headers}), fate.mishap
        finally:
            self._running -= 1

    def stamp(self, mishap: str) -> Stamp:
        gate = self._gate
        return Stamp(gate.mark(), gate.clock.now_ms() // 1000, gate.faults.answer_tokens, mishap)

    def require_quota(self) -> None:
        quota = self._gate.faults.quota
        if quota is not None and self._bill.charged + self._running >= quota:
            raise out_of_quota()

    def _admit(self, made: Generated) -> dict[str, str]:
        gate = self._gate
        now = gate.clock.monotonic()
        gate.counts.call(now, made.reserved_tokens)
        self.require_quota()
        try:
            return self._limits.admit(now, made.reserved_tokens, gate.faults)
        except Refused:
            gate.counts.limited += 1
            raise

    async def _suffer(self, fate: Fate, headers: dict[str, str]) -> None:
        """Refusals tell how much is left, too."""
        try:
            await self._gate.suffer(fate)
        except Refused as refused:
            refused.headers = {**headers, **refused.headers}
            raise

    def _finish(self, path: str, call: Call, made: Generated) -> Reply:
        body = call.body
        if path == RESPONSES and body.get("background"):
            return self._background.begin(made, lambda: self._charge(call, made), streams=bool(body.get("stream")))
        self._charge(call, made)
        if body.get("store") is True:
            if path == CHAT:
                self._stored.add(made.text, body)
            elif path == RESPONSES:
                self._background.keep(made)
        return Reply(200, made.text.encode())

    def _charge(self, call: Call, made: Generated) -> None:
        if not made.free:
            self._bill.charge(call.ref, call.digest, made.input_tokens, made.output_tokens)
