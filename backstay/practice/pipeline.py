"""The steps of every request, at every imitated API: outage, key, fault, limits, latency, charge and delivery."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from backstay.clock import Clock, new_incarnation
from backstay.practice.bill import Bill, Counts, SlidingWindow
from backstay.practice.faults import (
    FAULT_HEADER,
    NOT_DELIVERED,
    NOT_DONE,
    OUTAGE_NOW,
    AnyFault,
    DeliveryFault,
    Faults,
    RequestedFault,
    draw_fault,
    fault_name,
    parse_fault,
)
from backstay.practice.replies import (
    EMPTY_REPLY,
    ConnectionCut,
    ErrorReason,
    GeneratedReply,
    PracticeReply,
    ProviderError,
    ReplyStamp,
    cut_connection,
    error_of_fault,
    quota_error,
    send_reply,
    spoil_usage,
)

UnpaidWork = Callable[[web.Request], Awaitable[PracticeReply]]
FaultyWork = Callable[[web.Request], Awaitable[tuple[PracticeReply, AnyFault | None]]]
Route = Callable[[web.Request], Awaitable[web.StreamResponse]]


def by_header(name: str, route: Route, otherwise: Route) -> Route:
    """Two APIs have the same path: the route of the one whose clients send this header, or that of the other."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await (route if name in request.headers else otherwise)(request)

    return answer


class LimitKind(StrEnum):
    REQUESTS = "requests"
    TOKENS = "tokens"


class LimitUse(NamedTuple):
    """The limits that are set, how much of them is used, and which one, if any, a request would exceed."""

    limits: dict[LimitKind, int]
    used: dict[LimitKind, int]
    reset_seconds: float
    exceeded: LimitKind | None = None
    wait_seconds: float = 0.0


class RateLimits:
    """Requests and tokens per minute. A refused request does not count."""

    def __init__(self) -> None:
        self._window = SlidingWindow()

    def admit(self, now: float, tokens: int, faults: Faults) -> LimitUse | None:
        """Counts a request if the limits allow it. None: there are no limits."""
        if faults.rpm is None and faults.tpm is None:
            return None
        window = self._window
        window.seconds = faults.window_seconds
        window.forget(now)
        requests_over = _excess(window.requests + 1, faults.rpm)
        tokens_over = _excess(window.tokens + tokens, faults.tpm)
        if requests_over or tokens_over:
            wait = window.frees_in(now, requests_over, tokens_over) or faults.window_seconds
            exceeded = LimitKind.REQUESTS if requests_over else LimitKind.TOKENS
            return self._use(now, faults)._replace(exceeded=exceeded, wait_seconds=wait)
        window.add(now, tokens)
        return self._use(now, faults)

    def _use(self, now: float, faults: Faults) -> LimitUse:
        window = self._window
        set_limits = ((LimitKind.REQUESTS, faults.rpm), (LimitKind.TOKENS, faults.tpm))
        limits = {kind: limit for kind, limit in set_limits if limit is not None}
        used = {LimitKind.REQUESTS: window.requests, LimitKind.TOKENS: window.tokens}
        return LimitUse(limits, used, window.frees_in(now))


def _excess(used: int, limit: int | None) -> int:
    return 0 if limit is None else max(used - limit, 0)


class PaidCall(NamedTuple):
    """A request that costs money. Its digest is the same for a direct call, in the background and in a batch."""

    url: str
    body: dict[str, Any]
    ref: str
    digest: str
    requested: RequestedFault | None


class ApiFormat(Protocol):
    """How one API writes keys, request ids, errors and rate limits."""

    def api_key(self, headers: Mapping[str, str]) -> str | None: ...

    def id_headers(self, mark: str) -> Mapping[str, str]: ...

    def error_reply(self, error: ProviderError) -> PracticeReply: ...

    def limit_headers(self, use: LimitUse) -> Mapping[str, str]: ...

    def limit_error(self, use: LimitUse) -> ProviderError: ...


class PaidApi(Protocol):
    """The part of a paid call that differs between APIs: reads it, writes the answer, and keeps the result if the call
    asks for it."""

    def read_call(self, request: web.Request, raw: bytes) -> PaidCall: ...

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply: ...

    def finish(self, call: PaidCall, made: GeneratedReply, charge: Callable[[], None]) -> PracticeReply: ...


class ChosenFault(NamedTuple):
    """The fault of one request, and the chance that also decides its latency."""

    fault: AnyFault | None = None
    rng: Random | None = None


class ProviderState:
    """The faults as they are set now, and everything that all imitated APIs share: clock, counts, bill and quota."""

    def __init__(self, faults: Faults, clock: Clock, bill: Bill) -> None:
        self._set_faults(faults)
        self.clock = clock
        self.bill = bill
        self.counts = Counts(faults.window_seconds)
        self.started_at = clock.monotonic()
        self.running_calls = 0
        self._incarnation = new_incarnation()[:6]
        self._marks = 0
        self._arrivals: Counter[str] = Counter()

    def _set_faults(self, faults: Faults) -> None:
        self.faults = faults
        self._is_random = faults.is_random

    def change(self, values: Mapping[str, Any]) -> None:
        """Other faults from now on; `outage_seconds` is an outage that begins now."""
        given = dict(values)
        seconds = given.pop(OUTAGE_NOW, None)
        faults = self.faults.with_changes(given)
        if seconds is not None:
            faults = faults.with_outage(self.seconds_since_start(), seconds)
        self._set_faults(faults)
        self.counts.calls_window.seconds = faults.window_seconds

    def reset_bill(self) -> None:
        """Starts a new bill and new counts."""
        self.bill.clear()
        running = self.counts.running
        self.counts = Counts(self.faults.window_seconds)
        self.counts.running = running

    def mark(self) -> str:
        """Unique, also among restarts of the provider."""
        self._marks += 1
        return f"{self._incarnation}{self._marks:08x}"

    def now_seconds(self) -> int:
        return self.clock.now_ms() // 1000

    def seconds_since_start(self) -> float:
        return self.clock.monotonic() - self.started_at

    def stamp(self, fault: AnyFault | None) -> ReplyStamp:
        return ReplyStamp(self.mark(), self.now_seconds(), self.faults.answer_tokens, fault)

    def choose_fault(self, key: str, requested: RequestedFault | None) -> ChosenFault:
        """The fault that a request asks for, or a random one, which depends on the request's content (`key`) and on how
        often it has arrived, never on the order of requests."""
        if requested is None and not self._is_random:
            return ChosenFault()
        self._arrivals[key] += 1
        arrival = self._arrivals[key]
        rng = Random(f"{self.faults.seed} {key} {arrival}")
        return ChosenFault(draw_fault(self.faults, rng) if requested is None else requested.on_arrival(arrival), rng)

    def error_of(self, fault: AnyFault | None) -> ProviderError | None:
        return error_of_fault(fault, self.faults, self.clock.now_ms())

    def require_quota(self) -> None:
        quota = self.faults.quota
        if quota is not None and self.bill.charged + self.running_calls >= quota:
            raise quota_error()

    def charge(self, call: PaidCall, made: GeneratedReply, halved: bool = False) -> None:
        if not made.free:
            self.bill.charge(call.ref, call.digest, made.input_tokens, made.output_tokens, halved)


class Pipeline:
    """Makes routes of an API's work: each request passes all the steps before and after that work."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state
        self._limits = RateLimits()
        self._slots: asyncio.Semaphore | None = None
        self._slots_size: int | None = None

    def route(self, api: ApiFormat, work: FaultyWork) -> Route:
        """Counts a request, does its work, and sends the reply as the request's fault wants it."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._state.counts.arrive()
            try:
                try:
                    self._check_access(request, api)
                    reply, fault = await work(request)
                except ProviderError as error:
                    reply, fault = api.error_reply(error), None
                except ConnectionCut:
                    reply, fault = EMPTY_REPLY, DeliveryFault.CUT
                return await self._send(request, api, reply, fault)
            except ConnectionError:
                return cut_connection(request)  # the client has gone, so nobody can receive an error
            finally:
                self._state.counts.leave()

        return answer

    def unpaid_route(self, api: ApiFormat, work: UnpaidWork) -> Route:
        """For everything that costs nothing: files, batches, look-ups."""

        async def work_with_fault(request: web.Request) -> tuple[PracticeReply, AnyFault | None]:
            chosen = self.choose_fault(request, f"{request.method} {request.path_qs}")
            await self.delay_or_refuse(chosen)
            return (EMPTY_REPLY if chosen.fault in NOT_DONE else await work(request)), chosen.fault

        return self.route(api, work_with_fault)

    def paid_route(self, api: ApiFormat, calls: PaidApi) -> Route:
        """For calls that cost money. They go on when the client hangs up: a real provider would charge for them too."""
        state = self._state

        async def work_with_fault(request: web.Request) -> tuple[PracticeReply, AnyFault | None]:
            call = calls.read_call(request, await request.read())
            chosen = self.choose_fault(request, call.digest, call.requested)
            made = spoil_usage(calls.generate(call, state.stamp(chosen.fault)), chosen.fault)
            headers = self._admit(api, made)
            state.running_calls += 1
            try:
                await self.delay_or_refuse(chosen, headers)
                if chosen.fault in NOT_DONE:
                    return EMPTY_REPLY, chosen.fault
                reply = calls.finish(call, made, lambda: state.charge(call, made))
                return reply._replace(headers={**reply.headers, **headers}), chosen.fault
            finally:
                state.running_calls -= 1

        return self.route(api, work_with_fault)

    def choose_fault(self, request: web.Request, key: str, requested: RequestedFault | None = None) -> ChosenFault:
        """The header decides before everything else in a request."""
        if (named := request.headers.get(FAULT_HEADER)) is not None:
            requested = parse_fault(named)
            if requested is None:
                message = f"There is no fault '{named}' to practise."
                raise ProviderError(400, message, ErrorReason.UNKNOWN_FAULT)
        return self._state.choose_fault(key, requested)

    async def delay_or_refuse(self, chosen: ChosenFault, headers: Mapping[str, str] | None = None) -> None:
        """Waits as long as a call takes, then raises the error that the fault asks for, with these headers."""
        error = None
        if chosen.fault is not None:
            self._state.counts.faults[fault_name(chosen.fault)] += 1
            error = self._state.error_of(chosen.fault)
        if error is not None:
            error.headers = {**(headers or {}), **error.headers}
            if error.status == 429:
                raise error  # a client that sends too much is refused at once
        await self._wait_latency(chosen.rng)
        if error is not None:
            raise error

    def _check_access(self, request: web.Request, api: ApiFormat) -> None:
        state, faults = self._state, self._state.faults
        if faults.outage and faults.is_out(state.seconds_since_start()):
            state.counts.faults["outage"] += 1
            if state.counts.requests % 2:
                raise ConnectionCut
            raise ProviderError(503, "The practice provider is down.", ErrorReason.OUTAGE)
        if faults.key is not None and api.api_key(request.headers) != faults.key:
            raise ProviderError(401, "Incorrect API key provided.", ErrorReason.KEY)

    def _admit(self, api: ApiFormat, made: GeneratedReply) -> Mapping[str, str]:
        """Counts a call against the quota and the rate limits, and returns the headers that tell how much is left."""
        state = self._state
        now = state.clock.monotonic()
        state.counts.add_call(now, made.reserved_tokens)
        state.require_quota()
        use = self._limits.admit(now, made.reserved_tokens, state.faults)
        if use is None:
            return {}
        if use.exceeded is not None:
            state.counts.limited += 1
            raise api.limit_error(use)
        return api.limit_headers(use)

    async def _wait_latency(self, rng: Random | None) -> None:
        """In line with other calls if the number of calls at once is limited."""
        latency = self._state.faults.latency
        wait = latency * (0.5 + rng.random()) if latency and rng is not None else 0.0
        slots = self._free_slots()
        if slots is not None:
            async with slots:
                await self._state.clock.sleep(wait)
        elif wait:
            await self._state.clock.sleep(wait)

    def _free_slots(self) -> asyncio.Semaphore | None:
        if self._state.faults.concurrency != self._slots_size:
            self._slots_size = self._state.faults.concurrency
            self._slots = asyncio.Semaphore(self._slots_size) if self._slots_size else None
        return self._slots

    async def _send(
        self, request: web.Request, api: ApiFormat, reply: PracticeReply, fault: AnyFault | None
    ) -> web.StreamResponse:
        state = self._state
        marked = reply._replace(headers={**reply.headers, **api.id_headers(state.mark())})
        if fault not in NOT_DELIVERED:
            state.counts.statuses[reply.status] += 1
        return await send_reply(request, marked, fault, state.faults, state.clock)
