"""Rate limits: requests per key and minute, counted in Redis for all processes, or in this process without Redis."""

from typing import Final

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.clock import Clock
from backstay.server.auth import principal
from backstay.server.cache import SharedState
from backstay.server.problems import OPENAI_PATHS, Problem, problem_response
from backstay.server.service import service_of

WINDOW_SECONDS: Final = 60
COUNTED_HERE_MAX: Final = 100_000  # names in one minute; more are counted together
CALLBACKS: Final = "/callbacks/"
PATHS: Final = ("/api/", CALLBACKS, *OPENAI_PATHS)
_THE_REST: Final = "the rest"


class RateLimit:
    """One count for each name and minute."""

    def __init__(self, clock: Clock, per_minute: int, shared: SharedState | None = None) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._shared = shared
        self._window = 0
        self._here: dict[str, int] = {}

    async def hit(self, name: str) -> tuple[int, int]:
        """How many requests the name has left after this one (below 0: this one was too many), and the
        seconds until the next window."""
        now = self._clock.now_ms() // 1000
        window = now // WINDOW_SECONDS
        here = self._count_here(name, window)
        found = None
        if self._shared is not None:
            found = await self._shared.count(f"rate:{name}:{window}", 2 * WINDOW_SECONDS)
        # The local count also applies if Redis has lost its own.
        return self.per_minute - max(here, found or 0), WINDOW_SECONDS - now % WINDOW_SECONDS

    def _count_here(self, name: str, window: int) -> int:
        if window != self._window:
            self._window = window
            self._here = {}
        if name not in self._here and len(self._here) >= COUNTED_HERE_MAX:
            name = _THE_REST
        self._here[name] = counted = self._here.get(name, 0) + 1
        return counted


class RateLimitMiddleware:
    """Counts each request before anything is done for it, and adds the remaining number to its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATHS):
            return await self._app(scope, receive, send)
        request = Request(scope)
        limit = service_of(request).rate_limit
        left, reset = await limit.hit(await _counter_name(request))
        headers = {
            "ratelimit-policy": f'"requests";q={limit.per_minute};w={WINDOW_SECONDS}',
            "ratelimit": f'"requests";r={max(left, 0)};t={reset}',
        }
        if left < 0:
            await problem_response(request, _too_many(limit.per_minute, {**headers, "retry-after": str(reset)}))(
                scope, receive, send
            )
            return None
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *raw]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _too_many(per_minute: int, headers: dict[str, str]) -> Problem:
    why = f"rate limit exceeded: more than {per_minute:,} requests in a minute"
    return Problem(429, why, hint="wait for the seconds in Retry-After", headers=headers, label="rate_limit_exceeded")


def address_counter(request: Request, what: str) -> str:
    """The count of an address, one for each purpose: guesses of keys do not use up the logins of the same address."""
    return f"{what}:{request.client.host if request.client else ''}"


async def _counter_name(request: Request) -> str:
    """One counter for each key. Requests without a valid key share that of their address, which limits guessing."""
    if request.url.path.startswith(CALLBACKS):
        return address_counter(request, "callbacks")
    try:
        found = await principal(request)
    except Problem:
        return address_counter(request, "keys")
    return f"key:{found.key_id}" if found.key_id else f"here:{found.owner}"
