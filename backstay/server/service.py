"""`Service`: everything that routes need. And the application class, which can be mounted below a path; and
the cancelling and removal of jobs on request.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from backstay.app import Backstay
from backstay.artifacts import Artifacts
from backstay.client import Client
from backstay.clock import Tasks
from backstay.core.signing import Signer
from backstay.handlers.outgoing import Outgoing
from backstay.llm.endpoint import Endpoint
from backstay.remote.handler import CallbackTags
from backstay.run.submission import ProviderTerms
from backstay.store.store import Store

if TYPE_CHECKING:
    from backstay.messaging.webhook_relay import Relay
    from backstay.server.api.events import Lookout
    from backstay.server.auth import KeyRing
    from backstay.server.cache import CoalescedReads, Details, SharedState
    from backstay.server.openai.batches import AdoptionProgress
    from backstay.server.openai.upstream import ModelLists
    from backstay.server.request_limits import RateLimit
from contextlib import suppress

from backstay.client import end_waiting_items
from backstay.core.errors import BackstayError, NotAllowed, NotFound
from backstay.core.events import Trouble
from backstay.upkeep.loop import delete_artifacts

_KEY: Final = "backstay.root"
_COOKIE_PATH: Final = re.compile(rb"(?i)\bpath=/(?=;|$)")


def root_of(request: Request) -> str:
    """The prefix of every path in a link: empty, or for example "/backstay"."""
    return str(request.scope.get(_KEY, ""))


async def show_schema(request: Request) -> JSONResponse:
    """The OpenAPI document with the prefix, which FastAPI's own route would not know."""
    root = root_of(request)
    return JSONResponse(request.app.openapi() | ({"servers": [{"url": root}]} if root else {}))


class MountableApp(FastAPI):
    """Can be mounted: `app.mount("/backstay", service)`."""

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "").rstrip("/")
        if not root or scope["type"] != "http":
            return await super().__call__(scope, receive, send)

        async def send_below(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [_below(root, *header) for header in message["headers"]]}
            await send(message)

        await super().__call__(_without(root, scope), receive, send_below)


def _without(root: str, scope: Scope) -> dict[str, Any]:
    path = scope["path"]
    inner = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path
    kept = {name: value for name, value in scope.items() if name != "raw_path"}  # it is optional, and has the prefix
    return {**kept, "path": inner or "/", "root_path": "", _KEY: quote(root)}


def _below(root: str, name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A header of an answer, as seen from outside."""
    start = quote(root).encode()
    match name.lower():
        case b"location" if value.startswith(b"/") and not value.startswith(b"//"):
            return name, start + value
        case b"link" if value.startswith(b"</"):
            return name, b"<" + start + value[1:]
        case b"set-cookie":
            return name, _COOKIE_PATH.sub(b"Path=" + start, value)
    return name, value


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service was started."""

    open_here: bool = False  # from this machine no key is needed
    strict_openai: bool = False  # refuse what OpenAI refuses
    upstream: Endpoint | None = None  # for the requests of batches; further providers are in its `beside`
    concurrency: int = 100  # concurrent calls to each provider
    terms: Mapping[str, ProviderTerms] = field(default_factory=dict)  # by provider: how fast, and for how much
    budget_micros: int | None = None  # of each batch
    output_tokens_default: int | None = None  # for requests that set no limit themselves
    replays: bool = True  # a batch request that a client repeats returns the existing batch
    lines_max: int = 10_000_000  # of one batch
    works: bool = True  # run a worker in this process


@dataclass(slots=True)
class Service:
    backstay: Backstay
    options: ServiceOptions
    main: Client
    artifacts: Artifacts
    signer: Signer
    seals: CallbackTags  # tags of requests to remote workers, which callbacks bring back
    ring: "KeyRing"
    shared: "SharedState | None"  # Redis, when it is configured
    details: "Details"
    rate_limit: "RateLimit"
    lookout: "Lookout"  # reads jobs and items that clients watch
    reads: "CoalescedReads"  # of single jobs, items and batches
    outgoing: Outgoing  # requests to URLs that users gave
    relay: "Relay"
    wake: Callable[[], None] = field(default=lambda: None)
    wake_mover: Callable[[], None] = field(default=lambda: None)  # a batch can be moved on
    adoption_progress: "dict[str, AdoptionProgress]" = field(default_factory=dict)  # by owner
    tasks: Tasks = field(default_factory=Tasks)  # work that continues after its request was answered
    kept_models: "tuple[float, ModelLists] | None" = None  # when asked for, and what was listed

    @property
    def store(self) -> Store:
        return self.main.store

    @property
    def owner(self) -> str:
        """The owner whose work the commands on this database run."""
        return self.main.owner

    def client(self, owner: str) -> Client:
        """A client for the data of one owner only."""
        return Client(self.store, owner, self.backstay.limits, self.main.clock, self.backstay.bus)


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def _service_dependency(request: Request) -> Service:
    """Async, because FastAPI would run a plain function in a thread."""
    return service_of(request)


Serving = Annotated[Service, Depends(_service_dependency)]


CHUNKS_AT_ONCE: Final = 5


async def cancel_job(service: Service, job_id: int, owner: str) -> None:
    """Marks the job as cancelled, which is final, and ends its waiting items."""
    await service.store.jobs.cancel(job_id, owner)
    for _ in range(CHUNKS_AT_ONCE):
        if not await end_waiting_items(service.main, job_id):
            return
    service.tasks.spawn(_end_waiting_in_background(service, job_id))


async def end_waiting(service: Service, job_id: int) -> None:
    """Ends all waiting items of a job that was stopped."""
    while await end_waiting_items(service.main, job_id):
        pass


async def stop_job(service: Service, job_id: int, owner: str) -> None:
    """Only marks the job as cancelled, if it has not ended; its items end later."""
    with suppress(NotAllowed, NotFound):  # it was cancelled before, or has just ended
        await service.store.jobs.cancel(job_id, owner)


async def _end_waiting_in_background(service: Service, job_id: int) -> None:
    """If this stops half-way, the sweeps of the workers end the rest."""
    try:
        await end_waiting(service, job_id)
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("cancel", str(error)))


ITEMS_AT_ONCE: Final = 10_000


async def remove_job(service: Service, job_id: int, owner: str) -> None:
    items = await service.store.jobs.disown(job_id, owner)
    if items <= ITEMS_AT_ONCE:
        await _delete_rows_and_files(service, job_id)
    else:
        service.tasks.spawn(remove_disowned_jobs(service))


async def remove_disowned_jobs(service: Service) -> None:
    """Finishes removals that a dead process had begun."""
    try:
        while left := await service.store.jobs.disowned_jobs():
            for job_id in left:
                await _delete_rows_and_files(service, job_id)
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("removal", str(error)))


async def _delete_rows_and_files(service: Service, job_id: int) -> None:
    await delete_artifacts(service.store, service.artifacts, service.main.clock, job_id)
    await service.store.jobs.purge(job_id)


async def drop_blobs(service: Service) -> int:
    """Deletes the bytes of deleted and expired files; returns how many files that were."""
    idle = await service.store.files.idle_blobs()
    for file_id, blob in idle:
        await service.artifacts.delete(blob)
        await service.store.files.forget_blob(file_id)
    return len(idle)
