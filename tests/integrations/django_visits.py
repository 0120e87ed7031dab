"""Visits the example project with Django's test client, in a process of its own: Django is set up once in a process."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shop  # type: ignore[import-not-found]  # the folder of the example is on the path
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django_tasks import task
from django_tasks.base import TaskContext

from backstay.django import shared_backstay

MANAGE = Path(shop.__file__).with_name("manage.py")
visitor = Client()


@task
def refuse(word: str) -> None:
    raise ValueError(f"no {word}")


@task(takes_context=True)
def tell(context: TaskContext) -> list[Any]:
    return [context.attempt, context.task_result.id, context.task_result.task.name]


@task
async def wait_for(word: str) -> str:
    return word


def until(shown: Callable[[], Any]) -> Any:
    """What is shown, as soon as there is something."""
    end = time.monotonic() + 60
    while not (found := shown()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return found


def ended(result: Any) -> Any:
    def look() -> Any:
        result.refresh()
        return result.is_finished

    until(look)
    return result


def visit() -> None:
    """While a worker runs that Django's command has started."""
    made = visitor.post("/orders", {"pdf": "a.pdf"})
    assert (made.status_code, made.json()["job"]) == (202, 1)
    order = made.json()["order"]
    assert until(lambda: visitor.get(f"/orders/{order}").json()["text"]) == "A.PDF"
    assert visitor.get("/orders/999").status_code == 404

    greeted = visitor.post("/greetings", {"name": "Ada"}).json()["task"]
    assert until(lambda: visitor.get(f"/greetings/{greeted}").json()["value"]) == "Hello Ada!"
    assert [visitor.get(f"/greetings/{none}").status_code for none in ("999", "1", "x", "9" * 40)] == [404] * 4


def visit_without_worker() -> None:
    """Nothing that is rolled back is left, and what waits says so."""
    before = shop.Order.objects.count()
    assert visitor.post("/orders", {"pdf": "a.exe"}).status_code == 422
    assert shop.Order.objects.count() == before
    with transaction.atomic():
        shop.greet.enqueue("nobody")
        transaction.set_rollback(True)
    with transaction.atomic():
        kept = shop.greet.enqueue("Bob")
    jobs = shared_backstay()
    assert [page.label for page in jobs.run(_jobs())] == ["shop.greet"]
    kept.refresh()
    assert (kept.status, kept.started_at, kept.args) == ("READY", None, ["Bob"])

    failing, telling, waiting = refuse.enqueue("cake"), tell.enqueue(), wait_for.enqueue("tea")
    foreign = jobs.submit("django_task", [{"task": "os.getpid", "args": [], "kwargs": {}}])
    with jobs.working():
        assert ended(kept).return_value == "Hello Bob"
        assert ended(telling).return_value == [1, telling.id, "tell"]
        assert ended(waiting).return_value == "tea"
        assert ended(failing).status == "FAILED"
        foreign.wait(timeout_seconds=60)
    assert "no cake" in failing.errors[0].traceback
    assert [result.message for result in foreign.results()] == ["os.getpid is not a task"]


async def _jobs() -> Any:
    client = await shop.app.open()
    return await client.store.job_views.page(client.owner)


if __name__ == "__main__":
    sys.modules["django_visits"] = sys.modules["__main__"]
    if sys.argv[1] == "alone":
        call_command("migrate", run_syncdb=True, verbosity=0)
        visit_without_worker()
    else:  # this process first uses Backstay inside a transaction
        subprocess.run([sys.executable, str(MANAGE), "migrate", "--run-syncdb", "--verbosity=0"], check=True)
        with subprocess.Popen([sys.executable, str(MANAGE), "backstay_worker", "--concurrency", "5"]) as worker:
            try:
                visit()
            finally:
                worker.terminate()
        assert worker.returncode == 0, "the worker did not stop cleanly"
    print("visited")
