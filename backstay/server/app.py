"""The ASGI application: its routes and middlewares, and the background work that starts and ends with the service."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import backstay
from backstay.app import Backstay
from backstay.artifacts import default_folder, files_at
from backstay.clock import new_id
from backstay.core.errors import BackstayError, UsageError
from backstay.handlers.outgoing import Outgoing
from backstay.process import equipment, relaying_outboxes, relaying_webhooks, working
from backstay.remote.handler import CallbackTags
from backstay.server import problems
from backstay.server.anthropic import batches as message_batches
from backstay.server.api import items, jobs
from backstay.server.api import routers as api_routers
from backstay.server.api.events import Lookout
from backstay.server.auth import KeyRing
from backstay.server.cache import CoalescedReads, Details, SharedState
from backstay.server.idempotency import Idempotent
from backstay.server.job_control import remove_disowned_jobs
from backstay.server.openai import batches
from backstay.server.openai import routers as openai_routers
from backstay.server.openai.mover import moving
from backstay.server.pages import routers as page_routers
from backstay.server.pages.layout import PageMiddleware
from backstay.server.problems import OPENAI_PREFIXES, Problem, problem_of, problem_response
from backstay.server.ratelimit import RateLimit, RateLimitMiddleware
from backstay.server.request_bodies import BodyLimits
from backstay.server.service import MountableApp, Service, ServiceOptions, show_schema
from backstay.signing import Signer, key_beside
from backstay.webhooks import Relay

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
