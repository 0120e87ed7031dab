"""A user's function as a handler: async directly, sync in a thread of its own."""

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, TypeVar

from backstay.core.outcomes import NeverArrived, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.handlers.context import Context
from backstay.handlers.handler import ASKS_AT_ONCE, Rules
from backstay.handlers.payload import PayloadType, ResultType, dump, payload_annotation

P = ParamSpec("P")
R = TypeVar("R")  # what a call of the function returns
V = TypeVar("V")  # the same, after await

Find = Callable[[str], Awaitable[Any]]


class FunctionHandler(Generic[P, R, V]):
    """Keeps the function's own signature: calling it runs the function, nothing else."""

    account: str | None = None
    answers: Answers | None = None
    pace_name = ""
    asks_at_once = ASKS_AT_ONCE

    def __init__(
        self, function: Callable[P, R], name: str, provider: str, rules: Rules, find: Find | None = None
    ) -> None:
        functools.update_wrapper(self, function)
        annotation, self._wants_context = payload_annotation(function)
        self._function = function
        self._payload = PayloadType(annotation)
        self._result = ResultType(function)
        self._find = find
        self._is_async = inspect.iscoroutinefunction(function)
        self.name = name
        self.provider = provider
        self.rules = rules
        self.askable = find is not None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def check(self, payload: Any) -> None:
        self._payload.check(payload)

    def load_value(self, text: str) -> V:
        """A stored result as the function returned it."""
        value: V = self._result.load(text)
        return value

    async def run(self, body: str, context: Context) -> Succeeded | Submitted:
        payload = self._payload.load(body)
        more = {"context": context} if self._wants_context else {}
        function: Any = self._function
        if self._is_async:
            result = await function(payload, **more)
        else:
            result = await in_thread(lambda: function(payload, **more))
        return Succeeded(dump(result, "the result"), context.used)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Submitted | NeverArrived:
        if self._find is None:
            raise TypeError(f"{self.name} has no find function")
        found = await self._find(client_ref)
        return NeverArrived() if found is None else Succeeded(dump(found, "the result"))


async def in_thread(work: Callable[[], Any]) -> Any:
    """Runs blocking work in a daemon thread of its own: one that never returns cannot keep the process alive.

    It has the caller's context variables, so that its traces are part of the call.
    """
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def deliver(value: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def serve() -> None:
        value: Any = None
        error: Exception | None = None
        try:
            value = context.run(work)
        except StopIteration as caught:  # a future cannot carry this one
            error = RuntimeError(f"StopIteration: {caught}")
        except Exception as caught:  # raised again in the awaiting task
            error = caught
        except BaseException as caught:  # it ends the thread, but it must not end the worker
            error = RuntimeError(f"{type(caught).__name__}: {caught}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, value, error)

    threading.Thread(target=serve, name="backstay-handler", daemon=True).start()
    return await future
