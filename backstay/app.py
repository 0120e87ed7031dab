"""`Backstay(url)`: an application's handlers, and everything that can be done with them on one database.

Its `schedules` adds, lists, pauses, resumes, runs and removes the schedules of the application.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Final, Never, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, cast, overload

from backstay import settings as settings_module
from backstay import wiring
from backstay.client import Client, Items, Job, Options, SubmitOptions
from backstay.clock import cron as cron_lines
from backstay.core.breaker import BreakerPolicy
from backstay.core.errors import UsageError
from backstay.core.failures import RetryPolicy, policy_named
from backstay.core.limits import Limits
from backstay.core.models import Delivery, NewSchedule, read_delivery, read_missed_policy
from backstay.engine.gate import FirstReplies
from backstay.engine.hints import Hints
from backstay.engine.tick import Tick, TickReport
from backstay.engine.worker import Worker
from backstay.handlers.function import Find, FunctionHandler, Registry, TaskHandler, dump, unknown_handler
from backstay.handlers.handler import (
    Handler,
    Rules,
    Weighed,
    call_limits,
    check_name,
    check_numbers,
    name_of,
    weigh,
)
from backstay.observe.bus import Bus
from backstay.store.schedules import Schedule
from backstay.store.store import Store

NOTHING: Final = MappingProxyType[str, Any]({})  # what a handler gets if no payload is given: {}
PAGE: Final = 100


class AppSchedules:
    def __init__(self, open_client: Callable[[], Awaitable[Client]], handlers: Registry, wake: Callable[[], None]):
        self._open = open_client
        self._handlers = handlers
        self._wake = wake

    async def add(
        self,
        handler: str | Handler,
        cron: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        payload: Any = NOTHING,
        missed: str = "once",
    ) -> Schedule:
        """Adds a schedule: `await backstay.schedules.add(report, "0 7 * * *", timezone="Europe/Berlin")`."""
        named = self._handlers[name_of(handler)]
        new = new_schedule(named, cron, timezone, name, payload, missed)
        client = await self._open()
        return await client.store.schedules.add(new, client.owner)

    async def list(self) -> "list[Schedule]":
        client = await self._open()
        return [found async for found in all_schedules(client.store, client.owner)]

    async def show(self, name: str) -> Schedule:
        client = await self._open()
        return await client.store.schedules.get(name, client.owner)

    async def pause(self, name: str) -> Schedule:
        """Fires no more until `resume`. The firings in between are left out, whatever the policy is."""
        client = await self._open()
        return await client.store.schedules.pause(name, client.owner)

    async def resume(self, name: str) -> Schedule:
        client = await self._open()
        return await client.store.schedules.resume(name, client.owner)

    async def run(self, name: str) -> Job[Any]:
        """Submits one job now, as a firing would. The next firing stays as it is."""
        return await run_now(await self._open(), self._handlers, name, self._wake)

    async def remove(self, name: str) -> None:
        """Removes a schedule; its jobs stay. One that stands in the code comes back when a worker or a tick starts."""
        client = await self._open()
        await client.store.schedules.remove(name, client.owner)


def new_schedule(
    handler: Handler | str, cron: str, timezone: str, name: str | None, payload: Any, missed: str
) -> NewSchedule:
    """A schedule if all of it is valid. Of a handler whose code is not here, the payload cannot be checked."""
    handler_name = handler if isinstance(handler, str) else handler.name
    payload = {} if payload is NOTHING else payload
    body = dump(payload)
    if not isinstance(handler, str):
        handler.check(json.loads(body))
    line = cron_lines.check_line(cron, timezone)
    return NewSchedule(name or handler_name, handler_name, line, timezone, body, read_missed_policy(missed))


async def all_schedules(store: Store, owner: str) -> AsyncIterator[Schedule]:
    """By name, a page at a time."""
    past = ""
    while found := await store.schedules.page(owner, past, PAGE):
        for schedule in found:
            yield schedule
        past = found[-1].name


async def run_now(client: Client, handlers: Registry, name: str, wake: Callable[[], None]) -> Job[Any]:
    """One job of a schedule, now. Refuses if neither this program nor any worker has its handler."""
    found = await client.store.schedules.get(name, client.owner)
    handler = await known_handler(client.store, handlers, found.handler)
    deadline = None
    if handler is not None:
        handler.check(json.loads(found.payload))
        deadline = handler.rules.deadline_seconds
    options = Options(deadline_seconds=deadline, label=f"{name}, run by hand")
    return await client.submit(found.handler, [found.payload], options, str, wake)


async def known_handler(store: Store, handlers: Registry, name: str) -> Handler | None:
    """The handler if its code is here; None if a worker has it. Raises `UsageError` if nobody has."""
    if name in handlers:
        return handlers[name]
    known = {told for worker in await store.workers.page() for told in worker.handlers}
    if name not in known:
        known |= {handler.name for handler in handlers}
        error = unknown_handler(name[:100], sorted(one for one in known if "#" not in one))
        raise UsageError(f"no program or worker has the handler {name[:100]!r}", hint=error.hint)
    return None


HOLD_SECONDS = 300.0

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
S = TypeVar("S", bound=FunctionHandler[..., Any, Any])
V = TypeVar("V")


class HandlerOptions(TypedDict, total=False):
    """The options of `handler` and `task` besides a name and a provider."""

    retry: str | RetryPolicy
    delivery: str | Delivery
    timeout: float | None
    deadline: float | None
    concurrency: int | None
    breaker: BreakerPolicy | None
    hold_seconds: float | None
    health: Callable[[], Awaitable[object]] | None
    rate: str | None
    tokens_per_minute: int | None
    tokens: int | Callable[[Any], int] | None
    cost: float | Callable[[Any], float] | None
    fallback: str | Handler | None


class Register(Protocol):
    """Makes a handler of a function: its value is what the function returns, after `await` if it is async."""

    @overload  # the type that is returned has no Any in it: mypy would take Any for an excuse to know no job's type
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> FunctionHandler[P, Coroutine[object, Never, V], V]: ...

    @overload
    def __call__(self, function: Callable[P, V], /) -> FunctionHandler[P, V, V]: ...


class Backstay:
    """Register handlers, submit items, run a worker. Opens its database at the first use; close it when done."""

    def __init__(self, url: str | None = None, *, owner: str | None = None, limits: Limits | None = None) -> None:
        self.settings = settings_module.load({"database_url": url, "owner": owner})
        self.limits = limits or self.settings.bounds()
        self.handlers = Registry()
        self.bus = Bus()
        self.schedules = AppSchedules(self.open, self.handlers, self._wake)
        self._client: Client | None = None
        self._workers: list[Worker] = []

    @property
    def url(self) -> str:
        """The URL of the database. Raises `UsageError` if neither the program nor the settings name one."""
        if self.settings.database_url is None:
            raise UsageError("no database URL is given", hint="pass one: Backstay('sqlite:///jobs.db')")
        return self.settings.database_url

    # handlers

    def handler(
        self,
        name: str | None = None,
        *,
        provider: str | None = None,
        find: Find | None = None,
        **rules: Unpack[HandlerOptions],
    ) -> Register:
        """Makes a function a handler: `async def f(item)` or `def f(item)`, optionally with `context` as a second
        parameter."""
        if callable(name):
            raise UsageError("the decorator @backstay.handler needs parentheses", hint="write @backstay.handler()")

        def register(function: Callable[P, R]) -> FunctionHandler[P, R, Any]:
            own = check_name(function.__name__ if name is None else name)
            service = check_name(provider or own, "provider")
            made = FunctionHandler[P, R, Any](function, own, service, self._rules(rules), find)
            self.handlers.add(made)
            return made

        return cast(Register, register)

    def task(
        self, name: str, *, provider: str | None = None, account: str | None = None, **rules: Unpack[HandlerOptions]
    ) -> Callable[[type[C]], type[C]]:
        """Makes a class a handler of provider tasks: `submit` and `poll`, and `find` and `cancel` where it can."""
        service = check_name(provider or check_name(name), "provider")

        def register(work: type[C]) -> type[C]:
            self.handlers.add(TaskHandler(work(), name, service, self._rules(rules), account))
            return work

        return register

    def schedule(
        self, cron: str, *, timezone: str = "UTC", name: str | None = None, payload: Any = NOTHING, missed: str = "once"
    ) -> Callable[[S], S]:
        """Above `@backstay.handler()`: submits one job of the handler at each time of a cron line. Workers and ticks
        write the schedule to the database when they start, and fire it."""

        def register(handler: S) -> S:
            if not isinstance(handler, FunctionHandler):
                hint = "write @backstay.schedule(...) above @backstay.handler()"
                raise UsageError("the decorator @backstay.schedule needs a handler", hint=hint)
            self.handlers.add_schedule(new_schedule(handler, cron, timezone, name, payload, missed))
            return handler

        return register

    def _rules(self, given: HandlerOptions) -> Rules:
        """A handler's options as rules; the settings fill in what is left out."""
        _refuse_unknown("@handler and @task have", given, HandlerOptions.__annotations__)
        check_numbers(given)
        retry = given.get("retry", "queue")
        if retry == "gateway":
            retry = self.settings.gateway_policy()
        return Rules(
            retry=retry if isinstance(retry, RetryPolicy) else policy_named(retry),
            delivery=read_delivery(given.get("delivery", Delivery.AT_LEAST_ONCE)),
            timeout_seconds=given.get("timeout"),
            deadline_seconds=given.get("deadline"),
            concurrency=given.get("concurrency"),
            breaker=given.get("breaker") or self.settings.breaker_policy(),
            hold_seconds=given.get("hold_seconds", HOLD_SECONDS),
            health=given.get("health"),
            calls=call_limits(
                given.get("rate"), given.get("tokens_per_minute"), given.get("tokens"), given.get("cost")
            ),
            fallback=name_of(given.get("fallback")),
        )

    # life

    async def open(self) -> Client:
        """Opens the database, if it is not open yet. `async with Backstay(url) as backstay` does it for you."""
        if self._client is None:
            wiring.start_tracing(self.settings, self.bus)
            store = await wiring.open_store(self.url, item_events=self.settings.item_events)
            self._client = Client(store, self.settings.owner, self.limits, store.clock, self.bus)
        return self._client

    async def close(self) -> None:
        """Closes the database. It is opened again at the next use."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.store.close()
            if self.bus.tracing is not None:
                await asyncio.to_thread(self.bus.tracing.close)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    # work

    @overload
    async def submit(
        self,
        handler: FunctionHandler[..., Any, V],
        items: Items | None = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> Job[V]: ...

    @overload
    async def submit(
        self,
        handler: str | Handler,
        items: Items | None = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> Job[Any]: ...

    async def submit(
        self,
        handler: str | Handler,
        items: Items | None = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> Job[Any]:
        """Queues items: a list, an iterator or an async iterator of JSON payloads.

        With the handler itself, the job knows the type of its results: `await backstay.submit(shout, ["a", "b"])`.
        By its name the results are plain JSON: `await backstay.submit("shout", ["a"])`.
        With `after=job` and no items, the results of that job become the payloads.

        With a `connection` of yours to the same database, the job is part of your transaction: it exists when you
        commit, and never if you roll back.
        """
        _refuse_unknown("submit() has", options, SubmitOptions.__annotations__)
        named = self.handlers[name_of(handler)]
        options["fallback"] = self.fallback_of(named, options.get("fallback"))
        if (then := name_of(options.get("handler_then"))) is not None:
            options["handler_then"] = self.handlers.other_than(named.name, then, "handler_then")
        if options.get("deadline_seconds") is None:
            options["deadline_seconds"] = named.rules.deadline_seconds

        if options.get("budget_micros") is not None:
            self.handlers.require_costs(named.name, options["fallback"], options.get("handler_then"))

        def encode(payload: Any) -> str | Weighed:
            named.check(payload)
            return weigh(named, dump(payload))

        wake = self._wake if connection is None else lambda: None  # before the commit there is nothing to find
        via = await self._client_on(connection)
        job = await via.submit(named.name, items, Options(**options), encode, wake)
        client = await self.open()
        load = handler.load_value if isinstance(handler, FunctionHandler) else json.loads
        return Job(client, job.id, load, self.submit)

    def fallback_of(self, handler: Handler, given: str | Handler | None) -> str | None:
        """The fallback that a submit names, or the handler's own; it must be another handler of this application."""
        name = name_of(given) or handler.rules.fallback
        return None if name is None else self.handlers.other_than(handler.name, name, "fallback")

    async def _client_on(self, connection: object) -> Client:
        """The client, or one that writes over a connection of the user's."""
        client = await self.open()
        if connection is None:
            return client
        store = await client.store.inside(connection, client.clock)
        return Client(store, client.owner, client.limits, client.clock, client.bus)

    async def publish(self, topic: str, message: Any, *, connection: object = None) -> tuple[str, ...]:
        """Sends a JSON message to RabbitMQ and to webhooks, at least once: `await backstay.publish("orders.created",
        {"id": 7})`. With a `connection` of yours it leaves when you commit, and never if you roll back.

        Returns who takes it: "messages" (a broker), "webhooks", both or none.
        """
        client = await self._client_on(connection)
        return await client.store.outbox.publish(client.owner, topic, dump(message, "the message"))

    async def job(self, job_id: int) -> Job[Any]:
        """A job that was submitted before, by this process or another: `await backstay.job(12)`."""
        return Job(await self.open(), job_id, submit=self.submit)

    @asynccontextmanager
    async def working(
        self,
        concurrency: int | None = None,
        only_job: int | None = None,
        hints: Hints | None = None,
        trial: FirstReplies | None = None,
        grace_seconds: float | None = None,
        only_first: int | None = None,
    ) -> AsyncIterator[Worker]:
        """Runs a worker in this process while the block runs; for `only_job` it sends that job's LLM requests alone,
        and of these only the first ones if a number is given.
        With hints of a broker it claims the items that they name; with a trial, no item fails because of the first
        replies. At the end, calls under way get time to finish: `shutdown_seconds`, unless another is given."""
        client = await self.open()
        made = wiring.parts(client.store, self.handlers, self.limits, self.bus, self.settings)
        made.only_job, made.only_first, made.trial = only_job, only_first, trial
        worker = wiring.worker(self.url, made, concurrency or self.limits.worker_concurrency, hints)
        await worker.start()
        self._workers.append(worker)
        try:
            yield worker
        finally:
            self._workers.remove(worker)
            await worker.stop(grace_seconds)

    async def tick(self, depth: int = 0) -> TickReport:
        """One bounded invocation; run another when its report says so."""
        client = await self.open()
        made = wiring.parts(client.store, self.handlers, self.limits, self.bus, self.settings)
        return await Tick(wiring.engine(self.url, made, self.limits.tick_concurrency)).run(depth)

    def _wake(self) -> None:
        for worker in self._workers:
            worker.wake()


def _refuse_unknown(what: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = sorted(given.keys() - set(known))
    if unknown:
        hint = f"known: {', '.join(known)}"
        raise UsageError(f"{what} no option {unknown[0]!r}", hint=hint)
