"""Events as the engine emits them, for the listeners' tests."""

from typing import Any

from backstay.core.alarms import Alarm, AlarmReading
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.events import (
    AlarmChanged,
    BreakerChanged,
    BrokerConnected,
    BrokerLost,
    BrokerWiped,
    DeadMessagesDropped,
    Event,
    ItemLogged,
    ItemsClaimed,
    ItemsExpired,
    ItemsRescued,
    ItemsSettled,
    ItemsStopped,
    ItemsSubmitted,
    JobEnded,
    JobsPruned,
    JobsTimedOut,
    LeasesLost,
    LettersArchived,
    MessageSetAside,
    MessagesPublished,
    OutboxLag,
    TickEnded,
    Trouble,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from backstay.core.ids import item_id
from backstay.core.models import Act, Attempt, Settlement
from backstay.core.states import ItemState, JobState

SECRET = "the patient's name"


def settlement(state: ItemState, position: int = 0, outcome: str | None = None, **more: Any) -> Settlement:
    """An item of job 4; with an `outcome` it has an attempt of 250 ms, whose result and message are secret."""
    number = item_id(4, position)
    code = more.get("error_code")
    attempt = None
    if outcome is not None:
        status = 503 if code else 200
        attempt = Attempt(number, 1, 2, outcome, 1_000, 1_250, code, SECRET, status, SECRET, None, None, None)
    return Settlement(number, 1, was="submitting", state=state, attempt_count=2, attempt=attempt, **more)


def settled(*settlements: Settlement, breakers: dict[str, str] | None = None) -> ItemsSettled:
    return ItemsSettled("w1", settlements, breakers or {})


SUCCEEDED = settlement(ItemState.SUCCEEDED, 0, "succeeded")
FAILED = settlement(ItemState.FAILED, 1, "failed", error_code="GW_4XX")
RETRIED = settlement(ItemState.QUEUED, 2, "retry", error_code="GW_5XX", delay_ms=2_000)
REPEATED = settlement(ItemState.QUEUED, 3, act=Act.REPEAT, detail="it is sent again")
ASKED = settlement(ItemState.SUBMITTING, 4, "unknown", error_code="GW_TIMEOUT")
AT_PROVIDER = settlement(ItemState.PROCESSING, 5, delay_ms=5_000, provider_task_id="t-1")

CLOSED = Breaker("acme", BreakerState.CLOSED, 0)
OPEN = Breaker("acme", BreakerState.OPEN, 10_000, 40_000, "6 of the last 10 calls failed")
HALF_OPEN = Breaker("acme", BreakerState.HALF_OPEN, 40_000)

EVERY_KIND: list[Event] = [
    WorkerStarted("w1", ("ocr",)),
    WorkerStopping("w1", 3),
    WorkerStopped("w1", 2),
    ItemsSubmitted(4, "ocr", 10),
    ItemsClaimed("w1", 10),
    ItemsClaimed("w1", 3, named=True),
    settled(SUCCEEDED),
    LeasesLost("w1", (item_id(4, 1), item_id(4, 2))),
    ItemsRescued("w1", "ocr", 3),
    ItemsExpired(5),
    ItemsStopped(4, 6, ItemState.CANCELLED),
    ItemLogged(item_id(4, 1), "half way"),
    JobEnded(4, JobState.COMPLETED),
    JobsTimedOut((4, 5)),
    BreakerChanged(CLOSED, OPEN),
    Trouble("claim", "lost PostgreSQL"),
    BrokerConnected("publish"),
    BrokerLost("consume", "it did not answer in time", 0.5),
    BrokerWiped(),
    MessageSetAside("backstay.work.ocr", "is not JSON"),
    DeadMessagesDropped("backstay.dead", 5, "count"),
    MessagesPublished("work", 500, 2),
    OutboxLag("work", 7, 90_000),
    LettersArchived(12),
    JobsPruned(3, 40, 1),
    AlarmChanged(AlarmReading(Alarm.DEAD_LETTERS, 101, 100)),
    AlarmChanged(AlarmReading(Alarm.OUTBOX_LAG, 3, 60)),
    TickEnded(1, 10, 2.5, True, False),
]
