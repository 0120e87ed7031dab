"""The second life of an item whose handler has finally failed: its fallback handler gets it, once."""

from backstay.core.failures import FailureKind
from backstay.core.models import Act, Claimed, Delivery, Settlement
from backstay.core.outcomes import Failed, NeverArrived, Outcome, Terms
from backstay.core.states import ItemState


def fall_back(item: Claimed, outcome: Outcome, terms: Terms, settlement: Settlement) -> Settlement:
    """The settlement, or instead of a final failure the way to the fallback handler.

    Its attempts start afresh and it gets a new reference, because another provider may receive it. Its payload, its
    deadline and its time limit stay the same.
    """
    if terms.fallback is None or not _is_final_failure(outcome, terms, settlement):
        return settlement
    repeat = isinstance(outcome, Failed) and outcome.failure.kind is FailureKind.UNKNOWN
    may_be_paid = "the last call may have been processed and paid; " if repeat else ""
    attempt = settlement.attempt
    return settlement._replace(
        state=ItemState.QUEUED,
        handler_next=terms.fallback,
        provider_task_id=None,
        account=None,
        attempt_count=0,
        rescues=0,
        round=item.round + 1,
        repeats=item.repeats + repeat,
        flaw=outcome.flaw if isinstance(outcome, Failed) else None,
        attempt=None if attempt is None else attempt._replace(outcome="retry"),
        act=Act.REPEAT if repeat else Act.FALLBACK,
        detail=f"{may_be_paid}handler {item.handler} failed, and {terms.fallback} tries next",
    )


def _is_final_failure(outcome: Outcome, terms: Terms, settlement: Settlement) -> bool:
    """Not when time has ended the item, when its job was cancelled, when its workers died of it, or when it may have
    been paid and must not be sent twice."""
    if settlement.state is not ItemState.FAILED or settlement.timed_out:
        return False
    if isinstance(outcome, Failed):
        return outcome.failure.kind is not FailureKind.UNKNOWN or terms.delivery is not Delivery.AT_MOST_ONCE
    return isinstance(outcome, NeverArrived)
