"""What workers and services have besides an application's own handlers: a place for files, item logs, the converter."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from backstay.app import Backstay
from backstay.artifacts import Artifacts, artifacts_at
from backstay.client import Client
from backstay.core.errors import UsageError
from backstay.handlers.gateway import NAME, GatewayHandler
from backstay.handlers.handler import Rules
from backstay.observe.item_logs import ItemLogs
from backstay.run.shelf import Shelf
from backstay.run.upkeep import upkeep
from backstay.settings import Settings
from backstay.store.urls import is_postgres


def default_folder(url: str) -> Path:
    """Beside the database's file; a database on a server has no such place."""
    if is_postgres(url):
        raise UsageError(
            "the service needs a place for files",
            hint="name a folder or s3://bucket/prefix with --data or BACKSTAY_DATA",
        )
    return Path(url.removeprefix("sqlite:///")).resolve().with_suffix(".data")


def artifacts_of(app: Backstay) -> Artifacts | None:
    """The place for files of a worker; None where nothing was said of one and nothing needs one."""
    place = app.settings.data
    if place is None and (app.settings.gateway_url or not is_postgres(app.url)):
        folder = default_folder(app.url)
        place = str(folder) if app.settings.gateway_url or folder.is_dir() else None
    return None if place is None else files_at(place, app.settings)


def files_at(place: str, settings: Settings) -> Artifacts:
    """One place for all, but for uploads and results that were given folders of their own."""
    own = {"files": settings.uploads_dir, "results": settings.results_dir}
    return artifacts_at(place, {first: folder for first, folder in own.items() if folder is not None})


@asynccontextmanager
async def equipped(app: Backstay, client: Client, artifacts: Artifacts | None, concurrency: int) -> AsyncIterator[None]:
    """While the block runs, what handlers say is kept, with a gateway's URL there is a handler for it, and alarms and
    dead letters are looked after."""
    async with AsyncExitStack() as stack:
        if artifacts is not None:
            await stack.enter_async_context(ItemLogs(artifacts, client.clock, app.bus))
        url = app.settings.gateway_url
        if artifacts is not None and url is not None and NAME not in app.handlers:
            shelf = Shelf(client.store.files, artifacts, app.settings.file_days)
            handler = GatewayHandler(url, shelf, gateway_rules(app, concurrency), app.settings.upload_max_bytes)
            stack.push_async_callback(handler.close)
            app.handlers.add(handler)
            stack.callback(app.handlers.remove, NAME)
        await stack.enter_async_context(upkeep(client, artifacts, app.settings, app.bus))
        yield


def gateway_rules(app: Backstay, concurrency: int) -> Rules:
    return replace(
        Rules(),
        retry=app.settings.gateway_policy(),
        breaker=app.settings.breaker_policy(),
        timeout_seconds=app.limits.call_timeout_seconds,
        concurrency=concurrency,
    )
