"""Providers: the knowledge that all workers share: endpoints, paces, breakers, holds and probes."""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.core import breaker as breakers
from backstay.core.breaker import Breaker, BreakerPolicy, Call
from backstay.core.pace import MINUTE_MS, NO_FURTHER_LIMITS, Answers, FurtherLimits, Pace, start_ceiling
from backstay.core.states import StopReason
from backstay.store.databases import schema
from backstay.store.databases.database import Database, reads, writes
from backstay.store.queries import Ask, Script, one, read_row, record

record(Breaker)
record(Pace)


@record
class HeldJob(NamedTuple):
    """A job whose items may not be started now."""

    id: int
    stop_reason: StopReason | None  # None: paused


class HeldWork(NamedTuple):
    """Why due items may not be claimed now."""

    providers: dict[str, Breaker]
    jobs: dict[int, StopReason | None]  # None: paused
    now: int


class BreakerChange(NamedTuple):
    before: Breaker
    after: Breaker


class Providers:
    def __init__(self, database: Database) -> None:
        self._db = database

    @reads
    def holds(self) -> Script[HeldWork]:
        """Raises `SchemaNewer` if the database was migrated to a schema that this code does not know."""
        providers: list[Breaker] = yield Ask("providers")
        jobs: list[HeldJob] = yield Ask("held_jobs")
        [now] = yield Ask("now_and_schema")
        schema.check(now["version"])
        by_name = {breaker.provider: breaker for breaker in providers}
        return HeldWork(by_name, {job.id: job.stop_reason for job in jobs}, now["now"])

    @writes
    def observe(self, name: str, calls: Sequence[Call], policy: BreakerPolicy) -> Script[BreakerChange]:
        """Adds calls to the shared window; one worker at a time, so that no call is lost."""
        before, now = yield from _lock_breaker(name)
        after = breakers.observe(breakers.cool(before, policy, now), calls, policy, now)
        return (yield from _save_breaker(before, after))

    @writes
    def cool(self, name: str, policy: BreakerPolicy) -> Script[BreakerChange]:
        before, now = yield from _lock_breaker(name)
        return (yield from _save_breaker(before, breakers.cool(before, policy, now)))

    @writes
    def hold(self, name: str, reason: str, seconds: float | None = None) -> Script[BreakerChange]:
        before, now = yield from _lock_breaker(name)
        until = None if seconds is None else now + int(seconds * 1000)
        return (yield from _save_breaker(before, breakers.hold(before, reason, now, until)))

    @writes
    def refuse(
        self, name: str, reason: str, policy: BreakerPolicy, hold_seconds: float | None
    ) -> Script[BreakerChange]:
        """Holds a provider that refuses the account: longer each time, up to `hold_seconds` (None: without end)."""
        before, now = yield from _lock_breaker(name)
        hold_ms = None if hold_seconds is None else int(hold_seconds * 1000)
        return (yield from _save_breaker(before, breakers.refuse(before, reason, policy, now, hold_ms)))

    @writes
    def release(self, name: str) -> Script[BreakerChange]:
        before, now = yield from _lock_breaker(name)
        return (yield from _save_breaker(before, breakers.release(before, now)))

    @writes
    def take_probe(self, name: str, probe_seconds: float) -> Script[bool]:
        rows = yield Ask("take_probe", {"name": name, "probe_ms": int(probe_seconds * 1000)})
        return bool(rows)

    @writes
    def give_probe(self, name: str) -> Script[None]:
        yield Ask("give_probe", {"name": name})

    # where requests go, and how fast

    @writes
    def save_endpoint(self, name: str, spec: str) -> Script[None]:
        yield Ask("save_endpoint", {"name": name, "spec": spec})

    @reads
    def endpoints(self, open_only: bool = True) -> Script[list[tuple[str, str]]]:
        """Where requests go, by handler: for unfinished jobs only, or for all jobs."""
        rows = yield Ask("open_endpoints" if open_only else "all_endpoints")
        return [(row["name"], row["spec"]) for row in rows]

    @writes
    def set_pace(
        self,
        provider: str,
        per_minute: tuple[int | None, int | None],
        concurrency: int,
        requests_period_ms: int = MINUTE_MS,
        further: FurtherLimits = NO_FURTHER_LIMITS,
    ) -> Script[None]:
        """Stores a person's limits: requests and tokens per minute (or requests per another period), and calls at
        once."""
        requests, tokens = per_minute
        limits = {"requests_per_minute": requests, "tokens_per_minute": tokens, "concurrency": concurrency}
        limits |= {"requests_period_ms": requests_period_ms, **further._asdict()}
        yield Ask("set_pace", {"provider": provider, **limits, "ceiling": start_ceiling(concurrency)})

    @writes
    def judge_pace(self, provider: str, answers: Answers, handler: str | None = None) -> Script[tuple[Pace, int]]:
        """Shares what a worker learnt with all workers; returns the new pace and the database's time. `handler`: the
        only handler with this pace, so that its calls under way can be counted."""
        pace, now = yield from lock_pace(provider)
        [in_flight] = [{"items": None}] if handler is None else (yield Ask("in_flight", {"handler": handler}))
        after = answers.verdict(pace, now, in_flight["items"])
        if after != pace:
            yield from save_pace(after)
        return after, now

    async def paces(self) -> dict[str, Pace]:
        found: list[Pace] = await self._db.read(one("paces"))
        return {pace.provider: pace for pace in found}

    async def pace(self, name: str, name_then: str) -> Pace | None:
        """The pace with the first name; if there is none, the pace with the second name."""
        found: list[Pace] = await self._db.read(one("pace", {"paced": name, "paced_then": name_then}))
        return found[0] if found else None


def lock_pace(provider: str) -> Script[tuple[Pace, int]]:
    """The pace of a provider and the database's time. The row is locked until the transaction ends."""
    [found] = yield Ask("lock_pace", {"provider": provider})
    return read_row(Pace, found), found["now"]


def save_pace(pace: Pace) -> Script[None]:
    names = ("provider", "ceiling", "requests_at", "tokens_at", "input_at", "output_at", "day_calls", "resume_at")
    yield Ask("save_pace", {name: getattr(pace, name) for name in names})


def _lock_breaker(name: str) -> Script[tuple[Breaker, int]]:
    yield Ask("ensure_provider", {"name": name})
    [found] = yield Ask("lock_provider", {"name": name})
    return read_row(Breaker, found), found["now"]


def _save_breaker(before: Breaker, after: Breaker) -> Script[BreakerChange]:
    if after != before:
        values = {
            "name": after.provider,
            "state": after.state.value,
            "since_at": after.since_at,
            "until_at": after.until_at,
            "reason": after.reason,
            "calls": breakers.dump_calls(after.calls),
            "opened": after.opened,
        }
        yield Ask("save_provider", values)
    if after.state is not before.state:
        act = breakers.act_of(after.state)
        yield Ask("write_events", batch=[(f"provider:{after.provider}", act, after.reason or None)])
    return BreakerChange(before, after)
