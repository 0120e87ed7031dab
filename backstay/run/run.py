"""One run from its first line to its last result: submits while it works, and ends with every item accounted for."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Final, NamedTuple

from backstay.app import Backstay
from backstay.client import Client, Job
from backstay.clock import Tasks, wait_for_event
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.display import show_count
from backstay.core.errors import DatabaseUnreachable, ErrorCode
from backstay.core.events import Event, ItemsSettled, Trouble
from backstay.core.outcomes import ANSWER_FLAWS, Flaw
from backstay.core.states import JobState
from backstay.engine.parts import FirstReplies
from backstay.engine.worker import Worker
from backstay.llm.endpoint import Lane, account_of, key_of
from backstay.llm.intake import FileSurvey, RequestSource
from backstay.llm.lanes import Lanes
from backstay.run.collector import Collector, verify
from backstay.run.meter import RunState
from backstay.run.output import ResultFiles
from backstay.run.result_file import ended_of
from backstay.run.submission import Order, Submission, set_ceiling
from backstay.run.summary import Ending, Summary
from backstay.run.view import View
from backstay.store.items import STRANGERS_MAX, Waiting
from backstay.store.job_views import JobView, UnderWay

SHORT_MS: Final = 2_000  # what is over sooner is not worth a word
MESSAGE_CHARACTERS_MAX: Final = 160

Again = Callable[[str], str]  # a command to type next, on the same database


class Wait(NamedTuple):
    why: str
    seconds: float | None = None  # until the next try, if that is known


class Waits:
    """Listens to the engine for what the provider said last, and is asked why nothing moves."""

    def __init__(self, order: Order, again: Again) -> None:
        self._order = order
        self._again = again
        self.provider = order.endpoint.provider  # with its key, once that is known
        self._places = (order.endpoint.provider, *(endpoint.name for endpoint in order.endpoints))
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
        breaker = holds.providers.get(self.provider)
        if breaker is not None and breaker.state is not BreakerState.CLOSED:
            return self._of_breaker(breaker, holds.now)
        if seen.held_by_budget:
            return Wait("the budget is reached")
        if under_way.sending or not seen.sealed:
            return None
        first, last = self._order.endpoints[0], self._order.endpoints[-1]
        paces = (first.pace_name, last.pace_name)
        waiting = await client.store.items.waiting(seen.id, first.name, account_of(key_of(first)), paces)
        return self.of_items(seen, under_way, waiting)

    def _of_breaker(self, breaker: Breaker, now: int) -> Wait:
        seconds = _seconds(breaker.until_at, now)
        if breaker.state is not BreakerState.HELD:
            return Wait(f"the provider is failing: {self._last(breaker.reason)}", seconds)
        why = f"the provider is held: {breaker.reason}"
        if breaker.until_at is None:
            return Wait(f"{why}; to resume: {self._again(f'provider release {breaker.provider}')}")
        key = self._order.endpoint.key_env
        return Wait(f"{why}; fix it (the API key is in {key}) and run the same command again", seconds)

    def of_items(self, seen: JobView, under_way: UnderWay, waiting: Waiting) -> Wait | None:
        """While nothing is being sent: a pause, a look-up, another key, or the time until the next try."""
        now, left = waiting.now, seen.total - seen.done
        if waiting.resume_at is not None and waiting.resume_at > now + SHORT_MS:
            return Wait("the provider asked for a pause", _seconds(waiting.resume_at, now))
        if waiting.strangers and waiting.strangers + under_way.waiting >= min(left, STRANGERS_MAX):
            tasks = show_count(waiting.strangers, "request")
            key = self._order.endpoint.key_env
            return Wait(f"{tasks} at the provider need the earlier API key; set {key} to it")
        if waiting.lost and not seen.processing:
            cut = show_count(waiting.lost, "request")
            endpoint = self._order.endpoint
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


LOOK_SECONDS = 0.2
CATCH_UP_SECONDS = 15.0
REFUSED_SECONDS_MAX = 30.0

Show = Callable[[int], AbstractContextManager[View]]  # opens the view of a job


class Run:
    """One life: `go`. `stop` asks it to end; `hurry`, to end at once."""

    def __init__(
        self,
        app: Backstay,
        order: Order,
        source: RequestSource,
        surveyed: FileSurvey,
        again: Again = "backstay {}".format,
    ) -> None:
        self._app = app
        self._order = order
        self._surveyed = surveyed
        self._submission = Submission(order, source, surveyed)
        self._waits = Waits(order, again)
        self._trial = None if order.wait else FirstReplies(surveyed.requests)
        self._tasks = Tasks()
        self._stopping = asyncio.Event()
        self._worker: Worker | None = None
        self._caught_up_at = float("-inf")

    def stop(self) -> None:
        self._stopping.set()

    def hurry(self) -> None:
        if self._worker is not None:
            self._worker.hurry()

    async def go(self, show: Show) -> Summary:
        """`show` opens the view of the job, which stays open to the last word."""
        with ExitStack() as views:
            return await self._go(lambda job_id: views.enter_context(show(job_id)))

    async def _go(self, show: Callable[[int], View]) -> Summary:
        client = await self._app.open()
        started = client.clock.monotonic()
        job_id = await self._submission.find(client)
        lanes = Lanes(self._app, self._order.concurrency)
        with ResultFiles(self._order.out, job_id, self._order.errors) as files:
            if job_id is not None:
                await verify(client.store, files, job_id)  # before anything is changed
            try:
                for endpoint in reversed(self._order.endpoints):
                    self._waits.provider = (await lanes.open(endpoint)).provider
                await self._submission.announce(client)
                await self._release(client, job_id is not None)
                if job_id is not None:
                    await self._revive(client, job_id)
                job, ending, view = await self._work(client, files, show)
            finally:
                await lanes.close()
        summary = await self._summary(client, job, ending, files, client.clock.monotonic() - started)
        with suppress(BrokenPipeError):
            view.end(summary)
        return summary

    async def _release(self, client: Client, again: bool) -> None:
        """A person starts the run, so a hold that has an end is released now; if they run it again, any hold is."""
        provider = self._waits.provider
        known = (await client.store.providers.holds()).providers.get(provider)
        if known is not None and known.state is BreakerState.HELD and (again or known.until_at is not None):
            await client.store.providers.release(provider)

    async def _revive(self, client: Client, job_id: int) -> None:
        """A person runs it again: what was held back is tried again, under the new budget, or the earlier one."""
        store = client.store
        await set_ceiling(client, job_id, self._order)
        view = await client.job(job_id).show()
        if view.state is JobState.PAUSED:
            await client.job(job_id).resume()
        if not self._order.retry_failed:
            return
        if any(group.flaw == Flaw.LATE for group in await store.job_views.failures(job_id)):
            await client.job(job_id).accept_late()  # what is there need not be paid for again
        letters = await store.dead_letters.groups(client.owner, job_id)  # what is archived is not here to be retried
        if letters.items:
            await client.job(job_id).retry()

    async def _work(self, client: Client, files: ResultFiles, show: Callable[[int], View]) -> tuple[Job, Ending, View]:
        submitting = self._tasks.spawn(self._submission.send(client, self._wake))
        ending = Ending.INTERRUPTED
        try:
            job = client.job(await self._submission.opened(submitting))
            files.job_id = job.id
            collector = Collector(client.store, files, job.id, client.owner, self._order.dedupe)
            if not self._order.ordered:
                self._app.bus.subscribe(collector)
            self._app.bus.subscribe(self._waits)
            view = show(job.id)
            # Only this job: nobody has asked to pay for another unfinished job on this database now.
            # What is under way is paid for: it may finish, unless the person asks a second time.
            grace = max(self._app.limits.cancel_grace_seconds, self._app.limits.shutdown_seconds)
            working = self._app.working(self._order.slots, job.id, trial=self._trial, grace_seconds=grace)
            async with working as self._worker:
                try:
                    with suppress(BrokenPipeError):  # a reader of our output who has had enough interrupts it
                        ending = await self._watch(client, job, collector, submitting, view)
                        view.show(await self._state(client, await job.show()), client.clock.monotonic())
                finally:
                    await _ended(submitting)
        finally:
            await _ended(submitting)
        if self._names_known(submitting):
            with suppress(BrokenPipeError):
                await (collector.finish_ordered() if self._order.ordered else collector.finish())
        if ending in (Ending.INTERRUPTED, Ending.REFUSED):
            await self._lay_aside(client, job)
        return job, ending, view

    def _wake(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    async def _lay_aside(self, client: Client, job: Job) -> None:
        """Pauses a run that only this command was at: workers that come later must not go on with it unasked."""
        lease_ms = self._app.limits.lease_ms
        others = [worker for worker in await client.store.workers.page() if worker.alive(lease_ms)]
        view = await job.show()
        if not others and not view.ended and view.stop_reason is None:
            await job.pause()

    def _names_known(self, submitting: "asyncio.Task[int]") -> bool:
        """Whether all are known who share an answer: no line may be written before, because they stand beside it."""
        if not self._order.dedupe:
            return True
        return submitting.done() and not submitting.cancelled() and submitting.exception() is None

    async def _watch(
        self, client: Client, job: Job, collector: Collector, submitting: "asyncio.Task[int]", view: View
    ) -> Ending:
        while not self._stopping.is_set():
            if submitting.done():
                submitting.result()
            seen = await job.show()
            view.show(await self._state(client, seen), client.clock.monotonic())
            if self._names_known(submitting):
                await self._collect(client, seen, collector)
                if seen.ended:
                    return Ending.DONE
                if seen.held_by_budget and seen.sealed:
                    return Ending.BUDGET
            if self._all_refused():
                return Ending.REFUSED
            self._require_database()
            await wait_for_event(self._stopping, LOOK_SECONDS)
        return Ending.INTERRUPTED

    def _all_refused(self) -> bool:
        """Whether the first replies were all the same refusal, and nothing under way can show the opposite."""
        refused = self._trial is not None and self._trial.enough
        return refused and self._worker is not None and self._worker.engine.flights.running == 0

    def _require_database(self) -> None:
        """A full disk is not waited out for ever: what is paid for meanwhile could not be kept."""
        refusal = self._worker.refusal if self._worker is not None else None
        if refusal is not None and refusal.last - refusal.since >= REFUSED_SECONDS_MAX:
            hint = "stored data is safe; fix the cause, for example a full disk, and run the same command again"
            raise DatabaseUnreachable(f"the database refuses writes: {refusal.message}", hint=hint)

    async def _collect(self, client: Client, seen: JobView, collector: Collector) -> None:
        if self._order.ordered:
            return
        await collector.write()
        now = client.clock.monotonic()
        if seen.done > collector.written and now >= self._caught_up_at + CATCH_UP_SECONDS:
            self._caught_up_at = now  # other workers have ended some as well
            await collector.catch_up()

    async def _state(self, client: Client, seen: JobView) -> RunState:
        under_way = await client.store.job_views.under_way(seen.id)
        refusal = self._worker.refusal if self._worker is not None and not seen.ended else None
        if refusal is None:
            wait = await self._waits.look(client, seen, under_way)
        else:
            wait = Wait(f"the database refuses writes: {refusal.message}")
        growing = not seen.sealed and not seen.ended
        return RunState(
            total=max(self._submission.items, seen.total) if growing else seen.total,
            succeeded=seen.succeeded,
            failed=seen.failed,
            cancelled=seen.cancelled + seen.skipped,
            submitted=seen.total if growing else None,
            running=under_way.sending + seen.processing,
            retrying=under_way.waiting,
            held=None if wait is None else wait.why,
            held_seconds=None if wait is None else wait.seconds,
            stopping=self._stopping.is_set(),
            repeats=seen.repeats,
            **{name: getattr(seen, name) for name in ANSWER_FLAWS},
            input_tokens=seen.input_tokens,
            output_tokens=seen.output_tokens,
            spent_micros=seen.spent_micros if self._submission.priced else None,
            reserved_micros=seen.reserved_micros + seen.unknown_micros,
            budget_micros=seen.budget_micros,
        )

    async def _summary(self, client: Client, job: Job, ending: Ending, files: ResultFiles, seconds: float) -> Summary:
        seen = await job.show()
        groups = await client.store.job_views.failures(job.id) if seen.failed else []
        examples = [group.example for group in groups]
        return Summary(
            job_id=job.id,
            ending=ending,
            total=max(seen.total, self._submission.items) if not seen.sealed else seen.total,
            succeeded=seen.succeeded,
            failed=seen.failed,
            cancelled=seen.cancelled + seen.skipped,
            seconds=seconds,
            out="stdout" if str(files.out) == "-" else str(files.out),
            errors="stderr" if files.errors is None else str(files.errors),
            input_tokens=seen.input_tokens,
            output_tokens=seen.output_tokens,
            spent_micros=seen.spent_micros if self._submission.priced else None,
            reserved_micros=seen.reserved_micros + seen.unknown_micros,
            unknown_micros=seen.unknown_micros,
            budget_micros=seen.budget_micros,
            refusal=self._trial.refusal if self._trial is not None and ending is Ending.REFUSED else None,
            next_micros=await client.store.jobs.next_cost(job.id) if ending is Ending.BUDGET else None,
            repeats=seen.repeats,
            **{name: getattr(seen, name) for name in ANSWER_FLAWS},
            unknown=sum(group.items for group in groups if group.flaw == Flaw.UNKNOWN),
            late=sum(group.items for group in groups if group.flaw == Flaw.LATE),
            copies=self._submission.copies,
            skipped_lines=self._surveyed.bad_count,
            groups=groups,
            examples={row.id: ended_of(row) for row in await client.store.results.of_items(examples)},
        )


async def _ended(submitting: "asyncio.Task[int]") -> None:
    """Nothing more comes in; what became of it is for others to ask."""
    submitting.cancel()
    await asyncio.gather(submitting, return_exceptions=True)
