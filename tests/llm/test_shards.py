"""How requests gather, when a shard closes, and what is learnt about how large one may be."""

import asyncio

import pytest

from backstay.clock import Clock, Tasks
from backstay.core.failures import FailureKind
from backstay.core.models import Claimed, JobTerms
from backstay.core.outcomes import Failed
from backstay.handlers.handler import Context, Surroundings
from backstay.llm.shards import (
    WAIT_SECONDS_MAX,
    Gatherer,
    SentBatch,
    Shard,
    ShardBounds,
    ShardEntry,
    ShardKey,
    ShardLimits,
    drop_late,
)
from tests.sites import Ticker

KEY = ShardKey("1", "m", "/v1/chat/completions")
JOB = JobTerms(1, "ann", "seed", None, None)
MADE = SentBatch("batch_1", 1)


def entry(n: int, clock: Clock, seconds: float = 240) -> ShardEntry:
    claimed = Claimed(n, 1, "h", "submitting", 1, 0, 0, 0, 0, 0, 0, None, 0, 0, None, None, None, "{}")
    around = Surroundings(clock, 10, lambda *_: None, lambda *_: None)
    context = Context(claimed, JOB, around, clock.monotonic(), seconds)
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


def test_a_model_with_too_many_waiting_tokens_is_left_alone_for_longer_each_time() -> None:
    clock = Ticker()
    restraint = ShardLimits(ShardBounds(requests_max=1_000), clock)
    waits = []
    for _ in range(8):
        waits.append(restraint.too_many_tokens("m", 1_000))
        clock.ms += round(restraint.seconds_to_wait("m") * 1000)
    assert waits[:3] == [60, 120, 240]
    assert waits[-1] == WAIT_SECONDS_MAX
    assert restraint.bounds("m").requests_max == 100
    assert (restraint.bounds("other").requests_max, restraint.seconds_to_wait("other")) == (1_000, 0)


def test_what_many_requests_of_one_batch_report_counts_once() -> None:
    restraint = ShardLimits(ShardBounds(requests_max=1_000), Ticker())
    assert [restraint.too_many_tokens("m", 1_000) for _ in range(3)] == [60, 60, 60]
    assert restraint.bounds("m").requests_max == 500
    restraint.tokens_fit("m")
    assert restraint.bounds("m").requests_max == 1_000


def test_uploads_that_take_too_long_are_made_smaller_and_grow_again() -> None:
    restraint = ShardLimits(ShardBounds(bytes_max=100 << 20), Ticker())
    restraint.too_many_bytes(80 << 20)
    assert restraint.bounds("m").bytes_max == 40 << 20
    restraint.bytes_fit(1 << 20)
    assert restraint.bounds("m").bytes_max == 40 << 20
    restraint.bytes_fit(39 << 20)
    assert restraint.bounds("m").bytes_max == 80 << 20
    restraint.too_many_bytes(1)
    assert restraint.bounds("m").bytes_max == 1


def test_uploads_refused_at_once_make_the_next_ones_smaller_only_once() -> None:
    restraint = ShardLimits(ShardBounds(bytes_max=100 << 20), Ticker())
    for _ in range(4):
        restraint.too_many_bytes(80 << 20)
    assert restraint.bounds("m").bytes_max == 40 << 20
