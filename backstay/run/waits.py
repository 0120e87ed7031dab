"""Why nothing moves in a run: a hold, a pause, a budget, a look-up, or the time until the next try."""

from collections.abc import Callable
from typing import Final

from backstay.client import Client
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.display import show_count
from backstay.core.errors import ErrorCode
from backstay.core.events import Event, ItemsSettled, Trouble
from backstay.core.states import JobState
from backstay.llm.endpoint import Endpoint, Lane
from backstay.run.meter import Wait, wait_for_day
from backstay.run.submission import Order
from backstay.store.items import STRANGERS_MAX, Waiting
from backstay.store.job_views import JobView, UnderWay

SHORT_MS: Final = 2_000  # what is over sooner is not worth a word
MESSAGE_CHARACTERS_MAX: Final = 160

Again = Callable[[str], str]  # a command to type next, on the same database


class Waits:
    """Listens to the engine for what the provider said last, and is asked why nothing moves."""

    def __init__(self, order: Order, again: Again) -> None:
        self._order = order
        self._again = again
        self.providers: dict[str, Endpoint] = {}  # with their keys, once these are known
        self.accounts: dict[str, str] = {}  # of these keys, by the names of the endpoints
        self.missing_key: Callable[[], str | None] = lambda: None
        self._places = [name for endpoint in order.endpoints for name in (endpoint.provider, endpoint.name)]
        self._trouble: str | None = None
        self._unsure: str | None = None  # why a look-up came to nothing

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
        # Of several providers the others go on: it is worth a word when nothing else moves.
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
            waiting = await client.store.items.waiting(seen.id, first.name, self.accounts[first.name], paces)
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
        if waiting.resume_at is not None and waiting.resume_at > now + SHORT_MS:
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
        if waiting.due_at is not None and waiting.due_at > now + SHORT_MS and under_way.waiting >= left:
            tries = show_count(left, "request")
            return Wait(f"{tries} waiting for a retry: {self._last('failed')}", _seconds(waiting.due_at, now))
        return None

    def _last(self, otherwise: str) -> str:
        return _short(self._trouble or otherwise)


def _short(said: str) -> str:
    return said if len(said) <= MESSAGE_CHARACTERS_MAX else f"{said[: MESSAGE_CHARACTERS_MAX - 1]}…"


def _seconds(at: int | None, now: int) -> float | None:
    return (at - now) / 1000 if at is not None and at > now else None
