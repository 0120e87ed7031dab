"""Events: records of what happened. The engine emits them; logs, metrics and tests listen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from backstay.core.alarms import AlarmReading
from backstay.core.breaker import Breaker
from backstay.core.failures import one_line
from backstay.core.models import Settlement
from backstay.core.states import ItemState, JobState


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker is up."""

    worker: str
    handlers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerStopping:
    """A worker was asked to stop; it claims no more items."""

    worker: str
    running: int


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    """A worker has ended and handed back the items that it could not finish."""

    worker: str
    handed_back: int


@dataclass(frozen=True, slots=True)
class ItemsSubmitted:
    """Items were written."""

    job_id: int
    handler: str
    items: int


@dataclass(frozen=True, slots=True)
class ItemsClaimed:
    """A worker has claimed items."""

    worker: str
    items: int
    named: bool = False  # by messages; otherwise by the database's order


@dataclass(frozen=True, slots=True)
class ItemsSettled:
    """A group of settlements that was committed together; one event per group, because items are many."""

    worker: str
    settlements: Sequence[Settlement]
    breakers: dict[str, str]  # provider -> breaker state, as the worker last saw it
    bodies: Sequence[str] = ()  # the payloads of the same items, in the same order; empty if the payload was not read


@dataclass(frozen=True, slots=True)
class LeasesLost:
    """Items whose lease ended while their worker ran them; it stores no result of them."""

    worker: str
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ItemsRescued:
    """A worker took over items whose worker was lost."""

    worker: str
    handler: str
    items: int


@dataclass(frozen=True, slots=True)
class ItemsExpired:
    """Items that failed because their deadline passed."""

    items: int


@dataclass(frozen=True, slots=True)
class ItemsStopped:
    """Items that ended with their job: cancelled, or failed because it exceeded its maximum runtime."""

    job_id: int
    items: int
    state: ItemState


@dataclass(frozen=True, slots=True)
class ItemLogged:
    """A line that a handler logged for its item."""

    item_id: int
    text: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The last item of a job has ended."""

    job_id: int
    state: JobState


@dataclass(frozen=True, slots=True)
class JobsTimedOut:
    """Jobs that exceeded their maximum runtime."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """A provider's breaker became open, closed, half-open or held."""

    before: Breaker
    after: Breaker


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure that is retried automatically and that a person may want to know about."""

    where: str
    message: str
    look_up: bool = False  # a provider was asked about a lost item, and the answer was not certain

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))


@dataclass(frozen=True, slots=True)
class BrokerConnected:
    """A connection to the broker is open."""

    role: str  # the purpose of the connection


@dataclass(frozen=True, slots=True)
class BrokerLost:
    """The broker is unreachable; meanwhile workers poll the database."""

    role: str
    reason: str
    again_seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", one_line(self.reason))


@dataclass(frozen=True, slots=True)
class BrokerWiped:
    """Declared queues were gone, with their messages; hints for all ready items are published again."""


@dataclass(frozen=True, slots=True)
class MessageSetAside:
    """A message that cannot be used was put into the dead queue."""

    queue: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadMessagesDropped:
    """The oldest messages of the dead queue were dropped. `bound` is what they exceeded: `count` or `age`."""

    queue: str
    messages: int
    bound: Literal["count", "age"]


@dataclass(frozen=True, slots=True)
class MessagesPublished:
    """A batch of the outbox was published: how many were confirmed, and how many are tried again."""

    sink: str
    messages: int
    failed: int


@dataclass(frozen=True, slots=True)
class OutboxLag:
    """The unpublished messages: how many, counted up to a bound, and the age of the oldest."""

    sink: str
    messages: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class LettersArchived:
    """Dead letters were moved from the database to archives."""

    items: int


@dataclass(frozen=True, slots=True)
class JobsPruned:
    """Old jobs were deleted with their items; `skipped` jobs cannot be deleted yet."""

    jobs: int
    items: int
    skipped: int


@dataclass(frozen=True, slots=True)
class AlarmChanged:
    """An alarm was raised, or is over; emitted once, by the process that noticed it first."""

    reading: AlarmReading


@dataclass(frozen=True, slots=True)
class TickEnded:
    """A bounded invocation is over."""

    depth: int
    items: int
    seconds: float
    follow_up: bool
    full: bool  # there is work left, but the chain has reached its depth limit


Event = (
    WorkerStarted
    | WorkerStopping
    | WorkerStopped
    | ItemsSubmitted
    | ItemsClaimed
    | ItemsSettled
    | LeasesLost
    | ItemsRescued
    | ItemsExpired
    | ItemsStopped
    | ItemLogged
    | JobEnded
    | JobsTimedOut
    | BreakerChanged
    | Trouble
    | BrokerConnected
    | BrokerLost
    | BrokerWiped
    | MessageSetAside
    | DeadMessagesDropped
    | MessagesPublished
    | OutboxLag
    | LettersArchived
    | JobsPruned
    | AlarmChanged
    | TickEnded
)
