"""The client of submitters: submit, wait, read results, pause, resume, cancel, retry. And the result of one item."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypedDict, TypeGuard, Unpack

from backstay.client.chunks import BODY_CHARACTERS_MAX as BODY_CHARACTERS_MAX
from backstay.client.chunks import Items as Items
from backstay.client.chunks import chunks_of, encode_list, first_chunk, is_key, unique_key
from backstay.clock import Clock, new_incarnation
from backstay.core.errors import NotAllowed, NotFound, UsageError, WaitTimeout
from backstay.core.events import Event, ItemsStopped, ItemsSubmitted, JobEnded
from backstay.core.failures import one_line, policy_named
from backstay.core.ids import JOB_IDS_MAX, PRIORITY_MAX, position_of, show_item
from backstay.core.limits import Limits
from backstay.core.models import Flaw, read_delivery
from backstay.core.states import ItemState, StopReason
from backstay.handlers.handler import Handler, Weighed, name_of
from backstay.observe.bus import Bus
from backstay.store.item_views import is_out_of_money
from backstay.store.job_views import JobView
from backstay.store.jobs import MoneyVerdict
from backstay.store.results import ResultRow
from backstay.store.store import Store
from backstay.store.submissions import SQL_DIGEST, AfterItems, Chunk, NewJob, OpenJob, Search, check_same

SHOWN_CHARACTERS_MAX = 300  # of a result, at a prompt

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V_co = TypeVar("V_co", covariant=True, default=Any)  # what the handler of a job returns
else:
    from typing import TypeVar

    V_co = TypeVar("V_co", covariant=True)


class Result(NamedTuple, Generic[V_co]):
    """One ended item: `value` when it succeeded, an error code and a message when it did not.

    `value` has the type that the handler returns if the job was submitted with the handler itself. Of a job that was
    submitted by name or found by its id, it is plain JSON.
    """

    item: str
    position: int
    state: ItemState
    payload: Any
    value: V_co | None
    error_code: str | None
    message: str | None
    attempts: int
    repeats: int
    flaw: Flaw | None  # what is wrong besides the state; UNKNOWN: it may have been processed and paid

    @property
    def ok(self) -> bool:
        """Whether the item succeeded: then `value` is what its handler returned."""
        return self.state is ItemState.SUCCEEDED

    def __repr__(self) -> str:
        """Short enough for a prompt: a large value is cut, a failure shows its reason."""
        value = repr(self.value) if self.ok else ""
        why = [part for part in (self.error_code, self.message, value) if part]
        said = ": ".join([f"{self.item} {self.state}", *why])
        return f"<Result {said if len(said) <= SHOWN_CHARACTERS_MAX else said[: SHOWN_CHARACTERS_MAX - 1] + '…'}>"


def make_result(row: ResultRow, load: Callable[[str], V_co]) -> Result[V_co]:
    return Result(
        item=show_item(row.id),
        position=position_of(row.id),
        state=ItemState(row.state),
        payload=json.loads(row.body),
        value=load(row.result) if row.result is not None and row.state == ItemState.SUCCEEDED else None,
        error_code=row.error_code,
        message=row.message,
        attempts=row.attempt_count,
        repeats=row.repeats,
        flaw=Flaw(row.flaw) if row.flaw else None,
    )


DEADLINE_SECONDS_MAX = 366 * 86_400
BUDGET_MICROS_MAX = (1 << 62) - 1
AFTER_JOBS_MAX = 100
WAIT_SECONDS_MIN, WAIT_SECONDS_MAX = 0.0005, 0.1
WAIT_SHARE = 0.1  # of the time waited so far: the end is noticed at most this late, and a long wait polls rarely


class JobLike(Protocol):
    """A job, of either API."""

    id: int


After = JobLike | int | Sequence[JobLike | int]


class SubmitOptions(TypedDict, total=False):
    """The options of `submit` besides the handler and its items: the fields of `Options`, by name."""

    priority: int
    deadline_seconds: float | None
    idempotency_key: str | None
    retry: str | None
    delivery: str | None
    label: str | None
    budget_micros: int | None
    handler_then: str | None
    move_seconds: float | None
    fallback: str | Handler | None
    after: After | None
    after_items: str
    unique: str | None
    unique_seconds: float | None
    item_key: str | Callable[[Any], object] | None


@dataclass(frozen=True, slots=True)
class Options:
    """How a job's items are treated; the handler's rules fill in what is left out."""

    priority: int = 0
    deadline_seconds: float | None = None
    idempotency_key: str | None = None
    retry: str | None = None
    delivery: str | None = None
    label: str | None = None
    budget_micros: int | None = None
    handler_then: str | None = None
    move_seconds: float | None = None
    fallback: str | Handler | None = None
    after: After | None = None
    after_items: str = AfterItems.SUCCEEDED
    unique: str | None = None
    unique_seconds: float | None = None
    item_key: str | Callable[[Any], object] | None = None

    def check(self) -> None:
        if not (_is_whole(self.priority) and 0 <= self.priority <= PRIORITY_MAX):
            raise UsageError(f"priority must be from 0 to {PRIORITY_MAX}, not {self.priority!r}")
        if self.deadline_seconds is not None and not _is_time(self.deadline_seconds):
            raise UsageError(f"the deadline must be in the future, not in {self.deadline_seconds} s")
        if self.retry is not None:
            policy_named(self.retry)
        if self.delivery is not None:
            read_delivery(self.delivery)
        if self.idempotency_key is not None and not is_key(self.idempotency_key):
            raise UsageError("an idempotency key must have 1 to 255 printable characters")
        if self.budget_micros is not None:
            _check_budget(self.budget_micros)
        if self.after_items not in list(AfterItems):
            raise UsageError(f"after_items must be succeeded or all, not {self.after_items!r}")
        if self.after_items != AfterItems.SUCCEEDED and self.after is None:
            raise UsageError("after_items needs after", hint="name the job whose items are meant: after=job")
        self.after_ids()
        self._check_keys()
        self._check_move()

    def _check_move(self) -> None:
        if (self.handler_then is None) != (self.move_seconds is None):
            names = ("handler_then", "move_seconds")
            given, missing = names if self.move_seconds is None else reversed(names)
            raise UsageError(f"{given} needs {missing}", hint="for example handler_then='call', move_seconds=3600")
        if self.move_seconds is not None and not _is_time(self.move_seconds):
            raise UsageError(f"move_seconds must be above 0 and at most a year, not {self.move_seconds!r}")

    def _check_keys(self) -> None:
        if self.unique is not None and not is_key(self.unique):
            raise UsageError("unique must be 'payload', or a key of 1 to 255 printable characters")
        if (self.unique is None) != (self.unique_seconds is None):
            given, missing = ("unique_seconds", "unique") if self.unique is None else ("unique", "unique_seconds")
            raise UsageError(f"{given} needs {missing}", hint="for example unique='payload', unique_seconds=3600")
        if self.unique_seconds is not None and not _is_time(self.unique_seconds):
            raise UsageError(f"unique_seconds must be above 0 and at most a year, not {self.unique_seconds}")
        if self.item_key is not None and not (callable(self.item_key) or is_key(self.item_key)):
            raise UsageError("item_key must be the name of a field, or a function of the payload")
        if self.idempotency_key is not None and (self.unique is not None or self.item_key is not None):
            other = "item_key" if self.unique is None else "unique"
            raise UsageError(f"idempotency_key and {other} cannot be used together", hint="leave one of them out")

    def after_ids(self) -> tuple[int, ...]:
        """The jobs to wait for, in the order given."""
        if self.after is None:
            return ()
        given = [getattr(job, "id", job) for job in (self.after if isinstance(self.after, Sequence) else [self.after])]
        ids = [job for job in given if _is_whole(job)]
        if not ids or len(ids) != len(given):
            raise UsageError("after must be a job, the id of a job, or a list of them")
        if not all(0 <= job < JOB_IDS_MAX for job in ids):
            raise UsageError("after names a job whose id is out of range", hint=f"ids of jobs are below {JOB_IDS_MAX}")
        if len(ids) != len(set(ids)) or len(ids) > AFTER_JOBS_MAX:
            raise UsageError(f"after takes up to {AFTER_JOBS_MAX} different jobs, each of them once")
        return tuple(ids)


def _check_budget(budget_micros: object) -> None:
    if not (_is_whole(budget_micros) and 1 <= budget_micros <= BUDGET_MICROS_MAX):
        said = f"budget_micros must be a whole number from 1 to {BUDGET_MICROS_MAX}, not {budget_micros!r}"
        raise UsageError(said, hint="it is in millionths of a dollar: 5_000_000 is $5")


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool)


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= DEADLINE_SECONDS_MAX


class Client:
    """One owner's access to the store."""

    def __init__(self, store: Store, owner: str, limits: Limits, clock: Clock, bus: Bus) -> None:
        self.store = store
        self.owner = owner
        self.clock = clock
        self.limits = limits
        self.bus = bus

    async def submit(
        self,
        handler: str,
        items: Items | None,
        options: Options,
        encode: Callable[[Any], "str | Weighed"],
        wake: Callable[[], None],
        opened_as: Callable[[int], None] = lambda job_id: None,
        job_timeout_seconds: float | None = None,
        reuse: Search | None = None,
    ) -> "Job[Any]":
        """Submits the items chunk by chunk, in constant memory. The job is complete when this returns. A list is
        checked as a whole before anything is written. A stream that breaks off half-way ends its job, unless it has an
        idempotency key: then the same submit again continues where it stopped. Without items the job waits for the
        results of the jobs that `after` names. `reuse`: items with a key may get the answers of earlier jobs."""
        options.check()
        items, encode = encode_list(items, encode, options.item_key)
        traced, opened, total = self.bus.trace_submit(handler), None, 0
        key = options.idempotency_key if options.unique is None else unique_key(handler, options.unique, items)
        new = self._new_job(handler, options, key, traced.seed or new_incarnation(), job_timeout_seconds)
        new = replace(new, reuse=reuse)
        try:
            async for chunk in first_chunk(new) if items is None else chunks_of(new, items, encode):
                total = chunk.position + len(chunk.bodies)
                if opened is None:
                    opened = await self.store.submissions.open(new, chunk)
                    opened_as(opened.id)
                    if new.unique_ms is not None and not opened.new:
                        traced.record_submit(opened.id, 0)
                        return self.job(opened.id)
                opened = await self._store(new, opened, chunk, wake)
        except BaseException:
            traced.record_failure()
            if opened is not None and opened.new and options.idempotency_key is None:
                await self.job(opened.id).cancel()
            raise
        if opened is None:
            raise UsageError("there are no items to submit", hint="give items, or jobs whose results they are: after=")
        total = total if options.item_key is None else opened.total
        self.bus.emit(ItemsSubmitted(opened.id, handler, total))
        traced.record_submit(opened.id, total)
        return self.job(opened.id)

    async def _store(self, new: NewJob, opened: OpenJob, chunk: Chunk, wake: Callable[[], None]) -> OpenJob:
        """Adds a chunk, unless it opened the job and is in it, and tells workers of the first and the last."""
        if not chunk.bodies and not opened.new:
            check_same(opened, chunk.digest)
        elif chunk.keys is not None and chunk.position > 0:
            opened = await self.store.submissions.add_new_items(new, opened, chunk)
        elif chunk.position > 0 or not opened.new:
            opened = await self._continue(new, opened, chunk)
        if chunk.position == 0 or chunk.last:
            wake()
            await self.store.notify()
        return opened

    async def _continue(self, new: NewJob, opened: OpenJob, chunk: Chunk) -> OpenJob:
        """Adds a chunk to a job that exists; items that another submitter with the same key added are skipped."""
        end = chunk.position + len(chunk.bodies)
        if opened.digest.startswith(SQL_DIGEST):
            await self.store.submissions.check_same_values(new, opened, chunk)
        elif opened.new or (chunk.position >= opened.total and not opened.sealed):
            try:
                await self.store.submissions.add_items(new.handler, opened, chunk)
            except NotAllowed:
                opened = await self.store.submissions.reopen(new, opened)
                if opened.total <= chunk.position:
                    raise
                return await self._continue(new, opened, chunk)
        elif end == opened.total and (chunk.last or not opened.sealed):
            check_same(opened, chunk.digest)
            if chunk.last and not opened.sealed:
                await self.store.submissions.add_items(new.handler, opened, chunk._replace(position=end, bodies=()))
        elif end >= opened.total or chunk.last:
            check_same(opened, "")
        return opened

    def _new_job(
        self, handler: str, options: Options, key: str | None, seed: str, timeout_seconds: float | None
    ) -> NewJob:
        deadline = options.deadline_seconds
        seconds = self.limits.job_timeout_seconds if timeout_seconds is None else timeout_seconds
        return NewJob(
            handler=handler,
            owner=self.owner,
            ref_seed=seed,
            job_timeout_ms=int(seconds * 1000),
            idempotency_key=key,
            priority=options.priority,
            retry=options.retry,
            delivery=options.delivery,
            deadline_ms=None if deadline is None else int(deadline * 1000),
            label=None if options.label is None else one_line(options.label),
            budget_micros=options.budget_micros,
            handler_then=options.handler_then,
            fallback=name_of(options.fallback),
            after=options.after_ids(),
            takes=AfterItems(options.after_items),
            unique_ms=None if options.unique_seconds is None else int(options.unique_seconds * 1000),
            move_ms=None if options.move_seconds is None else int(options.move_seconds * 1000),
        )

    def job(self, job_id: int) -> "Job[Any]":
        return Job(self, job_id)


class Job(Generic[V_co]):
    """A submitted job, by its id. In annotations, `Job[str]` is a job whose handler returns texts."""

    def __init__(
        self,
        client: Client,
        job_id: int,
        load: Callable[[str], V_co] = json.loads,
        submit: Callable[..., Awaitable["Job[Any]"]] | None = None,
    ) -> None:
        self._client = client
        self._load = load
        self._submit = submit
        self.id = job_id

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self._client.owner!r}>"

    async def show(self) -> JobView:
        """How the job stands now: its state, its counts, its money. Raises `NotFound` if it was deleted."""
        return await self._client.store.job_views.get(self.id, self._client.owner)

    async def wait(
        self, progress: Callable[[JobView], None] | None = None, timeout_seconds: float | None = None
    ) -> JobView:
        """Returns when the job has ended, or its budget stops it; reports its progress whenever it changed."""
        clock, views, owner = self._client.clock, self._client.store.job_views, self._client.owner
        begun, seen, pause = clock.monotonic(), None, 0.0
        end = None if timeout_seconds is None else begun + timeout_seconds
        while True:
            # The many looks in quick succession ask only for its end; the others notice that it is gone as well.
            only_end = progress is None and 0.0 < pause < WAIT_SECONDS_MAX
            view = await (views.at_end(self.id, owner) if only_end else views.get(self.id, owner))
            if view is not None:
                if view != seen and progress is not None:
                    progress(view)
                seen = view
                if view.ended or (view.sealed and await is_out_of_money(self._client.store, view)):
                    return view
            now = clock.monotonic()
            if end is not None and now >= end:
                raise WaitTimeout(f"job {self.id} has not ended within {timeout_seconds:g} s")
            pause = min(max((now - begun) * WAIT_SHARE, WAIT_SECONDS_MIN), WAIT_SECONDS_MAX)
            await clock.sleep(pause)

    async def results(self) -> AsyncIterator[Result[V_co]]:
        """Every item that has ended, in the order of submit: `async for result in job.results(): ...`"""
        async for row in self._client.store.results.all(self.id, self._client.owner):
            yield make_result(row, self._load)

    async def pause(self) -> None:
        """Starts no more items until `resume`. Calls under way finish, and their results count."""
        await self._client.store.jobs.pause(self.id, self._client.owner)

    async def resume(self) -> None:
        """Continues a paused job. The time that it was paused does not count against its time limit."""
        await self._client.store.jobs.resume(self.id, self._client.owner)
        await self._client.store.notify()

    async def set_budget(self, budget_micros: int) -> None:
        """Raises or lowers the budget of a job that has one. A job that it stopped resumes if its next item fits."""
        _check_budget(budget_micros)
        await self._client.store.jobs.set_budget(self.id, self._client.owner, budget_micros)
        await self._client.store.notify()

    async def settle_unknown(self, paid: bool, micros: int | None = None, expected_micros: int | None = None) -> int:
        """Settles money of unknown outcome: if it was paid it counts as spent, if not it goes back to the budget. All
        of it, or `micros` of it. With `expected_micros` it raises if the sum has changed. Returns how much it was."""
        verdict = MoneyVerdict(paid, self._client.owner, micros, expected_micros)
        settled = await self._client.store.jobs.settle_unknown(self.id, self._client.owner, verdict)
        await self._client.store.notify()
        return settled

    async def then(self, handler: str | Handler, **options: Unpack[SubmitOptions]) -> "Job[Any]":
        """Starts another job when this one has ended, with its results as payloads: `await job.then(summarise)`."""
        if self._submit is None:
            raise UsageError(
                "this job was not opened by an application", hint="use backstay.submit(handler, after=job)"
            )
        return await self._submit(handler, **{**options, "after": self})

    async def cancel(self) -> None:
        """Waiting items end now; calls under way may finish within `cancel_grace_seconds`."""
        await self._client.store.jobs.cancel(self.id, self._client.owner)
        while await end_waiting_items(self._client, self.id):
            pass

    async def retry(self) -> int:
        """Queues every failed item again; returns how many."""
        retried = await self._client.store.jobs.retry(self.id, self._client.owner)
        await self._client.store.notify()
        return retried

    async def accept_late(self, item: int | None = None) -> int:
        """Accepts the late results of its failed items, or of one item; returns how many."""
        owner = self._client.owner
        if item is not None:
            return await self._accept_late_of(item, owner)
        rows = self._client.store.results.all(self.id, owner)
        late = [row.id async for row in rows if row.flaw == Flaw.LATE and row.state == ItemState.FAILED]
        return sum([await self._accept_late_if_it_can(found, owner) for found in late])

    async def _accept_late_if_it_can(self, item: int, owner: str) -> int:
        """An item that is archived, or that another process changed meanwhile, must not stop the others."""
        try:
            return await self._accept_late_of(item, owner)
        except (NotAllowed, NotFound):
            return 0

    async def _accept_late_of(self, item: int, owner: str) -> int:
        waiting = [one for one in await self._client.store.inbox.late_of(item, owner) if one.accepted_at is None]
        if not waiting:
            raise NotFound(f"item {show_item(item)} has no late result to accept")
        await self._client.store.inbox.accept(waiting[0].number, owner, owner)
        return 1


async def end_waiting_items(client: Client, job_id: int) -> bool:
    """Ends some waiting items of a cancelled job; returns whether there may be more."""
    items, ended_jobs, more = await client.store.sweeps.end_stopped(job_id, StopReason.CANCEL)
    stopped: list[Event] = [ItemsStopped(job_id, items, ItemState.CANCELLED)] if items else []
    for event in (*stopped, *(JobEnded(*ended) for ended in ended_jobs)):
        client.bus.emit(event)
    return more
