"""The API for programs without asyncio: one thread runs the event loop, and every method waits for its answer."""

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from backstay.app import NOTHING, Backstay
from backstay.client import Items, Job, Result, SubmitOptions, V_co
from backstay.core.errors import UsageError
from backstay.engine.tick import TickReport
from backstay.handlers.function import FunctionHandler
from backstay.handlers.handler import Handler
from backstay.store.databases.user_connection import refuse_async
from backstay.store.job_views import JobView
from backstay.store.schedules import Schedule

T = TypeVar("T")
V = TypeVar("V")


class SyncBackstay:
    """`with SyncBackstay(app) as backstay: backstay.submit(f, items).wait()`"""

    def __init__(self, app: Backstay | str) -> None:
        self.app = Backstay(app) if isinstance(app, str) else app
        self.schedules = SyncSchedules(self)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="backstay-sync", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        self.run(self.app.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the background thread and returns its result, for what has no method here:
        `backstay.run(backstay.app.open())`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Closes the database and ends the background thread. The object cannot be used afterwards."""
        self.run(self.app.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @overload
    def submit(
        self,
        handler: FunctionHandler[..., Any, V],
        items: Items | None = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> "SyncJob[V]": ...

    @overload
    def submit(
        self,
        handler: str | Handler,
        items: Items | None = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> "SyncJob[Any]": ...

    def submit(
        self,
        handler: str | Handler,
        items: Items | None = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> "SyncJob[Any]":
        """Queues items: a list or an iterator of JSON payloads: `backstay.submit(shout, ["a", "b"])`. With the handler
        itself the job knows the type of its results; with its name, results are plain JSON. With a `connection` of
        yours to the same database, the job is part of your transaction."""
        if connection is not None and isinstance(items, AsyncIterable):
            raise UsageError("an async iterator cannot be used without asyncio", hint="pass a list or an iterator")
        work = self.app.submit(handler, items, connection=connection, **options)
        return SyncJob(self, self.run(work) if connection is None else self._run_here(work, connection))

    def publish(self, topic: str, message: Any, *, connection: object = None) -> tuple[str, ...]:
        """Sends a JSON message to RabbitMQ and to webhooks: `backstay.publish("orders.created", {"id": 7})`. With a
        `connection` of yours it leaves when you commit."""
        work = self.app.publish(topic, message, connection=connection)
        return self.run(work) if connection is None else self._run_here(work, connection)

    def _run_here(self, work: Coroutine[Any, Any, T], connection: object) -> T:
        """Runs a coroutine in this thread, which the connection belongs to. It has nothing to wait for: a statement on
        such a connection returns when it is done, and the background thread has opened the rest."""
        try:
            refuse_async(connection)
            self.run(_open_place(self.app))
            work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            work.close()
        raise AssertionError("a call on a user's connection waited for something else")

    def job(self, job_id: int) -> "SyncJob[Any]":
        """A job that was submitted before, by this process or another: `backstay.job(12)`."""
        return SyncJob(self, self.run(self.app.job(job_id)))

    def tick(self, depth: int = 0) -> TickReport:
        return self.run(self.app.tick(depth))

    @contextmanager
    def working(self, concurrency: int | None = None) -> Iterator[None]:
        """Runs a worker in the background while the block runs."""
        block = self.app.working(concurrency)
        self.run(block.__aenter__())
        try:
            yield
        finally:
            self.run(block.__aexit__(None, None, None))


class SyncJob(Generic[V_co]):
    """A job whose methods wait for their answer."""

    def __init__(self, face: SyncBackstay, job: Job[V_co]) -> None:
        self._face = face
        self._job = job
        self.id = job.id

    def __repr__(self) -> str:
        return f"<SyncJob {self.id}>"

    def show(self) -> JobView:
        return self._face.run(self._job.show())

    def wait(self, progress: Callable[[JobView], None] | None = None, timeout_seconds: float | None = None) -> JobView:
        return self._face.run(self._job.wait(progress, timeout_seconds))

    def results(self) -> Iterator[Result[V_co]]:
        """Every item that has ended, in the order of submit: `for result in job.results(): ...`"""
        results = self._job.results()
        while (result := self._face.run(_next(results))) is not None:
            yield result

    def pause(self) -> None:
        self._face.run(self._job.pause())

    def resume(self) -> None:
        self._face.run(self._job.resume())

    def set_budget(self, budget_micros: int) -> None:
        self._face.run(self._job.set_budget(budget_micros))

    def settle_unknown(self, paid: bool, micros: int | None = None, expected_micros: int | None = None) -> int:
        return self._face.run(self._job.settle_unknown(paid, micros, expected_micros))

    def then(self, handler: str | Handler, **options: Unpack[SubmitOptions]) -> "SyncJob[Any]":
        return SyncJob(self._face, self._face.run(self._job.then(handler, **options)))

    def cancel(self) -> None:
        self._face.run(self._job.cancel())

    def retry(self) -> int:
        return self._face.run(self._job.retry())

    def accept_late(self, item: int | None = None) -> int:
        return self._face.run(self._job.accept_late(item))


async def _open_place(app: Backstay) -> None:
    await (await app.open()).store.place()


async def _next(results: AsyncIterator[T]) -> T | None:
    return await anext(results, None)


class SyncSchedules:
    """The same methods as those of `Backstay.schedules`."""

    def __init__(self, face: SyncBackstay) -> None:
        self._face = face

    def add(
        self,
        handler: str | Handler,
        cron: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        payload: Any = NOTHING,
        missed: str = "once",
    ) -> Schedule:
        work = self._face.app.schedules.add(handler, cron, timezone=timezone, name=name, payload=payload, missed=missed)
        return self._face.run(work)

    def list(self) -> "list[Schedule]":
        return self._face.run(self._face.app.schedules.list())

    def show(self, name: str) -> Schedule:
        return self._face.run(self._face.app.schedules.show(name))

    def pause(self, name: str) -> Schedule:
        return self._face.run(self._face.app.schedules.pause(name))

    def resume(self, name: str) -> Schedule:
        return self._face.run(self._face.app.schedules.resume(name))

    def run(self, name: str) -> SyncJob[Any]:
        return SyncJob(self._face, self._face.run(self._face.app.schedules.run(name)))

    def remove(self, name: str) -> None:
        self._face.run(self._face.app.schedules.remove(name))
