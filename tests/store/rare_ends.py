"""Jobs whose items ended in rare ways, and that have spent money: made in a store, without a provider."""

import time
from collections.abc import Sequence

from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.models import CannotAsk, Delivery, Failed, Flaw, Outcome, Succeeded, Usage
from backstay.store.items import Want
from backstay.store.store import Store
from backstay.store.submissions import Chunk, NewJob
from tests.store.store_rig import decided

LANE = "call@provider.example#1"
BUG = Failed(Failure(ErrorCode.UNKNOWN, FailureKind.BUSINESS, "ValueError: outcome unknown"))
LOST = CannotAsk()
TRUNCATED = Failed(
    Failure(ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE, "the answer is cut off", provider_status=200),
    reply='{"status_code":200,"body":"the last reply <of> it"}',
    flaw=Flaw.TRUNCATED,
)


async def ended_as(
    store: Store, outcomes: Sequence[Outcome], owner: str = "ada", costs: Sequence[int] | None = None
) -> str:
    """A job whose items came to these."""
    now = time.time_ns() // 1_000_000
    bodies = [f'{{"custom_id":"r{n}","url":"/v1/x","body":{{}}}}' for n in range(len(outcomes))]
    weights = [(cost, 1, 0) for cost in costs or [0] * len(outcomes)]
    job = NewJob(LANE, owner, "seed", 86_400_000, budget_micros=sum(costs) if costs else None)
    opened = await store.submissions.open(job, Chunk(0, bodies, "digest", True, weights))
    await store.providers.set_pace(LANE, (None, None), 100_000)
    claimed = (await store.items.claim([Want(LANE, len(outcomes), 0, LANE)], "w:1", 90_000)).items
    settlements = [
        decided(item, outcome, now, retry="none", delivery=Delivery.AT_MOST_ONCE)
        for item, outcome in zip(claimed, outcomes, strict=True)
    ]
    await store.items.settle(settlements)
    return str(opened.id)


async def spent_and_lost(store: Store, spent: int, lost: int, owner: str = "ada") -> str:
    """A job that spent so much, and lost the answer to a call of so much."""
    return await ended_as(store, [Succeeded("1", Usage(1, 1, spent)), LOST], owner, [spent, lost])
