"""What the routes work with: one service on one database."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from backstay.app import Backstay
from backstay.artifacts import Artifacts
from backstay.client import Client
from backstay.llm.endpoint import Endpoint
from backstay.server.signing import Signer
from backstay.store.store import Store

if TYPE_CHECKING:
    from backstay.server.auth import KeyRing


@dataclass(frozen=True, slots=True)
class Options:
    """How the service was started."""

    open_here: bool = False  # from this machine no key is needed
    strict_openai: bool = False  # refuse what OpenAI refuses
    upstream: Endpoint | None = None  # where the requests of batches go
    concurrency: int = 100  # calls at once to it
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget_micros: int | None = None  # of each batch
    lines_max: int = 10_000_000  # of one batch
    works: bool = True  # items are done here as well


@dataclass(slots=True)
class Service:
    backstay: Backstay
    options: Options
    main: Client
    artifacts: Artifacts
    signer: Signer
    ring: "KeyRing"
    wake: Callable[[], None] = field(default=lambda: None)

    @property
    def store(self) -> Store:
        return self.main.store

    @property
    def owner(self) -> str:
        """Whose work the commands on this database do."""
        return self.main.owner

    def client(self, owner: str) -> Client:
        """One owner's access; there is no other."""
        return Client(self.store, owner, self.backstay.limits.job_timeout_seconds, self.main.clock, self.backstay.bus)


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


Serving = Annotated[Service, Depends(service_of)]
