"""The relay of webhooks: takes events from the outbox and delivers them until the receivers have confirmed them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from backstay.clock import Clock, Tasks, new_id, new_random, wait_for_event
from backstay.core.errors import BackstayError, HandlerError
from backstay.core.events import Trouble
from backstay.core.failures import one_line, parse_retry_after
from backstay.core.signing import Signer, webhook_headers
from backstay.handlers.outgoing import Outgoing, PostReply
from backstay.observe.bus import Bus
from backstay.store.webhooks import DeliveryResult, DueDelivery, Webhook, Webhooks, delivery_row

# Waits after the first try: 5 s, 5 and 30 minutes, then hours; together a little more than three days.
LADDER_SECONDS: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
SPREAD: Final = 0.1  # so that deliveries that failed together are not retried together
TIMEOUT_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0
FORGET_SECONDS: Final = 600.0
AT_ONCE_MAX: Final = 40
AT_ONCE_EACH: Final = 5  # to one webhook: a slow one must not delay the others
GONE: Final = 410


class Relay:
    """One life: start, stop. Any number of processes may run one each."""

    def __init__(self, webhooks: Webhooks, outgoing: Outgoing, signer: Signer, clock: Clock, bus: Bus) -> None:
        self._webhooks = webhooks
        self._outgoing = outgoing
        self._signer = signer
        self._clock = clock
        self._bus = bus
        self._rng = new_random()
        self._tasks = Tasks()
        self._under_way: dict[asyncio.Task[None], str] = {}
        self._freed = asyncio.Event()
        self._past = ""  # the webhook that had its turn last
        self._forget_at = float("-inf")
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = self._tasks.spawn(self._run())

    async def stop(self) -> None:
        """Deliveries under way may finish within their time-out; the next relay takes over the rest."""
        if self._loop is not None:
            self._loop.cancel()
        await asyncio.gather(*filter(None, [self._loop]), *self._under_way, return_exceptions=True)

    async def run_once(self) -> int:
        """Creates deliveries for new events and makes all that are due; returns how many attempts it made."""
        while await self._tell_failed() + await self._webhooks.create_deliveries():
            pass
        tries = 0
        while begun := await self._begin():
            tries += begun
            await asyncio.gather(*self._under_way)
        return tries

    async def _run(self) -> None:
        while True:
            pause = LOOK_SECONDS
            self._freed.clear()
            try:
                more = await self._tell_failed()
                await self._webhooks.create_deliveries()
                if await self._begin() or more:
                    pause = 0.0
                await self._forget()
            except Exception as error:
                self._bus.emit(Trouble("webhooks", f"{type(error).__name__}: {error}"))
                pause = AGAIN_SECONDS
            if pause == LOOK_SECONDS and self._under_way:
                await wait_for_event(
                    self._freed, LOOK_SECONDS
                )  # a receiver with room again may have more events waiting
            else:
                await self._clock.sleep(pause)

    async def _tell_failed(self) -> int:
        """Trouble with failed items does not keep other events from leaving."""
        try:
            return await self._webhooks.tell_failed()
        except Exception as error:
            self._bus.emit(Trouble("failed items", f"{type(error).__name__}: {error}"))
            return 0

    async def _begin(self) -> int:
        """Starts due deliveries, as many as there is room for: one per webhook, in turns."""
        room = AT_ONCE_MAX - len(self._under_way)
        if room <= 0:
            return 0
        each = Counter(self._under_way.values())
        busy = [webhook for webhook, number in each.items() if number >= AT_ONCE_EACH]
        dues, self._past = await self._webhooks.claim(room, busy, self._past)
        for due in dues:
            task = self._tasks.spawn(self._deliver(due))
            self._under_way[task] = due.webhook_id
            task.add_done_callback(self._note_answer)
        return len(dues)

    def _note_answer(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        self._freed.set()

    async def _deliver(self, due: DueDelivery) -> None:
        try:
            told = await self._try(due)
            if await self._webhooks.settle(due, told):
                self._bus.emit(
                    Trouble("webhooks", f"{due.webhook_id} does not accept events any more and was disabled")
                )
        except BackstayError as error:
            # Its lease runs out, and it is delivered again: the receiver recognises a repeat by the event id.
            self._bus.emit(Trouble("webhooks", f"{type(error).__name__}: {error}"))

    async def _try(self, due: DueDelivery) -> DeliveryResult:
        if due.url is None:
            return DeliveryResult(False, error="the webhook is disabled")
        try:
            answer = await self._outgoing.post(due.url, due.body, self._headers(due), TIMEOUT_SECONDS)
        except HandlerError as error:
            return DeliveryResult(False, error=one_line(error.message), delay_ms=next_try_ms(due.tries, self._rng))
        return judge_answer(answer, due.tries, self._rng, self._clock.now_ms())

    async def send_sample(self, webhook: Webhook, event_type: str) -> PostReply:
        """Sends a sample event to a webhook, now and once."""
        now = self._clock.now_ms()
        *_, event_id, _, body = delivery_row(
            webhook.id, webhook.owner, f"evt_{new_id()}", event_type, {"id": "sample"}, now
        )
        sample = DueDelivery(0, webhook.id, event_id, event_type, body, 1, now, webhook.url, webhook.secret_version, 0)
        return await self._outgoing.post(webhook.url, body, self._headers(sample), TIMEOUT_SECONDS)

    def _headers(self, due: DueDelivery) -> dict[str, str]:
        versions = [due.secret_version, due.secret_version - 1][: 1 + due.two_secrets]
        secrets = [secret for version in versions for secret in self._signer.secrets_of(due.webhook_id, version)]
        return webhook_headers(secrets, due.event_id, self._clock.now_ms(), due.body)

    async def _forget(self) -> None:
        if self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + FORGET_SECONDS
            await self._webhooks.forget()


def judge_answer(answer: PostReply, tries: int, rng: Random, now_ms: int) -> DeliveryResult:
    """Only a 2xx counts as received: a redirect might lead anywhere."""
    if 200 <= answer.status <= 299:
        return DeliveryResult(True, answer.status)
    words = f": {answer.text}" if answer.text else ""
    error = one_line(f"the webhook answered with status {answer.status}{words}")
    if answer.status == GONE:
        return DeliveryResult(False, GONE, error, gone=True)
    asked_ms = parse_retry_after(answer.retry_after, now_ms) if answer.retry_after else None
    return DeliveryResult(False, answer.status, error, next_try_ms(tries, rng, asked_ms))


def next_try_ms(tries: int, rng: Random, asked_ms: int | None = None) -> int | None:
    """How long until the next try; None after the last one."""
    if tries > len(LADDER_SECONDS):
        return None
    step_ms = LADDER_SECONDS[tries - 1] * 1_000
    return max(int(step_ms * rng.uniform(1, 1 + SPREAD)), min(asked_ms or 0, LADDER_SECONDS[-1] * 1_000))


@asynccontextmanager
async def relaying(relay: Relay) -> AsyncIterator[None]:
    relay.start()
    try:
        yield
    finally:
        await relay.stop()
