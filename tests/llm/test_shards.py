"""How requests gather, when a shard closes, and what is learnt about how large one may be."""

import asyncio

import pytest

from backstay.clock import Clock, Tasks
from backstay.core.failures import FailureKind
from backstay.core.models import Claimed, Failed, JobTerms
from backstay.handlers.handler import Context, OpenItems, Surroundings
from backstay.llm.shards import (
    WAITS_IN_VAIN_MAX,
    ByteLimit,
    Gatherer,
    SentBatch,
    Shard,
    ShardBounds,
    ShardEntry,
    ShardKey,
    SmallShards,
    drop_late,
)
from tests.databases import Ticker

KEY = ShardKey("1", "m", "/v1/chat/completions")
JOB = JobTerms(1, "ann", "seed", None, None)
MADE = SentBatch("batch_1", 1)


def entry(
    n: int, clock: Clock, seconds: float = 240, job: JobTerms = JOB, items: OpenItems | None = None
) -> ShardEntry:
    async def open_items(job_id: int, owner: str) -> OpenItems:
        return items or OpenItems(1)

    claimed = Claimed(n, 1, "h", "submitting", 1, 0, 0, 0, 0, 0, 0, None, 0, 0, None, None, None, "{}")
    around = Surroundings(clock, 10, lambda *_: None, lambda *_: None, open_items=open_items)
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


async def small(
    shards: SmallShards, clock: Ticker, items: OpenItems, count: int = 1, move_at: int | None = None
) -> Failed | None:
    """The decision about a shard of so many requests, where the provider takes no fewer than three."""
    shard = Shard(KEY, ShardBounds(requests_min=3), 0)
    for n in range(count):
        shard.add(entry(n, clock, job=JOB._replace(move_at=move_at), items=items), 0)
    return await shards.judge(shard)


@pytest.mark.parametrize(("move_at", "kind"), [(None, FailureKind.BUSINESS), (90_000, FailureKind.THROTTLED)])
async def test_too_few_requests_fail_unless_their_job_calls_them(move_at: int | None, kind: FailureKind) -> None:
    clock = Ticker()
    shards = SmallShards(clock, 60)
    failed = await small(shards, clock, OpenItems(2, at_provider=1), 1, move_at)
    assert failed is not None
    assert "fewer than 3 requests of one model, and only 1 are left" in failed.failure.message
    assert (failed.failure.kind, failed.moves) == (kind, move_at is not None)
    assert await small(shards, clock, OpenItems(3), 3) is None


async def test_too_few_requests_wait_longer_and_longer_while_enough_others_are_at_the_provider() -> None:
    clock = Ticker()
    shards = SmallShards(clock, 60)
    for seconds in (60, 120, 240, 480, 900, 900):
        failed = await small(shards, clock, OpenItems(3, at_provider=2))
        assert failed is not None
        assert failed.failure.kind is FailureKind.THROTTLED
        wait_ms = failed.failure.retry_after_ms or 0
        assert 0 < wait_ms <= seconds * 1000
        clock.ms += wait_ms
        assert clock.now_ms() % (seconds * 1000) == 0, "so that several workers try again at the same time"
    ended = await small(shards, clock, OpenItems(2, at_provider=1))
    assert ended is not None
    assert ended.failure.kind is FailureKind.BUSINESS


@pytest.mark.parametrize("move_at", [None, 10_000_000])
async def test_too_few_requests_do_not_wait_for_ever_for_what_other_workers_have(move_at: int | None) -> None:
    clock = Ticker()
    shards = SmallShards(clock, 60)
    waits = [await small(shards, clock, OpenItems(5), move_at=move_at) for _ in range(WAITS_IN_VAIN_MAX + 1)]
    told = [(each.failure.kind, each.moves) for each in waits if each is not None]
    assert told[:-1] == [(FailureKind.THROTTLED, False)] * WAITS_IN_VAIN_MAX
    assert told[-1] == ((FailureKind.BUSINESS, False) if move_at is None else (FailureKind.THROTTLED, True))


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
