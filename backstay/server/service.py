"""What the routes work with: one service on one database."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Request

from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import Tasks
from backstay.files.artifacts import Artifacts
from backstay.handlers.outgoing import Outgoing
from backstay.llm.endpoint import Endpoint
from backstay.remote.handler import CallbackTags
from backstay.signing import Signer
from backstay.store.store import Store

if TYPE_CHECKING:
    from backstay.server.auth import KeyRing
    from backstay.server.cache import CoalescedReads, Details
    from backstay.server.events import Lookout
    from backstay.server.openai.adoption import Looked
    from backstay.server.ratelimit import RateLimit
    from backstay.server.shared_state import SharedState
    from backstay.webhooks import Relay


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service was started."""

    open_here: bool = False  # from this machine no key is needed
    strict_openai: bool = False  # refuse what OpenAI refuses
    upstream: Endpoint | None = None  # where the requests of batches go
    concurrency: int = 100  # calls at once to it
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget_micros: int | None = None  # of each batch
    output_tokens_default: int | None = None  # what a request may answer that sets no bound itself
    replays: bool = True  # a request that OpenAI's client sent again is the batch that it made before
    lines_max: int = 10_000_000  # of one batch
    works: bool = True  # items are done here as well


@dataclass(slots=True)
class Service:
    backstay: Backstay
    options: ServiceOptions
    main: Client
    artifacts: Artifacts
    signer: Signer
    seals: CallbackTags  # of what goes to remote workers and comes back
    ring: "KeyRing"
    shared: "SharedState | None"  # Redis, when it is configured
    details: "Details"
    rate_limit: "RateLimit"
    lookout: "Lookout"  # for those who watch jobs and items
    seen: "CoalescedReads"  # for those who ask
    outgoing: Outgoing  # to URLs that other people gave
    relay: "Relay"
    wake: Callable[[], None] = field(default=lambda: None)
    wake_mover: Callable[[], None] = field(default=lambda: None)  # a batch can be moved on
    looked_for_runs: "dict[str, Looked]" = field(default_factory=dict)  # by owner
    tasks: Tasks = field(default_factory=Tasks)  # work that continues after its request was answered
    kept_models: tuple[float, list[dict[str, Any]] | None] | None = None  # when asked for, and what was listed

    @property
    def store(self) -> Store:
        return self.main.store

    @property
    def owner(self) -> str:
        """The owner whose work the commands on this database run."""
        return self.main.owner

    def client(self, owner: str) -> Client:
        """One owner's access; there is no other."""
        return Client(self.store, owner, self.backstay.limits, self.main.clock, self.backstay.bus)


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def _serving(request: Request) -> Service:
    """Async, because FastAPI sends what is not through a thread."""
    return service_of(request)


Serving = Annotated[Service, Depends(_serving)]
