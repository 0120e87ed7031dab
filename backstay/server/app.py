"""The application: routes, and what lives and ends with the service."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import backstay
from backstay.app import Backstay
from backstay.artifacts import artifacts_at
from backstay.clock import new_id
from backstay.core.errors import UsageError
from backstay.run.serving import serving
from backstay.server import problems
from backstay.server.api import routers as api_routers
from backstay.server.auth import KeyRing
from backstay.server.openai import routers as openai_routers
from backstay.server.service import Options, Service
from backstay.server.signing import Signer, key_beside
from backstay.store.urls import is_postgres

# OpenAI's client calls the first; Azure's the others.
OPENAI_PREFIXES: Final = ("/v1", "/openai/v1", "/openai")


def create_app(made: Backstay, options: Options) -> FastAPI:
    """The service on the application's database; it opens it when it starts and closes it last."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.service = await _opened(made, options, stack)
            yield

    app = FastAPI(
        title="Backstay",
        version=backstay.__version__,
        lifespan=life,
        docs_url="/api/docs",
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    problems.install(app)
    app.add_middleware(Named)
    for router in api_routers():
        app.include_router(router)
    for prefix in OPENAI_PREFIXES:
        for router in openai_routers():
            app.include_router(router, prefix=prefix, include_in_schema=prefix == OPENAI_PREFIXES[0])
    return app


async def _opened(made: Backstay, options: Options, stack: AsyncExitStack) -> Service:
    client = await made.open()
    stack.push_async_callback(made.close)
    place = made.settings.data or str(default_folder(made.url))
    service = Service(
        backstay=made,
        options=options,
        main=client,
        artifacts=artifacts_at(place),
        signer=Signer(made.settings.secret_key or _own_key(place)),
        ring=KeyRing(client.store.keys, client.clock),
    )
    if options.works:
        slots = await stack.enter_async_context(serving(made, client, options.concurrency))
        worker = await stack.enter_async_context(made.working(slots))
        service.wake = worker.wake
    return service


def default_folder(url: str) -> Path:
    """Beside the database's file; a database on a server has no such place."""
    if is_postgres(url):
        raise UsageError(
            "the service needs a place for files", hint="set BACKSTAY_DATA to a folder or s3://bucket/prefix"
        )
    return Path(url.removeprefix("sqlite:///")).resolve().with_suffix(".data")


def _own_key(place: str) -> str:
    if place.startswith("s3://"):
        raise UsageError("the service needs a secret key", hint="set BACKSTAY_SECRET_KEY to 32 characters or more")
    return key_beside(Path(place))


class Named:
    """Gives every answer a name by which a person can ask about it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", f"req_{new_id()}".encode())]
            await send(message)

        await self._app(scope, receive, named)
