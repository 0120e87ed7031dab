"""Alarms: what is watched over the whole database, how much of it is too much, and what to do then."""

from enum import StrEnum
from typing import Final, NamedTuple


class Alarm(StrEnum):
    DEAD_LETTERS = "dead_letters"
    ITEM_TIMEOUTS = "item_timeouts"
    FAILED_JOBS = "failed_jobs"
    INVOCATION_ERRORS = "invocation_errors"
    CHAIN_DEPTH = "chain_depth"
    OUTBOX_LAG = "outbox_lag"


class Wording(NamedTuple):
    """`unit` follows a figure; `too_much` is said of the figure, `advice` to the person who reads it."""

    unit: str
    too_much: str
    advice: str


WORDING: Final = {
    Alarm.DEAD_LETTERS: Wording(
        " items", "failed for good within a day", "see what they have in common, mend it, and replay them"
    ),
    Alarm.ITEM_TIMEOUTS: Wording(
        " items", "ran out of time within a day", "the provider is slow, or the time limits are too short"
    ),
    Alarm.FAILED_JOBS: Wording("%", "of the jobs that ended within a day failed", "look at the newest of them first"),
    Alarm.INVOCATION_ERRORS: Wording(
        "%", "of the invocations of a day failed or never ended", "look at the log of the function or of cron"
    ),
    Alarm.CHAIN_DEPTH: Wording(
        " chains", "of an hour ended at their depth with work left", "start them more often, or let them be longer"
    ),
    Alarm.OUTBOX_LAG: Wording(
        " s", "is the age of the oldest message that has not left", "see whether a relay runs, and its broker"
    ),
}

# Of fewer than these a share says nothing.
JOBS_MIN: Final = 10
INVOCATIONS_MIN: Final = 20


class AlarmReading(NamedTuple):
    """What was found of one alarm. The value is in the wording's unit, shares rounded up."""

    alarm: Alarm
    value: int
    bound: int

    @property
    def is_raised(self) -> bool:
        return self.value > self.bound

    @property
    def words(self) -> str:
        unit, too_much, _ = WORDING[self.alarm]
        return f"{self.value:,}{unit} {too_much}; the alarm is above {self.bound:,}{unit}"


def percent(part: int, whole: int, whole_min: int) -> int:
    return -(-100 * part // whole) if whole >= whole_min else 0
