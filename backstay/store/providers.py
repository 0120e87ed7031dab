"""Scripts for what all workers share about providers: the breaker's window, holds, and who may probe."""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.core import breaker as breakers
from backstay.core.breaker import Breaker, BreakerPolicy, Call
from backstay.core.states import StopReason
from backstay.store.queries import Ask, Script
from backstay.store.rows import read_row, record

record(Breaker)


@record
class HeldJob(NamedTuple):
    """A job that takes no work now."""

    id: int
    stop_reason: StopReason | None  # None: paused


class Holds(NamedTuple):
    """Why due items may not be claimed now."""

    providers: dict[str, Breaker]
    jobs: dict[int, StopReason | None]  # None: paused
    now: int


class Change(NamedTuple):
    before: Breaker
    after: Breaker


def holds() -> Script[Holds]:
    providers: list[Breaker] = yield Ask("providers")
    jobs: list[HeldJob] = yield Ask("held_jobs")
    [now] = yield Ask("now")
    by_name = {breaker.provider: breaker for breaker in providers}
    return Holds(by_name, {job.id: job.stop_reason for job in jobs}, now["now"])


def observe(name: str, calls: Sequence[Call], policy: BreakerPolicy) -> Script[Change]:
    """Adds calls to the shared window; one worker at a time, so that none is forgotten."""
    before, now = yield from _locked(name)
    after = breakers.observe(breakers.cool(before, policy, now), calls, policy, now)
    return (yield from _saved(before, after))


def cool(name: str, policy: BreakerPolicy) -> Script[Change]:
    before, now = yield from _locked(name)
    return (yield from _saved(before, breakers.cool(before, policy, now)))


def hold(name: str, reason: str, seconds: float | None) -> Script[Change]:
    before, now = yield from _locked(name)
    until = None if seconds is None else now + int(seconds * 1000)
    return (yield from _saved(before, breakers.hold(before, reason, now, until)))


def refuse(name: str, reason: str, policy: BreakerPolicy, hold_seconds: float | None) -> Script[Change]:
    before, now = yield from _locked(name)
    hold_ms = None if hold_seconds is None else int(hold_seconds * 1000)
    return (yield from _saved(before, breakers.refuse(before, reason, policy, now, hold_ms)))


def release(name: str) -> Script[Change]:
    before, now = yield from _locked(name)
    return (yield from _saved(before, breakers.release(before, now)))


def take_probe(name: str, probe_seconds: float) -> Script[bool]:
    rows = yield Ask("take_probe", {"name": name, "probe_ms": int(probe_seconds * 1000)})
    return bool(rows)


def give_probe(name: str) -> Script[None]:
    yield Ask("give_probe", {"name": name})


def _locked(name: str) -> Script[tuple[Breaker, int]]:
    yield Ask("ensure_provider", {"name": name})
    [found] = yield Ask("lock_provider", {"name": name})
    return read_row(Breaker, found), found["now"]


def _saved(before: Breaker, after: Breaker) -> Script[Change]:
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
        detail = f"{before.state} -> {after.state}" + (f": {after.reason}" if after.reason else "")
        yield Ask("write_events", batch=[(f"provider:{after.provider}", "breaker", detail)])
    return Change(before, after)
