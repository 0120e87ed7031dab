"""How requests gather, when a shard closes, and what is learnt about how large one may be."""

import asyncio

import pytest

from backstay.clock import Clock, Tasks
from backstay.core.errors import HandlerError
from backstay.core.failures import FailureKind, failure_of_exception
from backstay.core.models import Claimed, Failed, JobTerms
from backstay.handlers.handler import Context, Surroundings
from backstay.llm.shards import (
    ByteLimit,
    Gatherer,
    SentBatch,
    Shard,
    ShardBounds,
    ShardEntry,
    ShardKey,
    drop_late,
    require_enough,
)
from tests.databases import Ticker

KEY = ShardKey("1", "m", "/v1/chat/completions")
JOB = JobTerms(1, "ann", "seed", None, None)
MADE = SentBatch("batch_1", 1)


def entry(n: int, clock: Clock, seconds: float = 240, job: JobTerms = JOB) -> ShardEntry:
    claimed = Claimed(n, 1, "h", "submitting", 1, 0, 0, 0, 0, 0, 0, None, 0, 0, None, None, None, "{}")
    around = Surroundings(clock, 10, lambda *_: None, lambda *_: None)
    context = Context(claimed, job, around, clock.monotonic(), seconds)
    return ShardEntry(context.idempotency_key, "{}", 100, 10, context)


class Sent:
    """Takes closed shards, and answers when the test lets it."""

    def __init__(self) -> None:
        self.shards: list[Shard] = []
        self.two = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, shard: Shard) -> SentBatch | Failed:
        self.shards.append(shard)
        if len(self.shards) == 2:
            self.two.set()
        await self.go_on.wait()
        return MADE

    @property
    def sizes(self) -> list[int]:
        return [len(shard.entries) for shard in self.shards]


async def joined(gatherer: Gatherer, count: int, bounds: ShardBounds) -> list[asyncio.Task[SentBatch | Failed]]:
    clock = Clock()
    joins = [asyncio.create_task(gatherer.join(KEY, entry(n, clock), bounds)) for n in range(count)]
    await asyncio.sleep(0)
    return joins


async def test_a_shard_closes_when_nobody_has_joined_for_a_while() -> None:
    sent = Sent()
    sent.go_on.set()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=0.05)
    assert await asyncio.gather(*await joined(gatherer, 3, ShardBounds())) == [MADE] * 3
    assert sent.sizes == [3]


async def test_a_shard_that_others_keep_joining_closes_all_the_same() -> None:
    sent = Sent()
    sent.go_on.set()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=10, gather_seconds=0.05)
    assert await asyncio.gather(*await joined(gatherer, 2, ShardBounds())) == [MADE] * 2


async def test_a_full_shard_is_sent_at_once_and_the_next_one_gathers_meanwhile() -> None:
    sent = Sent()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=60)
    joins = await joined(gatherer, 5, ShardBounds(requests_max=2))
    async with asyncio.timeout(5):
        await sent.two.wait()
    assert sent.sizes == [2, 2]
    sent.go_on.set()
    assert await asyncio.gather(*joins[:4]) == [MADE] * 4
    assert not joins[4].done()
    await gatherer.close()
    with pytest.raises(asyncio.CancelledError):
        await joins[4]


async def test_whoever_is_cut_off_while_a_shard_gathers_is_not_sent_with_it() -> None:
    sent = Sent()
    sent.go_on.set()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=0.05)
    joins = await joined(gatherer, 3, ShardBounds())
    joins[1].cancel()
    await asyncio.gather(*joins, return_exceptions=True)
    assert (sent.sizes, sent.shards[0].broken, sent.shards[0].bytes) == ([2], False, 200)


async def test_whoever_is_cut_off_later_breaks_the_shard() -> None:
    sent = Sent()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=60)
    joins = await joined(gatherer, 2, ShardBounds(requests_max=2))
    joins[0].cancel()
    await asyncio.gather(joins[0], return_exceptions=True)
    assert sent.shards[0].broken
    sent.go_on.set()
    assert await joins[1] == MADE


async def test_the_last_shard_is_never_smaller_than_the_provider_takes() -> None:
    sent = Sent()
    sent.go_on.set()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=0.05)
    joins = await joined(gatherer, 21, ShardBounds(requests_max=10, requests_min=3))
    assert await asyncio.gather(*joins) == [MADE] * 21
    assert sent.sizes == [7, 7, 7]
    assert sum(sent.sizes) == len({ref for shard in sent.shards for ref in shard.entries})
    assert [shard.bytes for shard in sent.shards] == [700] * 3


async def test_a_full_shard_waits_for_one_more_request_if_the_next_shard_could_be_too_small() -> None:
    sent = Sent()
    sent.go_on.set()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=0.05)
    joins = await joined(gatherer, 10, ShardBounds(requests_max=10, requests_min=3))
    assert await asyncio.gather(*joins) == [MADE] * 10
    assert sent.sizes == [10]


async def test_the_rest_of_a_file_joins_though_it_can_only_be_claimed_after_another_shard_was_sent() -> None:
    sent, bounds = Sent(), ShardBounds(requests_max=10, requests_min=3)
    clock = Clock()
    gatherer = Gatherer(sent, clock, Tasks(), quiet_seconds=0.05)
    joins = await joined(gatherer, 11, bounds)
    await asyncio.sleep(0.3)  # much longer than it is quiet; the first shard is still on its way
    assert sent.sizes == [7]
    joins.append(asyncio.create_task(gatherer.join(KEY, entry(99, clock), bounds)))
    sent.go_on.set()
    assert await asyncio.gather(*joins) == [MADE] * 12
    assert sent.sizes == [7, 5]


async def test_whoever_is_cut_off_after_it_changed_shards_is_not_sent() -> None:
    sent = Sent()
    sent.go_on.set()
    gatherer = Gatherer(sent, Clock(), Tasks(), quiet_seconds=0.05)
    joins = await joined(gatherer, 11, ShardBounds(requests_max=10, requests_min=2))
    joins[9].cancel()  # it began in the first one
    await asyncio.gather(*joins, return_exceptions=True)
    assert (sent.sizes, [shard.broken for shard in sent.shards]) == ([8, 2], [False, False])


@pytest.mark.parametrize(("move_at", "kind"), [(None, FailureKind.BUSINESS), (90_000, FailureKind.THROTTLED)])
async def test_too_few_requests_fail_unless_their_job_calls_them_later(move_at: int | None, kind: FailureKind) -> None:
    clock = Ticker()
    shard = Shard(KEY, ShardBounds(requests_min=3), 0)
    shard.add(entry(1, clock, job=JOB._replace(move_at=move_at)), 0)
    with pytest.raises(HandlerError, match="fewer than 3 requests of one model, and only 1 are left") as caught:
        require_enough(shard, 30_000)
    failure = failure_of_exception(caught.value)
    assert (failure.kind, failure.retry_after_ms) == (kind, None if move_at is None else 60_000)
    shard.add(entry(2, clock), 0)
    shard.add(entry(3, clock), 0)
    require_enough(shard, 30_000)


async def test_what_goes_wrong_with_a_shard_goes_wrong_for_all_of_it() -> None:
    async def fail(_: Shard) -> SentBatch | Failed:
        raise TimeoutError("no answer")

    gatherer = Gatherer(fail, Clock(), Tasks(), quiet_seconds=0.01)
    outcomes = await asyncio.gather(*await joined(gatherer, 2, ShardBounds()))
    assert {outcome.failure.kind for outcome in outcomes if isinstance(outcome, Failed)} == {FailureKind.UNKNOWN}
    assert all(isinstance(outcome, Failed) for outcome in outcomes)


async def test_claims_that_will_be_too_old_are_left_behind_at_no_cost() -> None:
    clock = Ticker()
    shard, late = Shard(KEY, ShardBounds(), 0), entry(1, clock, seconds=100)
    for each in (late, entry(2, clock, seconds=240)):
        shard.add(each, 0)
    drop_late(shard, 120)
    outcome = late.outcome.result()
    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, len(shard.entries), shard.bytes) == (FailureKind.THROTTLED, 1, 100)


def test_uploads_that_take_too_long_are_made_smaller_and_grow_again() -> None:
    restraint = ByteLimit(ShardBounds(bytes_max=100 << 20))
    restraint.too_many_bytes(80 << 20)
    assert restraint.bounds.bytes_max == 40 << 20
    restraint.bytes_fit(1 << 20)
    assert restraint.bounds.bytes_max == 40 << 20
    restraint.bytes_fit(39 << 20)
    assert restraint.bounds.bytes_max == 80 << 20
    restraint.too_many_bytes(1)
    assert restraint.bounds.bytes_max == 1


def test_uploads_refused_at_once_make_the_next_ones_smaller_only_once() -> None:
    restraint = ByteLimit(ShardBounds(bytes_max=100 << 20))
    for _ in range(4):
        restraint.too_many_bytes(80 << 20)
    assert restraint.bounds.bytes_max == 40 << 20
