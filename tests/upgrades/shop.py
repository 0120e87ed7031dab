"""The application whose database is kept for each revision of the schema. It speaks only the part of Backstay that has
been the same since the first revision, so that the code of any revision can run it.

As a program it works until the middle of a run, and dies there: `python shop.py DATABASE_FILE BILL REVISION`.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backstay import Backstay, Context, OutcomeUnknown, Permanent, Transient, done, running

DIED = 9  # the exit code of a run that came to its middle
# What each job asks for, and how many of its items are in which state in the middle.
JOBS: Mapping[str, tuple[Sequence[str], Mapping[str, int]]] = {
    "call": (
        ("answer", "answer", "refuse", "retry", "hang"),
        {"succeeded": 2, "failed": 1, "queued": 1, "submitting": 1},
    ),
    "look_up": (("answer", "hang", "hang", "answer"), {"succeeded": 1, "submitting": 2, "queued": 1}),
    "once": (("answer", "lose", "hang"), {"succeeded": 1, "failed": 1, "submitting": 1}),
    "task": (("answer", "answer"), {"processing": 2}),
}


class Bill:
    """What was paid for: a line for each call, by its idempotency key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def add(self, key: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{key}\n")

    @property
    def keys(self) -> list[str]:
        return self._path.read_text().split()


def shop(url: str, bill: Bill, *, breaks: bool = False) -> Backstay:
    """With `breaks` the provider hangs, fails and loses answers, as the items say; otherwise it answers all."""
    app = Backstay(url)

    async def ask(item: dict[str, str], context: Context) -> Any:
        if item.get("do") == "refuse":
            raise Permanent("the request is wrong")
        if item.get("do") == "retry" and breaks:
            raise Transient("the provider answered 503")
        bill.add(context.idempotency_key)
        if item.get("do") == "lose" and breaks:
            raise OutcomeUnknown("the connection broke during the call")
        if item.get("do") == "hang" and breaks:
            await asyncio.Event().wait()
        return {"key": context.idempotency_key}

    async def find(key: str) -> Any:
        return {"key": key} if key in bill.keys else None

    app.handler("call", retry="gateway")(ask)
    app.handler("look_up", retry="gateway", find=find, concurrency=2)(ask)
    app.handler("once", retry="gateway", delivery="at_most_once")(ask)

    @app.task("task", retry="gateway")
    class Task:
        async def submit(self, item: dict[str, str], context: Context) -> str:
            bill.add(context.idempotency_key)
            return f"task of {context.idempotency_key}"

        async def poll(self, task_ids: Sequence[str]) -> Any:
            return {task_id: running() if breaks else done({"task": task_id}) for task_id in task_ids}

    return app


async def work_until_the_middle(path: str, bill: Bill, revision: str) -> None:
    app = shop(f"sqlite:///{path}", bill, breaks=True)
    async with app, asyncio.timeout(60):
        ended = await app.submit("call", [{"do": "answer"}], idempotency_key="the first", label="Grüße; 'eins'")
        async with app.working():
            await ended.wait()
        paused = await app.submit("call", [{"do": "answer"}] * 2)
        await paused.pause()
        cancelled = await app.submit("call", [{"do": "answer"}])
        await cancelled.cancel()
        jobs = {name: await app.submit(name, [{"do": do} for do in JOBS[name][0]], priority=3) for name in JOBS}
        if revision >= "0015":
            await app.submit("call", after=jobs["task"], fallback="look_up", unique="the last", unique_seconds=3600)
            await app.submit("call", [{"do": "answer"}], item_key="do")
        async with app.working():
            while any(states(path, job.id) != JOBS[name][1] for name, job in jobs.items()):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.05)
            os._exit(DIED)


def states(path: str, job_id: int) -> dict[str, int]:
    connection = sqlite3.connect(path)
    asked = "SELECT state, count(*) FROM items WHERE job_id = ? GROUP BY state"
    found = dict(connection.execute(asked, (job_id,)).fetchall())
    connection.close()
    return found


if __name__ == "__main__":
    asyncio.run(work_until_the_middle(sys.argv[1], Bill(Path(sys.argv[2])), sys.argv[3]))
