"""A backend for Django's tasks: `@task` functions become durable jobs of one item each.

TASKS = {"default": {"BACKEND": "backstay.django.tasks.BackstayBackend"}}
"""

import json
from datetime import UTC, datetime
from typing import Any, Final, Unpack

from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string
from typing_extensions import TypedDict, override

from backstay.app import Backstay, HandlerOptions
from backstay.core.errors import ErrorCode, NotFound, Permanent
from backstay.core.ids import item_id, job_of, read_item
from backstay.core.states import ItemState
from backstay.django import shared_backstay
from backstay.handlers.function import FunctionHandler
from backstay.handlers.handler import Context
from backstay.store.item_views import ItemView
from backstay.store.job_views import JobView

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
except ImportError:  # before Django 6
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued

HANDLER: Final = "django_task"
_ID_DIGITS_MAX: Final = 12
_STATUS: Final = {
    ItemState.QUEUED: "READY",
    ItemState.SUBMITTING: "RUNNING",
    ItemState.PROCESSING: "RUNNING",
    ItemState.SUCCEEDED: "SUCCESSFUL",
}


class TaskCall(TypedDict):
    """What the item of a task holds."""

    task: str  # its path: shop.tasks.send_bill
    args: list[Any]
    kwargs: dict[str, Any]


def add_task_handler(app: Backstay, **rules: Unpack[HandlerOptions]) -> FunctionHandler[..., Any, Any]:
    """Lets the workers of an application run Django's tasks; `rules` are those of `@app.handler()`."""

    def run_task(call: TaskCall, context: Context) -> Any:
        task = _task_at(call["task"])
        if task is None:
            raise Permanent(f"{call['task']} is not a task", ErrorCode.FORBIDDEN)
        before: list[Any] = []
        if task.takes_context:
            job = str(job_of(read_item(context.item_id)))
            workers = [context.item_id] * context.attempt
            before = [TaskContext(task_result=_result(task, job, call, TaskResultStatus.RUNNING, worker_ids=workers))]
        try:
            return task.call(*before, *call["args"], **call["kwargs"])
        finally:
            connections.close_all()  # those of this thread, which ends now

    return app.handler(HANDLER, **rules)(run_task)


def _task_at(path: str) -> Any:
    """Calls only functions that are tasks, even if an item names another function."""
    try:
        found = import_string(path)
    except ImportError:
        return None
    return found if isinstance(found, Task) else None


def _result(task: Any, job: str, call: TaskCall, status: Any, **more: Any) -> Any:
    times = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    given = {"args": call["args"], "kwargs": call["kwargs"], "backend": task.backend, "errors": [], "worker_ids": []}
    return TaskResult(task=task, id=job, status=status, **{**times, **given, **more})


class BackstayBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """OPTIONS: `database` is the alias of the connection to Backstay's database, "default" unless given. A task that is
    enqueued inside its `atomic()` exists if and only if that commits. None: Backstay has another database."""

    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._database = self.options.get("database", "default")

    @override
    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        call = TaskCall(task=task.module_path, args=list(args), kwargs=dict(kwargs))
        connection = connections[self._database] if self._database else None
        inside = connection if connection is not None and connection.in_atomic_block else None
        job = shared_backstay().submit(HANDLER, [call], connection=inside, label=task.module_path)
        result = _result(task, str(job.id), call, TaskResultStatus.READY, enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    @override
    def get_result(self, result_id: str) -> Any:
        if not (result_id.isascii() and result_id.isdigit() and len(result_id) <= _ID_DIGITS_MAX):
            raise TaskResultDoesNotExist(result_id)
        backstay = shared_backstay()
        try:
            job, item, payload, value = backstay.run(_look_up(backstay.app, int(result_id)))
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        if job.handler != HANDLER or payload is None:
            raise TaskResultDoesNotExist(result_id)
        call: TaskCall = json.loads(payload)
        task = _task_at(call["task"])
        if task is None:
            raise TaskResultDoesNotExist(result_id)
        status = TaskResultStatus(_STATUS.get(ItemState(item.state), "FAILED"))
        result = _result(task, result_id, call, status, **_progress(job, item))
        if status == TaskResultStatus.SUCCESSFUL:
            object.__setattr__(result, "_return_value", json.loads(value or "null"))
        elif status == TaskResultStatus.FAILED:
            said = f"{item.error_code or item.state}: {item.message or ''}"
            result.errors.append(TaskError(exception_class_path="backstay.core.errors.Permanent", traceback=said))
        return result


async def _look_up(app: Backstay, job: int) -> tuple[JobView, ItemView, str | None, str | None]:
    client = await app.open()
    asked = (item_id(job, 0), client.owner)
    items = await client.store.item_views.many([asked])  # first: what has ended has its result, and stays so
    bodies = await client.store.item_views.bodies(*asked)
    view = await client.store.job_views.get(job, client.owner)
    return view, items[asked], bodies.payload, bodies.result


def _progress(job: JobView, item: ItemView) -> dict[str, Any]:
    return {
        "enqueued_at": _moment(job.created_at),
        "started_at": _moment(job.started_at),
        "finished_at": _moment(job.finished_at),
        "last_attempted_at": _moment(item.last_attempt_at),
        "worker_ids": [f"{job.id}-0"] * item.attempt_count,
    }


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
