"""The first replies of a run. While nothing has succeeded and all replies are the same refusal, the address or the key
is probably wrong, not every item. So no item fails because of them, and after a few of them nothing more is sent."""

from dataclasses import replace

from backstay.core.failures import Failure, FailureKind
from backstay.core.models import Claimed
from backstay.core.outcomes import Failed, Outcome, Submitted, Succeeded

REFUSALS_ENOUGH = 5
WAIT_MS = 2_000
_REFUSALS = (FailureKind.BUSINESS, FailureKind.REFUSED, FailureKind.HELD)
_OWN_WORDS = (400, 422)  # these tell what is wrong with a request, so only the same words are the same refusal


class FirstReplies:
    """Ends with the first success, with a refusal of another kind, or when an item is refused a second time: others may
    be well, and must not wait for it. A refused item waits a moment, so that the others are tried first."""

    def __init__(self, items: int) -> None:
        self._items = items  # of the whole run: fewer than a few refusals are enough if there are no more items
        self.over = False
        self.refusal: Failure | None = None
        self._refused: set[int] = set()
        self._account_refused = 0

    @property
    def enough(self) -> bool:
        """Whether so much was refused that nothing more is to be sent before what is under way has ended."""
        if self.over or self.refusal is None:
            return False
        is_own = self.refusal.provider_status in _OWN_WORDS
        needed = REFUSALS_ENOUGH if is_own else min(REFUSALS_ENOUGH, self._items)
        return len(self._refused) >= needed or self._account_refused > 1

    def judge(self, item: Claimed, outcome: Outcome) -> Outcome:
        """A refusal that would be final puts the item back instead."""
        if self.over:
            return outcome
        if isinstance(outcome, Succeeded | Submitted):
            self.over = True
        if not isinstance(outcome, Failed) or not _is_refusal(outcome.failure):
            return outcome
        failure = outcome.failure
        if item.id in self._refused or (self.refusal is not None and _kind(failure) != _kind(self.refusal)):
            self.over = True
            return outcome
        self.refusal = failure
        if failure.kind is FailureKind.HELD:
            self._account_refused += 1
            return outcome
        self._refused.add(item.id)
        return replace(outcome, failure=replace(failure, kind=FailureKind.THROTTLED, retry_after_ms=WAIT_MS))


def _is_refusal(failure: Failure) -> bool:
    status = failure.provider_status
    return failure.kind in _REFUSALS and status is not None and 300 <= status <= 499


def _kind(failure: Failure) -> tuple[int | None, str]:
    status = failure.provider_status
    return status, failure.message if status in _OWN_WORDS else ""
