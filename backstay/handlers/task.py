"""A user's class as a handler of provider tasks: submit, poll, and where the provider can, find and cancel."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from backstay.core.errors import Permanent, UsageError
from backstay.core.failures import ErrorCode, Failure, FailureKind, one_line
from backstay.core.outcomes import CannotAsk, Failed, NeverArrived, Running, Skipped, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.handlers.context import Context
from backstay.handlers.handler import ASKS_AT_ONCE, Rules
from backstay.handlers.payload import PayloadType, dump, payload_annotation

Answer = Succeeded | Failed | Skipped | Running  # a poll's answer about one task


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


def _answer(given: Any) -> Answer:
    """One bad answer fails only its own item, not the others of the same poll."""
    if isinstance(given, Succeeded | Failed | Skipped | Running):
        return given
    return gone_wrong(f"the method poll returned {type(given).__name__}", retryable=False, code=ErrorCode.UNKNOWN)


class TaskHandler:
    """Wraps an object with `async submit(item[, context]) -> task id` and `async poll(task_ids) -> {id: answer}`."""

    answers: Answers | None = None
    pace_name = ""
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
        self.rules = rules
        self.askable = callable(getattr(work, "find", None))

    def check(self, payload: Any) -> None:
        self._payload.check(payload)

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        payload = self._payload.load(body)
        more = {"context": context} if self._wants_context else {}
        return Submitted(_storable(await self._work.submit(payload, **more)), self.account)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Submitted | NeverArrived | CannotAsk:
        found = await self._work.find(client_ref)
        return NeverArrived() if found is None else Submitted(_storable(found), self.account)

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Answer]:
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
