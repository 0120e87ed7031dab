"""What a provider says is left of one of its own limits, as a bound on the calls under way.

What an answer says was counted when its call came. All that are under way since may have used some of it: so no more
may be under way than were left. They hurry while there is plenty, and few are refused when it comes to an end.
"""


class Allowance:
    """Told of every answer that says what is left; looked at now and then."""

    def __init__(self) -> None:
        self._least: int | None = None  # of what was said since the last look
        self._last: int | None = None
        self._before: int | None = None  # what was said last before the last look
        self._calls = 0

    def say(self, left: int) -> None:
        self._least = left if self._least is None else min(left, self._least)
        self._last = left
        self._calls += 1

    def calls_max(self, each: bool = False) -> int | None:
        """How many calls may be under way; None if nothing was said. What was said is then forgotten.

        `each`: a call takes one of what is left. Otherwise it takes what calls took lately, if that can be told.
        """
        least, calls, before, last = self._least, self._calls, self._before, self._last
        self._least, self._calls, self._before = None, 0, last
        if least is None:
            return None
        if each:
            return least - calls  # as many again may have begun by the next look
        used = before - last if before is not None and last is not None else 0
        return least * calls // used - calls if used > 0 else None
