"""The ASGI application: its routes and middlewares, and the background work that starts and ends with the service.

And the server that listens: it takes its port, opens the service, and at the end closes its long streams first.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import backstay
from backstay.app import Backstay
from backstay.artifacts import default_folder, files_at
from backstay.clock import new_id
from backstay.core.errors import BackstayError, UsageError
from backstay.core.signing import Signer
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.webhook_relay import Relay
from backstay.process import enter_when_reachable, equipment, relaying_outboxes, relaying_webhooks, working
from backstay.remote.handler import CallbackTags
from backstay.server import problems
from backstay.server.anthropic import batches as message_batches
from backstay.server.api import items, jobs
from backstay.server.api import routers as api_routers
from backstay.server.api.events import Lookout
from backstay.server.auth import KeyRing
from backstay.server.cache import CoalescedReads, Details, SharedState
from backstay.server.idempotency import Idempotent
from backstay.server.openai import batches
from backstay.server.openai import routers as openai_routers
from backstay.server.openai.mover import moving
from backstay.server.pages import routers as page_routers
from backstay.server.pages.layout import PageMiddleware
from backstay.server.problems import OPENAI_PREFIXES, Problem, problem_of, problem_response
from backstay.server.request_limits import BodyLimits, RateLimit, RateLimitMiddleware
from backstay.server.service import MountableApp, Service, ServiceOptions, remove_disowned_jobs, show_schema
from backstay.settings import key_beside

Show = Callable[[Request, str], Awaitable[Response]]


class Direct:
    """Answers the most frequent requests, GET of one object, without the router."""

    def __init__(self, app: ASGIApp, shown: Mapping[str, Show]) -> None:
        """`shown`: by path, the function that shows the object whose id comes after it."""
        self._app = app
        self._shown = shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, _, name = scope.get("path", "").rpartition("/")
        show = self._shown.get(start)
        if show is None or not name or scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
            return await self._app(scope, receive, send)
        request = Request(scope)
        try:
            answer = await show(request, name)
        except (Problem, BackstayError) as error:
            answer = problem_response(request, problem_of(error))
        return await answer(scope, receive, send)


_SEGMENTS: Final = 2  # /api/jobs, /v1/batches


class Branch(APIRouter):
    """The routes whose paths begin alike, in their order."""

    def __init__(self, start: str, routes: list[BaseRoute]) -> None:
        super().__init__()
        self._start = start
        self.routes.extend(routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope["path"].startswith(self._start):
            return Match.NONE, {}
        return super().matches(scope)


def branches(routers: Iterable[APIRouter], prefix: str = "") -> list[Branch]:
    """The routes of these routers, grouped by the beginning of their paths."""
    grouped: dict[str, list[BaseRoute]] = {}
    for router in routers:
        for route in router.routes:
            grouped.setdefault(_start_of(prefix + getattr(route, "path", "")), []).append(route)
    return [Branch(start, routes) for start, routes in grouped.items()]


def _start_of(path: str) -> str:
    """The first segments of a path that have no parameter."""
    segments = path.split("/")[1:]
    fixed = [segment for segment in segments[: _SEGMENTS + path.startswith("/openai/v1/")] if "{" not in segment]
    return "/" + "/".join(fixed)


def create_app(made: Backstay, options: ServiceOptions) -> FastAPI:
    """The service on the application's database; it opens it when it starts and closes it last."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.service = await _open_service(made, options, stack)
            yield

    app = MountableApp(
        title="Backstay",
        version=backstay.__version__,
        lifespan=life,
        docs_url=None,  # its page would load scripts from other hosts
        redoc_url=None,
        openapi_url=None,  # see show_schema
        redirect_slashes=False,  # it would lead to the host that the client sent
        # Its spans would contain URLs, also the secret ones of callbacks; `Tracing` records ours.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.add_route("/api/openapi.json", show_schema, include_in_schema=False)
    problems.install(app)
    app.add_middleware(Idempotent)
    app.add_middleware(BodyLimits)  # outside Idempotent, which reads bodies too
    shown = {f"{prefix}/batches": batches.show for prefix in OPENAI_PREFIXES}
    app.add_middleware(Direct, shown={"/api/items": items.show_item, "/api/jobs": jobs.show_job, **shown})
    app.add_middleware(RateLimitMiddleware)
    app.add_middleware(RequestIds)
    app.add_middleware(PageMiddleware)
    for branch in branches(api_routers()):
        app.include_router(branch)
    for prefix in OPENAI_PREFIXES:
        for branch in branches([*openai_routers(), message_batches.router], prefix):
            app.include_router(branch, prefix=prefix, include_in_schema=prefix == OPENAI_PREFIXES[0])
    for branch in branches(page_routers()):  # last, because every path begins with the "/" of Home
        app.include_router(branch, include_in_schema=False)
    return app


async def _open_service(made: Backstay, options: ServiceOptions, stack: AsyncExitStack) -> Service:
    client = await made.open()
    stack.push_async_callback(made.close)
    place = made.settings.data or str(default_folder(made.url))
    settings, clock = made.settings, client.clock
    shared = SharedState(settings.redis_url, clock) if settings.redis_url else None
    if shared is not None:
        stack.push_async_callback(shared.close)
    artifacts = files_at(place, settings)  # which creates the folder of the key
    signer = Signer(settings.secret_key or _own_key(place))
    outgoing = Outgoing(settings.inside_hosts)
    stack.push_async_callback(outgoing.close)
    service = Service(
        backstay=made,
        options=options,
        main=client,
        artifacts=artifacts,
        signer=signer,
        seals=CallbackTags(signer, client.store.inbox, clock),
        ring=KeyRing(client.store.keys, clock),
        shared=shared,
        details=Details(signer, shared, settings.cache_seconds),
        rate_limit=RateLimit(clock, settings.rate_limit_per_minute, shared),
        lookout=Lookout(client.store, clock),
        reads=CoalescedReads(client.store),
        outgoing=outgoing,
        relay=Relay(client.store.webhooks, outgoing, signer, clock, made.bus),
    )
    await _start_background_work(service, stack)
    return service


async def _start_background_work(service: Service, stack: AsyncExitStack) -> None:
    """Background work of the service, in the order of its dependencies."""
    made, client, options, enter = service.backstay, service.main, service.options, stack.enter_async_context
    await enter(relaying_webhooks(client, service.relay))
    parts = equipment(
        made,
        client,
        options.concurrency,
        works=options.works,
        artifacts=service.artifacts,
        remote=(service.seals, service.outgoing),
    )
    equipped = await enter(parts)
    await enter(moving(service))  # before the worker, which announces its handlers at its start
    if options.works:
        worker = await enter(working(made, client, equipped))
        service.wake = worker.wake
    else:
        await enter(relaying_outboxes(made, client, equipped.broker, None))
    stack.push_async_callback(service.tasks.stop)
    service.tasks.spawn(remove_disowned_jobs(service))


def _own_key(place: str) -> str:
    if place.startswith("s3://"):
        raise UsageError("the service needs a secret key", hint="set BACKSTAY_SECRET_KEY to 32 characters or more")
    return key_beside(Path(place))


class RequestIds:
    """Gives every answer a request id, and answers errors that occur before a route is reached."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._life = new_id()[:16]
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                name = f"req_{self._life}{next(self._numbers):08x}"
                header = b"request-id" if problems.is_for_messages(scope["path"]) else b"x-request-id"
                message["headers"] = [*message["headers"], (header, name.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except BackstayError as error:  # an unreachable database is not logged again for every request
            if begun:
                raise
            await problems.problem_response(Request(scope), problems.problem_of(error))(scope, receive, send_with_id)


HEAD_BYTES_MAX: Final = 64 << 10
HEAD_SECONDS: Final = 30.0


class BoundedHeads(HttpToolsProtocol):
    """One connection, with limits for the size and time of a head. Bodies are limited where they are read."""

    _head_bytes = 0  # received since the parser last made progress
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The headers of the request are too long.")

    def _wait(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def server_config(app: ASGIApp, trusted_proxies: str, **more: Any) -> uvicorn.Config:
    """How the service listens. A client's address is that of its connection. X-Forwarded headers are trusted only from
    proxies that an operator has named, because anyone could write them."""
    return uvicorn.Config(
        app,
        http=BoundedHeads,
        log_config=None,  # uvicorn's messages become log lines like ours
        log_level="warning",
        access_log=False,
        server_header=False,
        forwarded_allow_ips=_networks(trusted_proxies),
        **more,
    )


def _networks(text: str) -> list[str]:
    named = [part.strip() for part in text.split(",") if part.strip()]
    for one in named:
        try:
            ip_network(one)
        except ValueError:
            hint = "write proxies like 127.0.0.1 or 10.0.0.0/8, separated by commas"
            raise UsageError(f"trusted_proxies: {one[:60]!r} is not an address or a network", hint=hint) from None
    return named


class ServiceServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI, made: Backstay, started: Callable[[], None]) -> None:
        """Starts and stops the application itself (`lifespan="off"`), so that `serve` raises an error of the start."""
        super().__init__(config)
        self._app = app
        self._made = made
        self._started = started
        self._starting: asyncio.Task[object] | None = None
        self._life = AsyncExitStack()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._starting = asyncio.current_task()
        assert self._starting is not None
        try:
            await enter_when_reachable(self._life, self._made, lambda: self._app.router.lifespan_context(self._app))
        except asyncio.CancelledError:
            if not self.should_exit:
                raise
            self._starting.uncancel()
            return  # nothing has started that would have to end
        finally:
            self._starting = None
        try:
            await super().startup(sockets)
        except BaseException:
            await self._life.aclose()
            raise
        self._started()

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if (starting := self._starting) is not None:
            starting.get_loop().call_soon_threadsafe(starting.cancel)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.service.lookout.close()
        await super().shutdown(sockets)
        await self._life.aclose()


def take_port(host: str, port: int) -> list[socket.socket]:
    """Sockets at all addresses of a host, so that a port in use is found before anything else starts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise UsageError(f"the host {host!r} has no address to listen on", hint="check --host") from None
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        made = socket.socket(family, kind, protocol)
        sockets.append(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            made.bind((address[0], port, *address[2:]))
        except OSError as error:
            for one in sockets:
                one.close()
            raise _listen_error(host, port, error) from None
        port = made.getsockname()[1]
    return sockets


def _listen_error(host: str, port: int, error: OSError) -> UsageError:
    match error.errno:
        case errno.EADDRINUSE:
            return UsageError(
                f"port {port} of {host} is in use", hint="stop the program that uses it, or choose another --port"
            )
        case errno.EACCES:
            return UsageError(f"port {port} needs special permissions", hint="choose a --port above 1023")
        case errno.EADDRNOTAVAIL:
            return UsageError(f"this machine has no address {host}", hint="--host 0.0.0.0 listens on all addresses")
        case _:
            return UsageError(
                f"cannot listen on port {port} of {host}: {error.strerror}", hint="check --host and --port"
            )
