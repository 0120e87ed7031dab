"""A schedule: which handler gets which payload, when, and what becomes of firings that were missed."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backstay.core.errors import UsageError

NAME_CHARACTERS_MAX: Final = 100
PAYLOAD_CHARACTERS_MAX: Final = 65_536
_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARACTERS_MAX}}}")


class MissedPolicy(StrEnum):
    """Which of the firings that nobody was there to make are made later."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """What a person or a decorator says of a schedule."""

    name: str
    handler: str
    cron: str
    timezone: str = "UTC"
    payload: str = "{}"  # as JSON text
    missed: MissedPolicy = MissedPolicy.ONCE

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name[:NAME_CHARACTERS_MAX]!r} cannot be the name of a schedule",
                hint=f"use 1 to {NAME_CHARACTERS_MAX} letters, digits, dots, dashes and underscores",
            )
        if len(self.payload) > PAYLOAD_CHARACTERS_MAX:
            said = f"the payload of schedule {self.name} has {len(self.payload):,} characters"
            raise UsageError(f"{said}; the limit is {PAYLOAD_CHARACTERS_MAX:,}")


def missed_named(name: str) -> MissedPolicy:
    try:
        return MissedPolicy(name)
    except ValueError:
        raise UsageError(
            f"there is no policy {name!r} for missed firings", hint=f"use one of: {', '.join(MissedPolicy)}"
        ) from None
