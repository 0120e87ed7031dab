"""A user's function or class as a handler: its payload, its calls, and the registry where the engine finds it."""

import asyncio
import contextvars
import difflib
import functools
import inspect
import json
import threading
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, Generic, ParamSpec, TypeVar

from backstay.core.errors import Permanent, UsageError
from backstay.core.failures import ErrorCode, Failure, FailureKind, one_line
from backstay.core.models import CannotAsk, Failed, NeverArrived, NewSchedule, Running, Skipped, Submitted, Succeeded
from backstay.handlers.handler import ASKS_AT_ONCE, Context, Handler, Rules, name_of, own_pace, require_cost

TYPES_REMEMBERED_MAX = 256
_PLAIN = (Any, inspect.Parameter.empty, dict, list, str, int, float, bool, object)
_JSON_TYPES: dict[type, type | tuple[type, ...]] = {
    dict: dict,
    list: (list, tuple),
    str: str,
    int: int,
    float: (int, float),
    bool: bool,
}


def dump(value: Any, what: str = "the payload") -> str:
    """JSON in pure ASCII: every database accepts it."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not JSON: {error}") from error


def _plain_value(value: Any) -> Any:
    """Pydantic models and dataclasses as plain values."""
    return _adapter(value.__class__).dump_python(value, mode="json")


@lru_cache(maxsize=TYPES_REMEMBERED_MAX)
def _adapter(kind: type) -> Any:
    """Made once per type: creating one costs many times more than using it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain_value)
_DECODER = json.JSONDecoder()
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]  # not in the stubs


def _decode(text: str) -> Any:
    """Stored JSON, which mostly has no white space around it: without a look for that, it takes half the time."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


class PayloadType:
    """Checks and makes a handler's argument from JSON, as its annotation says; plain JSON types pass as they are."""

    def __init__(self, annotation: Any) -> None:
        self._adapter: Any = None
        self._kind = annotation if annotation in _JSON_TYPES else None
        if annotation not in _PLAIN:
            from pydantic import TypeAdapter

            self._adapter = TypeAdapter(annotation)

    def load(self, body: str) -> Any:
        if self._adapter is not None:
            return self._adapter.validate_json(body)
        payload = _decode(body)
        if self._kind is not None and not _is_of_type(payload, self._kind):
            raise Permanent(_mismatch(payload, self._kind), ErrorCode.GW_4XX)
        return payload

    def check(self, payload: Any) -> None:
        if self._kind is not None and not _is_of_type(payload, self._kind):
            raise UsageError(_mismatch(payload, self._kind))
        if self._adapter is None:
            return
        from pydantic import ValidationError

        try:
            self._adapter.validate_json(dump(payload))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "value"
            raise UsageError(f"the payload does not fit the handler: {where}: {first['msg']}") from error


class ResultType:
    """Turns a result's JSON back into the type of the handler's return annotation."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._annotation = _hints(function).get("return", Any)

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            return None if self._annotation in _PLAIN else TypeAdapter(self._annotation)
        except PydanticUserError:  # of a class that it does not know
            return None

    def load(self, text: str) -> Any:
        """A result that does not fit the annotation stays plain JSON, so that one result does not hide the others."""
        if self._adapter is not None:
            with suppress(Exception):  # a validator is the user's own code, and may raise anything
                return self._adapter.validate_json(text, strict=True)
        return _DECODER.decode(text)


def _is_of_type(payload: Any, kind: type) -> bool:
    """Whether a value has a plain JSON type. A whole number is also a float, and true is not a number."""
    if isinstance(payload, bool):
        return kind is bool
    return isinstance(payload, _JSON_TYPES[kind])


def _mismatch(payload: Any, kind: type) -> str:
    return f"the payload does not fit the handler: it must be {kind.__name__}, not {type(payload).__name__}"


def payload_annotation(function: Callable[..., Any]) -> tuple[Any, bool]:
    """The annotation of a handler's one payload parameter, and whether it also wants a `context`."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    wants_context = any(p.name == "context" for p in parameters)
    payload = [p for p in parameters if p.name != "context" and p.default is inspect.Parameter.empty]
    if len(payload) != 1 or payload[0].kind in (payload[0].VAR_POSITIONAL, payload[0].VAR_KEYWORD):
        name = getattr(function, "__name__", str(function))
        raise UsageError(f"{name} must take one payload, and optionally a context: def {name}(item, context)")
    return _hints(function).get(payload[0].name, inspect.Parameter.empty), wants_context


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:
        return {}


P = ParamSpec("P")
R = TypeVar("R")  # the return type of the function
V = TypeVar("V")  # the same, after await

Find = Callable[[str], Awaitable[Any]]


class FunctionHandler(Generic[P, R, V]):
    """Keeps the function's own signature: calling it runs the function, nothing else."""

    account: str | None = None
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
        self.rules = replace(rules, calls=replace(rules.calls, load=self._payload.load))
        self._is_weighed = rules.calls.reads_payload
        self.pace_name, self.answers = own_pace(name, rules)
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
        if self._is_weighed:
            self.rules.calls.require_weight(body)
        function: Any = self._function
        call = functools.partial(function, payload, context=context) if self._wants_context else None
        if not self._is_async:
            result = await in_thread(call or (lambda: function(payload)))
        else:
            result = await (function(payload) if call is None else call())
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


TaskAnswer = Succeeded | Failed | Skipped | Running  # a poll's answer about one task


def done(result: Any) -> Succeeded | Failed:
    """A poll's answer: the task ended well, with this result; one that is not JSON fails its own item only."""
    try:
        return Succeeded(dump(result, "the result"))
    except UsageError as error:
        return gone_wrong(error.message, retryable=False, code=ErrorCode.UNKNOWN)


def running(progress: int | None = None) -> Running:
    """A poll's answer: the task is under way."""
    return Running(progress)


def gone_wrong(message: str, retryable: bool = True, code: ErrorCode = ErrorCode.GW_5XX) -> Failed:
    """A poll's answer: the provider's task failed; a retry submits a new one."""
    kind = FailureKind.INFRASTRUCTURE if retryable else FailureKind.BUSINESS
    return Failed(Failure(code, kind, one_line(message)), task_ended=True)


def _answer(given: Any) -> TaskAnswer:
    """The answer about one task. A value of another type fails only its own item, not the others of the same poll."""
    if isinstance(given, Succeeded | Failed | Skipped | Running):
        return given
    return gone_wrong(f"the method poll returned {type(given).__name__}", retryable=False, code=ErrorCode.UNKNOWN)


class TaskHandler:
    """Wraps an object with `async submit(item[, context]) -> task id` and `async poll(task_ids) -> {id: answer}`."""

    asks_at_once = ASKS_AT_ONCE

    def __init__(self, work: Any, name: str, provider: str, rules: Rules, account: str | None = None) -> None:
        for method in ("submit", "poll"):
            if not inspect.iscoroutinefunction(getattr(work, method, None)):
                raise UsageError(
                    f"task handler {name!r} has no async {method}()",
                    hint="a task handler needs the async methods submit and poll",
                )
        annotation, self._wants_context = payload_annotation(work.submit)
        self._work = work
        self._payload = PayloadType(annotation)
        self.name = name
        self.provider = provider
        self.account = account
        self.rules = replace(rules, calls=replace(rules.calls, load=self._payload.load))
        self.pace_name, self.answers = own_pace(name, rules)
        self.askable = callable(getattr(work, "find", None))

    def check(self, payload: Any) -> None:
        self._payload.check(payload)

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        payload = self._payload.load(body)
        self.rules.calls.require_weight(body)
        more = {"context": context} if self._wants_context else {}
        return Submitted(_storable(await self._work.submit(payload, **more)), self.account)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Submitted | NeverArrived | CannotAsk:
        found = await self._work.find(client_ref)
        return NeverArrived() if found is None else Submitted(_storable(found), self.account)

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, TaskAnswer]:
        answers = await self._work.poll(task_ids)
        return {task_id: _answer(answers[task_id]) for task_id in task_ids if task_id in answers}

    async def cancel(self, task_id: str) -> None:
        cancel = getattr(self._work, "cancel", None)
        if cancel is not None:
            await cancel(task_id)


def _storable(task_id: Any) -> str:
    """A provider's task id as text that every database accepts; another one could not be stored and polled."""
    text = str(task_id)
    if not text or "\0" in text or not text.isprintable():
        raise Permanent(f"the provider gave the task id {text!a}, which is not valid text")
    return text


class Registry:
    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self.schedules: dict[str, NewSchedule] = {}  # by name: the schedules in the code

    def add(self, handler: Handler) -> None:
        if handler.name in self._handlers:
            raise UsageError(f"two handlers are named {handler.name!r}", hint="give one of them another name=")
        self._handlers[handler.name] = handler

    def add_schedule(self, schedule: NewSchedule) -> None:
        if schedule.name in self.schedules:
            raise UsageError(f"two schedules are named {schedule.name!r}", hint="give one of them another name=")
        self.schedules[schedule.name] = schedule

    def remove(self, name: str) -> None:
        """Removes a handler. Code that adds a handler must remove it when it closes it, so that it can be opened
        again."""
        del self._handlers[name]

    def __getitem__(self, name: str) -> Handler:
        try:
            return self._handlers[name]
        except KeyError:
            raise unknown_handler(str(name), list(self._handlers)) from None

    def other_than(self, of: str, name: str, role: str) -> str:
        """The name of another handler that gets items of this one, such as its fallback."""
        if name == of:
            raise UsageError(f"handler {of!r} cannot be its own {role}", hint="name another handler")
        return self[name].name

    def require_costs(self, first: str, fallback: str | Handler | None, then: str | Handler | None = None) -> None:
        """Raises if a handler that may get an item of a job with a budget does not declare its cost. `fallback` is
        that of the first handler."""
        names = [name for name in (first, name_of(fallback), name_of(then)) if name is not None]
        for name in names:  # it grows by the fallbacks of the others
            handler = self._handlers.get(name)
            require_cost(name, handler)
            own = None if handler is None or name == first else handler.rules.fallback
            if own is not None and own not in names:
                names.append(own)

    def check_fallbacks(self) -> None:
        """Raises if the fallback of a handler does not exist: its failed items would wait for ever."""
        for handler in self:
            if handler.rules.fallback is not None:
                self.other_than(handler.name, handler.rules.fallback, "fallback")

    def __contains__(self, name: str) -> bool:
        return name in self._handlers

    def __iter__(self) -> Iterator[Handler]:
        """A copy of the current handlers: a lane may open while a caller iterates over them and awaits."""
        return iter(list(self._handlers.values()))

    def __len__(self) -> int:
        return len(self._handlers)

    def task_handlers(self) -> Iterator[TaskHandler]:
        return (handler for handler in self if isinstance(handler, TaskHandler))


def unknown_handler(name: str, known: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known)) or 'none'}"
    return UsageError(f"there is no handler {name!r}", hint=hint)
