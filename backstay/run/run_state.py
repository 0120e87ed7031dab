"""How a run stands: how fast it goes, how long it will take, what it will cost, and why nothing moves."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from backstay.client import Client
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.display import show_count
from backstay.core.errors import ErrorCode
from backstay.core.events import Event, ItemsSettled, Trouble
from backstay.core.models import ANSWER_FLAWS
from backstay.core.pace import Pace, day_wait_ms
from backstay.core.states import JobState
from backstay.llm.endpoint import Endpoint, Lane
from backstay.run.submission import Order
from backstay.store.item_views import STRANGERS_MAX, Waiting
from backstay.store.job_views import JobView, UnderWay

WINDOW_SECONDS: Final = 30.0
WINDOW_ITEMS: Final = 20  # slow runs look further back, until this many have ended
WINDOW_SECONDS_MAX: Final = 900.0
SAMPLE_SECONDS: Final = 0.5
START_SECONDS: Final = 2.0  # the first moments say nothing about the rest
PAUSE_SECONDS: Final = 10.0  # without a look for so long, the process was suspended
COSTED_ITEMS: Final = 20  # as many as it takes for their mean cost to say something about the rest
SHORT_WAIT_MS: Final = 2_000  # a shorter wait is not shown
MESSAGE_CHARACTERS_MAX: Final = 160

Again = Callable[[str], str]  # a command to type next, on the same database


class RunState(NamedTuple):
    """A run at one moment. Money is in micro-dollars; None is unknown, never nothing."""

    total: int
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    submitted: int | None = None  # how many lines are stored already, while they stream in
    running: int = 0
    retrying: int = 0  # failed for now, and waiting for another try
    held: str | None = None  # why nothing moves
    held_seconds: float | None = None  # until the next try, if that is known
    stopping: bool = False
    reused: int = 0  # of those that succeeded: with the answer of an earlier run
    repeats: int = 0  # calls whose answer was lost, so that they may have been paid, and are sent again
    truncated: int = 0  # answers that are not whole, whether they count as failures or not
    refused: int = 0
    filtered: int = 0
    unfinished: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    spent_micros: int | None = None
    reserved_micros: int = 0
    budget_micros: int | None = None

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    @property
    def left(self) -> int:
        return max(self.total - self.done, 0)

    @property
    def flaws(self) -> list[tuple[str, int]]:
        """The flaws of answers, each with its number; flaws that no answer has are left out."""
        return [(name, number) for name in ANSWER_FLAWS if (number := getattr(self, name))]

    @property
    def percent(self) -> int:
        return min(self.done * 100 // self.total, 100) if self.total else 0


class MeterReading(NamedTuple):
    """Speed, time left and cost, computed from the states so far; None is not known yet."""

    per_second: float | None = None
    eta_seconds: float | None = None
    forecast_micros: int | None = None


class _Sample(NamedTuple):
    at: float
    done: int


class Meter:
    """Measures speed over a window. Work of an earlier process does not count, nor does the time during which the run
    was held or the process was suspended."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._looked_at: float | None = None

    def read(self, state: RunState, now: float) -> MeterReading:
        self._look(state, now)
        per_second = self._rate(state, now)
        eta_seconds = None
        if state.left == 0:
            eta_seconds = 0.0
        elif per_second and not state.stopping:
            eta_seconds = state.left / per_second
        return MeterReading(per_second, eta_seconds, forecast(state))

    def _look(self, state: RunState, now: float) -> None:
        samples, looked_at, self._looked_at = self._samples, self._looked_at, now
        stood_still = looked_at is not None and now - looked_at > PAUSE_SECONDS
        if state.held is not None or stood_still or (samples and state.done < samples[-1].done):
            samples.clear()
        if not samples or now - samples[-1].at >= SAMPLE_SECONDS:
            samples.append(_Sample(now, state.done))
        while len(samples) > 2 and self._has_enough_since(samples[1], state, now):
            samples.popleft()

    def _has_enough_since(self, sample: _Sample, state: RunState, now: float) -> bool:
        age, items = now - sample.at, state.done - sample.done
        return age >= WINDOW_SECONDS_MAX or (age >= WINDOW_SECONDS and items >= WINDOW_ITEMS)

    def _rate(self, state: RunState, now: float) -> float | None:
        if state.held is not None:
            return 0.0
        first = self._samples[0]
        seconds, items = now - first.at, state.done - first.done
        if seconds < START_SECONDS or (items == 0 and seconds < WINDOW_SECONDS):
            return None
        return items / seconds


def forecast(state: RunState) -> int | None:
    """The cost of the whole run, if the remaining requests cost as much as those that have ended; rounded up."""
    if state.spent_micros is None:
        return None
    ended = state.succeeded + state.failed - state.reused
    if state.left == 0:
        return state.spent_micros
    if ended < COSTED_ITEMS:
        return None
    return state.spent_micros - (-state.spent_micros * state.left // ended)


class Wait(NamedTuple):
    """Why nothing moves."""

    why: str
    seconds: float | None = None  # until the next try, if that is known


def wait_for_day(pace: Pace | None, now_ms: int) -> Wait | None:
    """Why nothing moves, if the daily limit is reached: that may take hours. Limits per minute are not shown."""
    wait_ms = 0 if pace is None else day_wait_ms(pace, now_ms)
    if pace is None or not wait_ms:
        return None
    return Wait(f"the limit of {pace.requests_per_day:,} requests per day is reached", wait_ms / 1000)


class Waits:
    """Finds out why nothing moves. It listens to the engine to know the provider's last error."""

    def __init__(self, order: Order, again: Again) -> None:
        self._order = order
        self._again = again
        self.providers: dict[str, Endpoint] = {}  # with their keys, once these are known
        self.accounts: dict[str, str] = {}  # of these keys, by the names of the endpoints
        self.missing_key: Callable[[], str | None] = lambda: None
        self._places = [name for endpoint in order.endpoints for name in (endpoint.provider, endpoint.name)]
        self._trouble: str | None = None
        self._unsure: str | None = None  # why the last look-up failed

    def __call__(self, event: Event) -> None:
        """Remembers the last error of failed calls. Refusals and rate limits are shown elsewhere."""
        if isinstance(event, ItemsSettled):
            for settlement in event.settlements:
                attempt = settlement.attempt
                if attempt is not None and attempt.message and attempt.error_code != ErrorCode.GW_4XX:
                    self._trouble = attempt.message
        elif isinstance(event, Trouble) and any(place in event.where for place in self._places):
            self._trouble = event.message
            if event.look_up:
                self._unsure = event.message

    async def look(self, client: Client, seen: JobView, under_way: UnderWay) -> Wait | None:
        """One read, and a second one while nothing is being sent."""
        if seen.ended:
            return None
        if seen.state is JobState.PAUSED:
            return Wait(f"the job is paused; to resume: {self._again(f'job resume {seen.id}')}")
        holds = await client.store.providers.holds()
        known = [holds.providers[name] for name in self.providers if name in holds.providers]
        shut = [breaker for breaker in known if breaker.state is not BreakerState.CLOSED]
        # With several providers the others go on, so this is shown only when nothing else moves.
        if shut and (len(self.providers) == len(shut) or not under_way.sending):
            return self._of_breaker(shut[0], holds.now)
        if (no_key := self.missing_key()) is not None:
            return Wait(_short(no_key))
        if seen.held_by_budget:
            return Wait("the budget is reached")
        if under_way.sending or not seen.sealed:
            return None
        order = self._order
        for first in order.endpoints if order.call_instead is None else order.endpoint.starts:
            paces = (first.pace_name, order.end_of(first).pace_name)
            waiting = await client.store.item_views.job_waits(seen.id, first.name, self.accounts[first.name], paces)
            pace = await client.store.providers.pace(*paces)
            if wait := self.of_items(seen, under_way, waiting, first) or wait_for_day(pace, waiting.now):
                return wait
        return None

    def _of_breaker(self, breaker: Breaker, now: int) -> Wait:
        seconds = _seconds(breaker.until_at, now)
        if breaker.state is not BreakerState.HELD:
            return Wait(f"the provider is failing: {self._last(breaker.reason)}", seconds)
        why = f"the provider is held: {breaker.reason}"
        if breaker.until_at is None:
            return Wait(f"{why}; to resume: {self._again(f'provider release {breaker.provider}')}")
        key = self.providers[breaker.provider].key_env
        return Wait(f"{why}; fix it (the API key is in {key}) and run the same command again", seconds)

    def of_items(
        self, seen: JobView, under_way: UnderWay, waiting: Waiting, endpoint: Endpoint | None = None
    ) -> Wait | None:
        """While nothing is being sent: a pause, a look-up, another key, or the time until the next try."""
        endpoint = endpoint or self._order.endpoint
        now, left = waiting.now, seen.total - seen.done
        if waiting.resume_at is not None and waiting.resume_at > now + SHORT_WAIT_MS:
            return Wait("the provider asked for a pause", _seconds(waiting.resume_at, now))
        if waiting.strangers and waiting.strangers + under_way.waiting >= min(left, STRANGERS_MAX):
            tasks = show_count(waiting.strangers, "request")
            return Wait(f"{tasks} at the provider need the earlier API key; set {endpoint.key_env} to it")
        if waiting.lost and not seen.processing:
            cut = show_count(waiting.lost, "request")
            asked = endpoint.reconcilable or endpoint.lane is Lane.BATCH
            then = "being looked up at the provider" if asked else "running again"
            why = f", again: {_short(self._unsure)}" if asked and self._unsure else ""
            return Wait(f"{cut} interrupted earlier: {then}{why}", _seconds(waiting.ask_at, now))
        if waiting.due_at is not None and waiting.due_at > now + SHORT_WAIT_MS and under_way.waiting >= left:
            tries = show_count(left, "request")
            return Wait(f"{tries} waiting for a retry: {self._last('failed')}", _seconds(waiting.due_at, now))
        return None

    def _last(self, otherwise: str) -> str:
        return _short(self._trouble or otherwise)


def _short(said: str) -> str:
    return said if len(said) <= MESSAGE_CHARACTERS_MAX else f"{said[: MESSAGE_CHARACTERS_MAX - 1]}…"


def _seconds(at: int | None, now: int) -> float | None:
    return (at - now) / 1000 if at is not None and at > now else None
