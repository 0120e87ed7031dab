"""The states of items, jobs and batches, and the one table of the allowed changes."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class ItemState(StrEnum):
    """The state of an item."""

    QUEUED = "queued"
    SUBMITTING = "submitting"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class JobState(StrEnum):
    """The state of a job, which follows from those of its items."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BatchStatus(StrEnum):
    """The status of a batch, as OpenAI's clients know it."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class StopReason(StrEnum):
    """Why a job takes no more work although items are left."""

    CANCEL = "cancel"
    CANCEL_OVER = "cancel_over"  # only for tasks: cancelled, and the time to wait for their end is over
    TIMEOUT = "timeout"
    MOVE = "move"  # only for tasks at the provider: their time there is over, and another handler continues


_ENDS = frozenset({ItemState.SUCCEEDED, ItemState.FAILED, ItemState.SKIPPED, ItemState.CANCELLED})

# queued      -> submitting: claimed. failed or cancelled: its time ran out or its job ended before a worker claimed it.
# submitting  -> queued: handed back, retried or rescued. processing: the provider took it as a task.
#                submitting: its outcome is unknown, and the provider is asked before it is sent again.
# processing  -> queued: the provider's task failed and may be tried again.
# failed      -> queued: a person retries it. processing: the same, and its task at the provider continues.
#                succeeded: its result came too late, and a person accepted it.
#                The other ends are final.
TRANSITIONS: Mapping[ItemState, frozenset[ItemState]] = MappingProxyType(
    {
        ItemState.QUEUED: frozenset({ItemState.SUBMITTING, ItemState.FAILED, ItemState.CANCELLED}),
        ItemState.SUBMITTING: frozenset({ItemState.QUEUED, ItemState.SUBMITTING, ItemState.PROCESSING}) | _ENDS,
        ItemState.PROCESSING: frozenset({ItemState.QUEUED, ItemState.PROCESSING}) | _ENDS,
        ItemState.SUCCEEDED: frozenset(),
        ItemState.FAILED: frozenset({ItemState.QUEUED, ItemState.PROCESSING, ItemState.SUCCEEDED}),
        ItemState.SKIPPED: frozenset(),
        ItemState.CANCELLED: frozenset(),
    }
)

TERMINAL = _ENDS
UNFINISHED = frozenset(ItemState) - TERMINAL
LEASED = frozenset({ItemState.SUBMITTING, ItemState.PROCESSING})  # the states in which a worker may hold an item
JOB_ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
JOB_OPEN = frozenset(JobState) - JOB_ENDED
BATCH_ENDED = frozenset({BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED})
BATCH_OPEN = frozenset(BatchStatus) - BATCH_ENDED


def may_follow(old: ItemState, new: ItemState) -> bool:
    return new in TRANSITIONS[old]
