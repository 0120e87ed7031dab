"""What a provider says is left of one of its own limits, as a bound on the calls under way.

The provider counted what is left when the call arrived. Calls that have started since then may have used some of it, so
no more calls may be under way than were left. Calls are fast while much is left, and few are refused when it runs out.
"""


class Allowance:
    """Collects what the answers say is left; read from time to time."""

    def __init__(self) -> None:
        self._least: int | None = None  # from the answers since the last look
        self._last: int | None = None
        self._before: int | None = None  # from the last answer before the last look
        self._calls = 0

    def say(self, left: int) -> None:
        self._least = left if self._least is None else min(left, self._least)
        self._last = left
        self._calls += 1

    def calls_max(self, each: bool = False) -> int | None:
        """How many calls may be under way; None if no answer gave a figure. The figures are then forgotten.

        `each`: a call uses one unit of what is left. Otherwise it uses what recent calls used, if that is known.
        """
        least, calls, before, last = self._least, self._calls, self._before, self._last
        self._least, self._calls, self._before = None, 0, last
        if least is None:
            return None
        if each:
            return least - calls  # as many again may have begun by the next look
        used = before - last if before is not None and last is not None else 0
        return least * calls // used - calls if used > 0 else None
