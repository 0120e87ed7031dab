"""Alarms over the whole database: their names, their wording and advice, and a figure with its threshold."""

from enum import StrEnum
from typing import Final, NamedTuple


class Alarm(StrEnum):
    DEAD_LETTERS = "dead_letters"
    ITEM_TIMEOUTS = "item_timeouts"
    FAILED_JOBS = "failed_jobs"
    INVOCATION_ERRORS = "invocation_errors"
    CHAIN_DEPTH = "chain_depth"
    OUTBOX_LAG = "outbox_lag"
    OLD_TRANSACTION = "old_transaction"


class Wording(NamedTuple):
    """`unit` and `too_much` follow the figure in the sentence; `advice` says what to do."""

    unit: str
    too_much: str
    advice: str


WORDING: Final = {
    Alarm.DEAD_LETTERS: Wording(
        " items", "failed permanently in the last 24 hours", "find and fix the cause, then replay the dead letters"
    ),
    Alarm.ITEM_TIMEOUTS: Wording(
        " items", "timed out in the last 24 hours", "the provider is slow, or the time limits are too short"
    ),
    Alarm.FAILED_JOBS: Wording(
        "%", "of the jobs that ended in the last 24 hours failed", "look at the newest failed job first"
    ),
    Alarm.INVOCATION_ERRORS: Wording(
        "%", "of the invocations in the last 24 hours failed or never ended", "see the log of the function or of cron"
    ),
    Alarm.CHAIN_DEPTH: Wording(
        " chains",
        "in the last hour reached the depth limit with work left",
        "start ticks more often, or raise the chain depth",
    ),
    Alarm.OUTBOX_LAG: Wording(
        " s", "is the age of the oldest unpublished message", "check that a relay and its broker are running"
    ),
    Alarm.OLD_TRANSACTION: Wording(
        " s",
        "is the age of the oldest open transaction, which keeps PostgreSQL from removing old row versions",
        "end it, for example with SELECT pg_terminate_backend(PID)",
    ),
}

# Fewer jobs or invocations are not enough for a percentage.
JOBS_MIN: Final = 10
INVOCATIONS_MIN: Final = 20


class AlarmReading(NamedTuple):
    """The figure of one alarm, in the unit of its wording; percentages are rounded up."""

    alarm: Alarm
    value: int
    bound: int
    detail: str = ""  # where to look

    @property
    def is_raised(self) -> bool:
        return self.value > self.bound

    @property
    def words(self) -> str:
        unit, too_much, _ = WORDING[self.alarm]
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.value:,}{unit} {too_much}{detail}; the alarm threshold is {self.bound:,}{unit}"


def percent(part: int, whole: int, whole_min: int) -> int:
    return -(-100 * part // whole) if whole >= whole_min else 0
