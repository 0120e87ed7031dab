"""`backstay doctor`: one file for each area, a function for each check. Here is what a check gets, and what it returns:
findings."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from backstay.cli.command import on_same_database
from backstay.core.errors import BackstayError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.cli.database_choice import Target
    from backstay.client import Client
    from backstay.clock import Clock
    from backstay.llm.endpoint import Endpoint
    from backstay.settings import Settings
    from backstay.store.store import Store


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # it works, but there is a risk
    FAIL = "fail"  # something does not work, or work may be lost


class Finding(NamedTuple):
    """One result of a check; `advice` says what to do when it is not ok."""

    level: Level
    says: str
    advice: str = ""


@dataclass(slots=True)
class Setup:
    """All that work depends on, as this process would use it."""

    app: "Backstay"
    target: "Target"
    environ: Mapping[str, str]
    clock: "Clock"
    endpoint: "Endpoint | None" = None  # a service to check besides those of unfinished work
    client: "Client | None" = None  # as soon as the database is open

    @property
    def settings(self) -> "Settings":
        return self.app.settings

    @property
    def store(self) -> "Store":
        if self.client is None:
            raise BackstayError("the database is not open")
        return self.client.store


Check = Callable[[Setup], AsyncIterator[Finding]]


def ok(says: str) -> Finding:
    return Finding(Level.OK, says)


def warn(says: str, advice: str) -> Finding:
    return Finding(Level.WARN, says, advice)


def fail(says: str, advice: str) -> Finding:
    return Finding(Level.FAIL, says, advice)


def fail_with(error: BackstayError) -> Finding:
    return fail(error.message, on_same_database(error.hint))


def name_of(check: Check) -> str:
    return check.__name__.replace("_", " ")


def purpose_of(check: Check) -> str:
    """What a check looks at: the first paragraph of its docstring."""
    return " ".join((check.__doc__ or "").split("\n\n")[0].split())
