"""A fake paid provider: scripted replies, requests that it processes, and a bill by client reference."""

import asyncio
import contextvars
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from backstay.core.errors import OutcomeUnknown, Permanent, Throttled, Transient
from backstay.core.models import Failed, Running, Succeeded
from backstay.handlers.function import done, gone_wrong, running


@dataclass(frozen=True, slots=True)
class Reply:
    """What happens to a request: when it arrives, whether it is processed and billed, and what the client receives."""

    value: Any = None  # the result; None leaves it to the provider
    error: Callable[[], Exception] | None = None  # what the client gets
    billed: bool = True
    heard: bool = True  # False: no answer ever comes
    arrives_seconds: float = 0.0  # from sending until the provider has processed it
    answers_seconds: float = 0.5  # from there to the client


def ok(value: Any = None, seconds: float = 0.5) -> Reply:
    """Processed, billed and answered."""
    return Reply(value, answers_seconds=seconds)


def broken(seconds: float = 0.5) -> Reply:
    """A server error: nothing was processed or billed, and another try may help."""
    return Reply(error=lambda: Transient("the provider answered 503"), billed=False, answers_seconds=seconds)


def refused(message: str = "the provider answered 422", seconds: float = 0.5) -> Reply:
    """The request itself is wrong: retries do not help."""
    return Reply(error=lambda: Permanent(message), billed=False, answers_seconds=seconds)


def throttled(retry_after_seconds: float | None = None, seconds: float = 0.1) -> Reply:
    """429, with Retry-After when given."""
    return Reply(
        error=lambda: Throttled("the provider answered 429", retry_after_seconds), billed=False, answers_seconds=seconds
    )


def lost(seconds: float = 0.5) -> Reply:
    """Processed and billed, but the connection breaks before the answer arrives."""
    return Reply(error=lambda: OutcomeUnknown("the connection broke during the call"), answers_seconds=seconds)


def hanging(billed: bool = True) -> Reply:
    """Never answers. Only the bill shows whether it was processed."""
    return Reply(billed=billed, heard=False)


Replying = Callable[[Random], Reply]


@dataclass(frozen=True, slots=True)
class Chances:
    """The probability of each fault; the other requests succeed. Drawn from the provider's own seeded Random."""

    broken: float = 0.0
    throttled: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    hanging: float = 0.0
    slow: float = 0.0
    latency_seconds: float = 1.0
    slow_seconds: float = 30.0
    arrives_seconds_max: float = 0.0

    def __call__(self, rng: Random) -> Reply:
        reply = self._draw(rng)
        late = rng.uniform(0, self.arrives_seconds_max) if rng.random() < 0.3 else 0.0
        return Reply(reply.value, reply.error, reply.billed, reply.heard, late, reply.answers_seconds)

    def _draw(self, rng: Random) -> Reply:
        seconds = rng.uniform(0.01, self.latency_seconds)
        mishaps: tuple[tuple[float, Callable[[], Reply]], ...] = (
            (self.broken, lambda: broken(seconds)),
            (self.throttled, lambda: throttled(rng.choice([None, 1.0, 5.0]), seconds)),
            (self.refused, lambda: refused(seconds=seconds)),
            (self.lost, lambda: lost(seconds)),
            (self.hanging, lambda: hanging(rng.random() < 0.5)),
            (self.slow, lambda: ok(seconds=rng.uniform(0.5, 1) * self.slow_seconds)),
        )
        point = rng.random()
        for chance, make in mishaps:
            point -= chance
            if point < 0:
                return make()
        return ok(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the bill."""

    ref: str
    at_seconds: float
    payload: Any
    value: Any


@dataclass(slots=True)
class _Task:
    ref: str
    value: Any
    ends_at: float
    fails: bool
    cancelled: bool = False


@dataclass(slots=True)
class ScriptedProvider:
    """Answers with `script`, reply by reply, and then with `then`: one Reply every time, or Chances drawn with `rng`.

    Requests live outside the program that sent them: they arrive, are processed and billed even when it has died.
    """

    script: Iterable[Reply] = ()
    then: Reply | Replying = field(default_factory=ok)
    rng: Random = field(default_factory=lambda: Random(0))
    deduplicates: bool = False  # a known reference gets the stored answer and is not processed again
    visible_after_seconds: float = 0.0  # how long a processed request stays hidden from `find`
    find_fails: float = 0.0  # the chance that `find` and `poll` answer with an error
    task_seconds: float = 5.0
    task_fails: float = 0.0  # the chance that a task ends badly
    listener: Callable[[str, str], None] = lambda act, ref: None
    bill: list[Charge] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, _Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.script = deque(self.script)

    # the shape of a call

    async def call(self, payload: Any, ref: str) -> Any:
        """One paid call; returns the value of the reply, or the number of the charge."""
        return await self._request(payload, ref, self._charge)

    async def find(self, ref: str) -> Any:
        """The value of a processed call with this reference; None if there was none."""
        charge = await self._look_up(ref)
        return None if charge is None else charge.value

    # the shape of a task

    async def submit(self, payload: Any, ref: str) -> str:
        """Accepts a task; it is billed from now on."""
        task_id: str = await self._request(payload, ref, self._start_task)
        return task_id

    async def find_task(self, ref: str) -> str | None:
        charge = await self._look_up(ref)
        return None if charge is None else next(name for name, task in self.tasks.items() if task.ref == charge.ref)

    async def poll(self, task_ids: Sequence[str]) -> dict[str, Succeeded | Failed | Running]:
        await self._wait_and_maybe_fail("poll")
        return {task_id: self._state_of(self.tasks[task_id]) for task_id in task_ids if task_id in self.tasks}

    async def cancel(self, task_id: str) -> None:
        await self._wait_and_maybe_fail("cancel")
        self.tasks[task_id].cancelled = True
        self.listener("cancelled", self.tasks[task_id].ref)

    # the books

    def times_paid(self, ref: str) -> int:
        return sum(charge.ref == ref for charge in self.bill)

    # inside

    async def _request(self, payload: Any, ref: str, do: Callable[[str, Any, Reply], Any]) -> Any:
        """Sends at once, without an await, so that a guard checked right before it holds for it."""
        reply = self._next_reply()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent[ref] += 1
        self.listener("sent", ref)
        _later(reply.arrives_seconds, lambda: self._arrive(payload, ref, reply, do, answer))
        return await answer

    def _arrive(
        self, payload: Any, ref: str, reply: Reply, do: Callable[[str, Any, Reply], Any], answer: "asyncio.Future[Any]"
    ) -> None:
        self.listener("arrived", ref)
        value = do(ref, payload, reply) if reply.billed else None
        if reply.heard:
            _later(reply.answers_seconds, lambda: _deliver(answer, value, reply))

    def _charge(self, ref: str, payload: Any, reply: Reply) -> Any:
        known = next((charge for charge in self.bill if charge.ref == ref), None) if self.deduplicates else None
        if known is not None:
            self.listener("recognised", ref)
            return known.value
        value = f"paid {len(self.bill) + 1}" if reply.value is None else reply.value
        self.bill.append(Charge(ref, _now(), payload, value))
        self.listener("billed", ref)
        return value

    def _start_task(self, ref: str, payload: Any, reply: Reply) -> str:
        paid = len(self.bill)
        value = self._charge(ref, payload, reply)
        if len(self.bill) == paid:
            return next(name for name, task in self.tasks.items() if task.ref == ref)
        task_id = f"task-{len(self.tasks) + 1}"
        fails = self.rng.random() < self.task_fails
        self.tasks[task_id] = _Task(ref, value, _now() + self.task_seconds, fails)
        return task_id

    async def _look_up(self, ref: str) -> Charge | None:
        await self._wait_and_maybe_fail("find")
        hidden = self.visible_after_seconds
        found = [charge for charge in self.bill if charge.ref == ref and charge.at_seconds + hidden <= _now()]
        self.listener("found" if found else "not found", ref)
        return found[0] if found else None

    async def _wait_and_maybe_fail(self, what: str) -> None:
        """Waits as long as a question takes, and fails with the set chance."""
        pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        _later(self.rng.uniform(0.01, 0.3), lambda: _deliver(pause, None, ok()))
        await pause
        if self.rng.random() < self.find_fails:
            raise Transient(f"the provider answered 503 to a {what}")

    def _state_of(self, task: _Task) -> Succeeded | Failed | Running:
        if task.cancelled:
            return gone_wrong("cancelled", retryable=False)
        if _now() < task.ends_at:
            return running()
        return gone_wrong("the task failed") if task.fails else done(task.value)

    def _next_reply(self) -> Reply:
        if isinstance(self.script, deque) and self.script:
            reply: Reply = self.script.popleft()
            return reply
        return self.then if isinstance(self.then, Reply) else self.then(self.rng)


def _deliver(answer: "asyncio.Future[Any]", value: Any, reply: Reply) -> None:
    if answer.done():
        return  # the client is gone
    if reply.error is not None:
        answer.set_exception(reply.error())
    else:
        answer.set_result(value)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _later(seconds: float, act: Callable[[], object]) -> None:
    """In a context of its own: the provider's work does not belong to the calling program."""
    asyncio.get_running_loop().call_later(seconds, act, context=contextvars.Context())
