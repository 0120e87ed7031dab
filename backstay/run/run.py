"""One run from its first line to its last result: submits while it works, and ends with every item accounted for."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import NamedTuple

from backstay.app import Backstay
from backstay.client import Client, Job
from backstay.clock import Tasks, wait_for_event
from backstay.core.breaker import BreakerState
from backstay.core.display import show_count
from backstay.core.errors import DatabaseUnreachable, NotAllowed, UsageError
from backstay.core.ids import item_id
from backstay.core.models import ANSWER_FLAWS, Flaw
from backstay.core.states import ItemState
from backstay.engine.gate import FirstReplies
from backstay.engine.worker import Worker
from backstay.llm.bodies import object_of
from backstay.llm.chat_format import answer_text
from backstay.llm.intake import FileSurvey, RequestSource
from backstay.llm.lanes import Lanes
from backstay.llm.lines import unseal
from backstay.llm.repeated_requests import show_known
from backstay.run.collector import AnswerPlaces, ChatReplies, Collector, verify
from backstay.run.output import ResultFiles
from backstay.run.result_file import ended_request
from backstay.run.run_state import Again, RunState, Wait, Waits
from backstay.run.submission import Order, Submission, set_ceiling
from backstay.run.summary import Ending, Summary
from backstay.run.view import View
from backstay.store.item_views import is_out_of_money
from backstay.store.job_views import JobView
from backstay.store.workers import WorkerView

LOOK_SECONDS = 0.2
STORED_SECONDS = 10.0  # at most, before the view shows how many requests are known
CATCH_UP_SECONDS = 15.0
REFUSED_SECONDS_MAX = 30.0

Show = Callable[[int], AbstractContextManager[View]]  # opens the view of a job


class Run:
    """One life: `run`. `stop` asks it to end; `stop_now`, to end at once."""

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
        self._places = AnswerPlaces(order.endpoints) if order.has_fallbacks else None
        self._trial = None if order.wait else FirstReplies(min(surveyed.requests, order.try_first or surveyed.requests))
        self._tasks = Tasks()
        self._stopping = asyncio.Event()
        self._worker: Worker | None = None
        self._caught_up_at = float("-inf")

    def stop(self) -> None:
        self._stopping.set()

    def stop_now(self) -> None:
        if self._worker is not None:
            self._worker.stop_now()

    async def run(self, show: Show) -> Summary:
        """`show` opens the view of the job, which stays open until the summary is shown."""
        with ExitStack() as views:
            return await self._go(lambda job_id: views.enter_context(show(job_id)))

    async def _go(self, show: Callable[[int], View]) -> Summary:
        client = await self._app.open()
        started = client.clock.monotonic()
        job_id = await self._submission.find(client)
        if self._order.try_first is not None:
            await require_alone(client)
        lanes = Lanes(self._app, self._order.concurrency, self._order.check)
        out = self._order.out
        with nullcontext() if out is None else ResultFiles(out, job_id, self._order.errors) as files:
            if job_id is not None and files is not None:
                await verify(client.store, files, job_id)  # before anything is changed
            try:
                for endpoint in self._order.endpoints:
                    handler = await lanes.open(endpoint)
                    self._waits.providers[handler.provider] = endpoint
                    self._waits.accounts[endpoint.name] = handler.account or ""
                self._waits.missing_key = lanes.missing_key
                await lanes.require_keys()
                await self._submission.announce(client)
                await self._release(client, job_id is not None)
                if job_id is not None:
                    await self._revive(client, job_id)
                knows = job_id is None and self._order.reuse.wanted and await client.store.answers.any()
                job, ending, view = await self._work(client, files, show, knows)
            finally:
                await lanes.close()
        summary = await self._summary(client, job, ending, files, client.clock.monotonic() - started)
        with suppress(BrokenPipeError):
            summary = summary if self._order.at_end is None else await self._order.at_end(client, summary)
            view.end(summary)
        return summary

    async def _release(self, client: Client, again: bool) -> None:
        """A person starts the run, so a hold with a time limit is released now. If they run the same command again,
        every hold is."""
        held = (await client.store.providers.holds()).providers
        for provider in self._waits.providers:
            known = held.get(provider)
            if known is not None and known.state is BreakerState.HELD and (again or known.until_at is not None):
                await client.store.providers.release(provider)

    async def _revive(self, client: Client, job_id: int) -> None:
        """A person runs the same command again: failed requests are tried again, under the new budget or the earlier
        one."""
        store = client.store
        await set_ceiling(client, job_id, self._order)
        if not self._order.retry_failed:
            return
        view = await client.job(job_id).show()
        if any(group.flaw == Flaw.LATE for group in await store.job_views.failures(job_id)):
            await client.job(job_id).accept_late()  # so they are not paid for again
        letters = await store.dead_letters.groups(client.owner, job_id)  # archived items cannot be retried
        if view.ended and 0 < letters.items < (least := self._order.batch_requests_min):
            few = f"{show_count(letters.items, 'request')} failed, and {self._order.endpoint.api} takes no batch"
            hint = "run the same command with --lane call and another --out"
            raise UsageError(f"{few} with fewer than {least}", hint=hint)
        if letters.items:
            await client.job(job_id).retry()

    async def _work(
        self, client: Client, files: ResultFiles | None, show: Callable[[int], View], knows: bool
    ) -> tuple[Job, Ending, View]:
        """`knows`: there are earlier answers, so the view shows how many of them are used before the rest is sent."""
        submitting = self._tasks.spawn(self._submission.send(client, self._wake))
        ending = Ending.INTERRUPTED
        try:
            job = client.job(await self._submission.wait_for_job(submitting))
            collector = None if files is None else self._collector(client, files, job)
            self._app.bus.subscribe(self._waits)
            view = show(job.id)
            if knows:
                await self._tell_known(client, job, submitting, view)
            # Only this job: nobody has asked to pay for another unfinished job of this database. Calls under way are
            # paid for, so they may finish, unless the person interrupts a second time.
            grace = max(self._app.limits.cancel_grace_seconds, self._app.limits.shutdown_seconds)
            first = self._order.try_first
            working = self._app.working(self._order.slots, job.id, None, self._trial, grace, first)
            async with working as self._worker:
                # After the worker is registered: an earlier run of this job, which ends just now, pauses it no more.
                if await client.store.workers.take_up(job.id, client.owner):
                    await client.store.jobs.unpark(job.id)
                    self._wake()
                try:
                    with suppress(BrokenPipeError):  # the reader of our output has closed the pipe
                        ending = await self._watch(client, job, collector, submitting, view)
                        view.show(await self._state(client, await job.show()), client.clock.monotonic())
                finally:
                    await _cancel_submission(submitting)
        finally:
            await _cancel_submission(submitting)
        if collector is not None and self._names_known(submitting):
            with suppress(BrokenPipeError):
                await (collector.finish_ordered() if self._order.ordered else collector.finish())
        if ending in (Ending.INTERRUPTED, Ending.REFUSED, Ending.TRIED):
            # Only this command sent the job: workers that start later must not continue it by themselves.
            await client.store.workers.pause_unattended(job.id, client.owner, client.limits.lease_ms)
        return job, ending, view

    def _collector(self, client: Client, files: ResultFiles, job: Job) -> Collector:
        files.job_id = job.id
        chat = ChatReplies(self._order.endpoints) if self._order.replies_as_chat else None
        collector = Collector(client.store, files, job.id, client.owner, self._order.dedupe, chat, self._places)
        if not self._order.ordered:
            self._app.bus.subscribe(collector)
        return collector

    async def _tell_known(self, client: Client, job: Job, submitting: "asyncio.Task[int]", view: View) -> None:
        """Waits until all requests are stored, but not for ever: a big file begins to be sent before that."""
        end = client.clock.monotonic() + STORED_SECONDS
        while not submitting.done() and not self._stopping.is_set() and client.clock.monotonic() < end:
            await wait_for_event(self._stopping, LOOK_SECONDS / 10)
        seen = await job.show()
        if seen.reused:
            view.say(show_known(seen.reused, seen.total, "" if seen.sealed else "the first "))
        if self._trial is not None and seen.sealed:
            self._trial = FirstReplies(max(seen.total - seen.reused, 1))

    def _wake(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    def _names_known(self, submitting: "asyncio.Task[int]") -> bool:
        """Whether all requests that share an answer are known. Lines of copies stand beside the line of their item, so
        nothing is written before that."""
        stored = submitting.done() and not submitting.cancelled() and submitting.exception() is None
        return stored or not self._order.dedupe

    async def _watch(
        self, client: Client, job: Job, collector: Collector | None, submitting: "asyncio.Task[int]", view: View
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
                if seen.sealed and await is_out_of_money(client.store, seen):
                    return Ending.BUDGET
                if seen.sealed and await are_tried(client, job.id, self._order.try_first):
                    return Ending.TRIED
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
        """Raises if the database was migrated meanwhile, or has refused writes for long, for example because the disk
        is full: answers that are paid for could not be stored."""
        if self._worker is not None and self._worker.outdated is not None:
            raise self._worker.outdated
        refusal = self._worker.refusal if self._worker is not None else None
        if refusal is not None and refusal.last - refusal.since >= REFUSED_SECONDS_MAX:
            hint = "stored data is safe; fix the cause, for example a full disk, and run the same command again"
            raise DatabaseUnreachable(f"the database refuses writes: {refusal.message}", hint=hint)

    async def _collect(self, client: Client, seen: JobView, collector: Collector | None) -> None:
        if self._order.ordered or collector is None:
            return
        await collector.write()
        now = client.clock.monotonic()
        if seen.done > collector.written and now >= self._caught_up_at + CATCH_UP_SECONDS:
            self._caught_up_at = now  # other workers have ended items too
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
            reused=seen.reused,
            repeats=seen.repeats,
            **{name: getattr(seen, name) for name in ANSWER_FLAWS},
            input_tokens=seen.input_tokens,
            output_tokens=seen.output_tokens,
            spent_micros=self._spent_micros(seen),
            reserved_micros=seen.reserved_micros + seen.unknown_micros,
            budget_micros=seen.budget_micros,
        )

    def _spent_micros(self, seen: JobView) -> int | None:
        """None if a price is not known, unless nothing was sent."""
        return seen.spent_micros if self._submission.priced or seen.reused == seen.total else None

    async def _summary(
        self, client: Client, job: Job, ending: Ending, files: ResultFiles | None, seconds: float
    ) -> Summary:
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
            out="" if files is None else "stdout" if str(files.out) == "-" else str(files.out),
            errors="" if files is None else "stderr" if files.errors is None else str(files.errors),
            input_tokens=seen.input_tokens,
            output_tokens=seen.output_tokens,
            spent_micros=self._spent_micros(seen),
            reserved_micros=seen.reserved_micros + seen.unknown_micros,
            unknown_micros=seen.unknown_micros,
            budget_micros=seen.budget_micros,
            batch_requests_min=self._order.batch_requests_min,
            refusal=self._trial.refusal if self._trial is not None and ending is Ending.REFUSED else None,
            next_micros=await client.store.job_views.next_cost(job.id) if ending is Ending.BUDGET else None,
            reused=seen.reused,
            repeats=seen.repeats,
            **{name: getattr(seen, name) for name in ANSWER_FLAWS},
            unknown=sum(group.items for group in groups if group.flaw == Flaw.UNKNOWN),
            late=sum(group.items for group in groups if group.flaw == Flaw.LATE),
            answered=await self._count_answers(client, job.id),
            on_hold=await self._on_hold(client),
            copies=self._submission.copies,
            skipped_lines=self._surveyed.bad_count,
            groups=groups,
            examples={row.id: ended_request(row) for row in await client.store.results.of_items(examples)},
        )

    async def _on_hold(self, client: Client) -> dict[str, str]:
        if self._places is None:  # without fallbacks, a run does not end while its provider is held
            return {}
        holds = (await client.store.providers.holds()).providers.values()
        held = {breaker.provider: breaker.reason for breaker in holds if breaker.state is BreakerState.HELD}
        return {endpoint.api: held[name] for name, endpoint in self._waits.providers.items() if name in held}

    async def _count_answers(self, client: Client, job_id: int) -> dict[str, int]:
        if self._places is None:
            return {}
        return self._places.count(await client.store.job_views.count_by_handler(job_id))


async def _cancel_submission(submitting: "asyncio.Task[int]") -> None:
    """Ends the submission. Its error, if any, is not raised here."""
    submitting.cancel()
    await asyncio.gather(submitting, return_exceptions=True)


# `--try`: the first requests only, so that a person sees answers and cost before the rest is sent


class TriedRequest(NamedTuple):
    """One of the first requests, with its answer or error."""

    custom_id: str
    url: str
    body: str
    answer: str | None
    error: str | None
    cost_micros: int | None


async def _others(client: Client) -> list[WorkerView]:
    return [worker for worker in await client.store.workers.page() if worker.alive(client.limits.lease_ms)]


async def require_alone(client: Client) -> None:
    """Raises if other workers are alive: they would send all stored requests."""
    if others := await _others(client):
        hint = "stop them, or use another database with --db"
        who = show_count(len(others), "other worker")
        raise NotAllowed(f"--try cannot hold back the rest: {who} of this database would send it", hint=hint)


async def are_tried(client: Client, job_id: int, first: int | None) -> bool:
    """Whether the first requests have all ended."""
    if first is None:
        return False
    async for page in client.store.results.ended_items(job_id):
        return sum(1 for item, _ in page if item < item_id(job_id, first)) >= first
    return False


async def read_tried(client: Client, job_id: int, first: int) -> list[TriedRequest]:
    items = [item_id(job_id, position) for position in range(first)]
    found = []
    for row in await client.store.results.answers_of(items):
        request, ended = unseal(row.body), ended_request(row)
        ok = row.state == ItemState.SUCCEEDED
        answer = answer_text((object_of(row.result or "") or {}).get("body")) if ok else None
        error = None if ok else ended.message or ended.code or "failed"
        found.append(TriedRequest(request.custom_id, request.url, request.body, answer, error, row.cost_micros))
    return found
