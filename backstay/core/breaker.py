"""The circuit breaker of a provider, as a value: its observed calls, its next state, and how many calls may start.

closed ──more than half of the window failed──▶ open ──cool-down──▶ half_open ──probes succeeded──▶ closed
                                                  ▲                      │
                                                  └──── probes failed ───┘
`hold` (by an operator) or `refuse` (of the account: bad key, no credit) makes it held; `release` closes it. At the end
of its time it becomes half-open. Each time in a row that it opens or is refused, the wait is twice as long.

A Call is evidence about the provider: it is ok when the provider did its work, and not ok on a failure of
infrastructure or a call whose outcome is unknown. Business errors, throttling and holds say nothing about
the health of the provider, so the caller makes no Call of them.

An item that always fails is not a sign of a failing provider. So a closed breaker counts only the failures of first
tries. A half-open breaker needs one success among the probes to know that the provider works again: from then on a
failed probe is only a bad item, and the share of failures decides.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from backstay.core.errors import UsageError


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    HELD = "held"


def act_of(state: BreakerState) -> str:
    """The name of the event in the provider's timeline when its breaker enters a state."""
    return f"breaker_{state.value}"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """The settings of a breaker. In mode "hold" there is no half-open: it stays open until it is released."""

    window_calls: int = 20
    window_ms: int = 120_000
    calls_min: int = 10
    fail_ratio: float = 0.5
    open_ms: int = 30_000
    open_ms_max: int = 300_000  # how long the cool-down may grow
    probes_max: int = 3
    close_ratio: float = 0.8
    mode: Literal["half_open", "hold"] = "half_open"

    def __post_init__(self) -> None:
        # The share must be above the ratio, so at 1 the breaker could never open, or never close again.
        rules = (
            (1 <= self.window_calls <= 1000, f"window_calls must be from 1 to 1000, not {self.window_calls}"),
            (self.window_ms >= 1, f"window_ms must be at least 1, not {self.window_ms}"),
            (
                1 <= self.calls_min <= self.window_calls,
                f"calls_min must be from 1 to window_calls, not {self.calls_min}",
            ),
            (0 <= self.fail_ratio < 1, f"fail_ratio must be from 0 to below 1, not {self.fail_ratio}"),
            (self.open_ms >= 1, f"open_ms must be at least 1, not {self.open_ms}"),
            (self.open_ms_max >= 1, f"open_ms_max must be at least 1, not {self.open_ms_max}"),
            (1 <= self.probes_max <= 1000, f"probes_max must be from 1 to 1000, not {self.probes_max}"),
            (0 <= self.close_ratio < 1, f"close_ratio must be from 0 to below 1, not {self.close_ratio}"),
            (self.mode in ("half_open", "hold"), f"mode must be half_open or hold, not {self.mode}"),
        )
        for kept, sentence in rules:
            if not kept:
                raise UsageError(f"breaker: {sentence}")


DEFAULT_POLICY: Final = BreakerPolicy()


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call to the provider."""

    started_at: int
    ended_at: int
    ok: bool
    first: bool = True  # the first try of its item; not stored, because only calls that count are stored


@dataclass(frozen=True, slots=True)
class Breaker:
    """The shared knowledge of all workers about one provider; a new breaker is closed."""

    provider: str
    state: BreakerState = BreakerState.CLOSED
    since_at: int = 0
    until_at: int | None = None
    reason: str = ""
    calls: tuple[Call, ...] = ()
    opened: int = 0  # how many times in a row it was opened or refused, with no success between


def observe(breaker: Breaker, calls: Iterable[Call], policy: BreakerPolicy, now_ms: int) -> Breaker:
    """The breaker after these calls, which may come from several workers and in any order."""
    match breaker.state:
        case BreakerState.CLOSED:
            counted = [call for call in calls if call.ok or call.first]
            return _observe_closed(breaker, _evidence(breaker, counted), policy, now_ms)
        case BreakerState.HALF_OPEN:
            return _observe_probes(breaker, _evidence(breaker, calls), policy, now_ms)
        case BreakerState.OPEN | BreakerState.HELD:
            return breaker


def cool(breaker: Breaker, policy: BreakerPolicy, now_ms: int) -> Breaker:
    """The breaker once its time is up: open and held become half-open."""
    until_at = _cools_at(breaker, policy)
    if until_at is None or now_ms < until_at:
        return breaker
    # Half-open began when the wait was over, not when a worker looked, so all workers write the same value.
    since_at = max(until_at, breaker.since_at)
    return Breaker(breaker.provider, BreakerState.HALF_OPEN, since_at, reason=breaker.reason, opened=breaker.opened)


def allowance(breaker: Breaker, policy: BreakerPolicy, now_ms: int) -> int | None:
    """How many calls may be under way; None: any number. Half-open, only the probes."""
    cooled = cool(breaker, policy, now_ms)
    match cooled.state:
        case BreakerState.CLOSED:
            return None
        case BreakerState.HALF_OPEN:
            missing = policy.probes_max - len(cooled.calls)
            return missing if missing > 0 else policy.probes_max
        case BreakerState.OPEN | BreakerState.HELD:
            return 0


def hold(breaker: Breaker, reason: str, now_ms: int, until_at: int | None = None) -> Breaker:
    """Held until `until_at`, or until released. A second hold never shortens the first one."""
    if breaker.state is not BreakerState.HELD:
        return Breaker(breaker.provider, BreakerState.HELD, now_ms, until_at, reason)
    if breaker.until_at is None or (until_at is not None and until_at <= breaker.until_at):
        return breaker
    return replace(breaker, until_at=until_at, reason=reason)


def refuse(breaker: Breaker, reason: str, policy: BreakerPolicy, now_ms: int, hold_ms_max: int | None) -> Breaker:
    """Held because the provider refuses the account; longer each time in a row, up to `hold_ms_max` (None: without
    end)."""
    opened = breaker.opened + (breaker.state is not BreakerState.HELD)
    until_at = None if hold_ms_max is None else now_ms + min(_cool_down_ms(policy, opened), hold_ms_max)
    return replace(hold(breaker, reason, now_ms, until_at), opened=opened)


def release(breaker: Breaker, now_ms: int) -> Breaker:
    """Closed again, by an operator or a health probe; earlier calls are forgotten."""
    if breaker.state is BreakerState.CLOSED:
        return breaker
    return Breaker(breaker.provider, BreakerState.CLOSED, now_ms)


def hide_reason(breaker: Breaker) -> Breaker:
    """The breaker as any owner may see it. The real reason may be a provider's message about another owner's request,
    or an operator's note to other operators."""
    return replace(breaker, reason=_PLAIN_REASONS[breaker.state])


_PLAIN_REASONS: Final = {
    BreakerState.CLOSED: "",
    BreakerState.OPEN: "the provider is failing",
    BreakerState.HALF_OPEN: "the provider was failing or held",
    BreakerState.HELD: "the provider refuses the account, or an operator put the provider on hold",
}


def dump_calls(calls: Iterable[Call]) -> str:
    rows = [[call.started_at, call.ended_at, int(call.ok)] for call in calls]
    return json.dumps(rows, separators=(",", ":"))


def load_calls(text: str) -> tuple[Call, ...]:
    rows = json.loads(text) if text else []
    return tuple(Call(int(started_at), int(ended_at), bool(ok)) for started_at, ended_at, ok in rows)


def _evidence(breaker: Breaker, calls: Iterable[Call]) -> list[Call]:
    """Calls that began in this state, in the order they began: a call that hung until its time limit is compared with
    the calls that began at the same time, not with the few that ended last.

    An earlier call tells only about the time before: a call to a failing provider may time out long after the provider
    recovered, and must not open the breaker again.
    """
    known = [call for call in (*breaker.calls, *calls) if call.started_at >= breaker.since_at]
    return sorted(known, key=lambda call: (call.started_at, call.ended_at, call.ok))


def _observe_closed(breaker: Breaker, known: list[Call], policy: BreakerPolicy, now_ms: int) -> Breaker:
    recent = [call for call in known if call.ended_at >= now_ms - policy.window_ms][-policy.window_calls :]
    failed = sum(not call.ok for call in recent)
    if len(recent) >= policy.calls_min and failed > policy.fail_ratio * len(recent):
        return _open(breaker, policy, now_ms, f"{failed} of the last {len(recent)} calls failed")
    return replace(breaker, calls=tuple(recent))


def _observe_probes(breaker: Breaker, known: list[Call], policy: BreakerPolicy, now_ms: int) -> Breaker:
    """A worker reports failed probes only when no probe is under way any more, or together with a success."""
    succeeded = sum(call.ok for call in known)
    if known and succeeded == 0:
        return _open(breaker, policy, now_ms, "no probe succeeded")
    if succeeded >= policy.probes_max and succeeded > policy.close_ratio * len(known):
        return Breaker(breaker.provider, BreakerState.CLOSED, now_ms)
    if len(known) < policy.calls_min:
        return replace(breaker, calls=tuple(replace(call, first=True) for call in known))
    failed = len(known) - succeeded
    if failed > policy.fail_ratio * len(known):
        return _open(breaker, policy, now_ms, f"{failed} of {len(known)} probes failed")
    return Breaker(breaker.provider, BreakerState.CLOSED, now_ms)


def _open(breaker: Breaker, policy: BreakerPolicy, now_ms: int, reason: str) -> Breaker:
    opened = breaker.opened + 1
    until_at = now_ms + _cool_down_ms(policy, opened) if policy.mode == "half_open" else None
    return Breaker(breaker.provider, BreakerState.OPEN, now_ms, until_at, reason, opened=opened)


def _cool_down_ms(policy: BreakerPolicy, opened: int) -> int:
    """Twice as long each time in a row; the exponent is bounded, because an outage may last for weeks."""
    return min(policy.open_ms << min(max(opened - 1, 0), 20), max(policy.open_ms, policy.open_ms_max))


def _cools_at(breaker: Breaker, policy: BreakerPolicy) -> int | None:
    match breaker.state:
        case BreakerState.HELD:
            return breaker.until_at
        case BreakerState.OPEN if policy.mode == "half_open":
            # A breaker that opened in mode "hold" has no end time; in this mode it gets the usual one.
            cools_at = breaker.since_at + _cool_down_ms(policy, breaker.opened)
            return cools_at if breaker.until_at is None else breaker.until_at
        case _:
            return None
