"""The application that the stories' workers run: one handler for each way a provider can be dealt with."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from backstay import Backstay, BreakerPolicy, Context, Limits, RetryPolicy, TaskAnswer, done, running

PROVIDER_URL = os.environ.get("STORY_PROVIDER_URL", "http://127.0.0.1:9")

# Short, so that a story of lost leases takes seconds.
LIMITS = Limits(
    lease_seconds=5,
    heartbeat_seconds=1,
    call_timeout_seconds=2,
    handler_timeout_seconds=2,
    send_guard_seconds=1,
    visibility_lag_seconds=0.5,
    reconcile_margin_seconds=0.5,
    poll_interval_seconds=0.3,
    invocation_seconds=60,
    tick_items_max=5_000,
    rescues_max=int(os.environ.get("STORY_RESCUES_MAX", "100")),
    shutdown_seconds=float(os.environ.get("STORY_SHUTDOWN_SECONDS", "5")),
)
PATIENT = RetryPolicy("patient", attempts_max=100, base_ms=100, factor=1.5, cap_ms=1_000, spread=0.2)
# A story about workers is not to be decided by the breaker; the story about the breaker has a handler of its own.
CALM = BreakerPolicy(fail_ratio=0.99, open_ms=500)


def start_line(folder: Path) -> None:
    """Stands ready until the story says go: what takes a process long to start is then over for all of them."""
    (folder / f"{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


if "STORY_START_LINE" in os.environ:
    start_line(Path(os.environ["STORY_START_LINE"]))

# A story about the defaults asks for them.
backstay = Backstay(limits=None if os.environ.get("STORY_DEFAULT_LIMITS") else LIMITS)
_session: aiohttp.ClientSession | None = None


def session() -> aiohttp.ClientSession:
    """One for the whole process, made inside its event loop."""
    global _session
    if _session is None:
        guard = aiohttp.TraceConfig()
        guard.on_request_headers_sent.append(_guard)
        _session = aiohttp.ClientSession(
            PROVIDER_URL, trace_configs=[guard], connector=aiohttp.TCPConnector(limit=0), raise_for_status=True
        )
    return _session


async def _guard(_: Any, trace: Any, __: Any) -> None:
    """The client library calls this when it has a connection and has written nothing to it yet."""
    if isinstance(trace.trace_request_ctx, Context):
        trace.trace_request_ctx.guard()


async def send(path: str, payload: Any, context: Context) -> Any:
    asked = {"client_ref": context.idempotency_key, "payload": payload, "worker": os.getpid()}
    async with session().post(path, json=asked, trace_request_ctx=context) as response:
        return await response.json()


async def look_up(path: str, client_ref: str) -> Any:
    async with session().get(path, params={"client_ref": client_ref}, raise_for_status=False) as response:
        if response.status == 404:
            return None
        response.raise_for_status()
        return await response.json()


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=10)
async def unaskable(item: Any, context: Context) -> Any:
    return await send("/calls/unaskable", item, context)


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=10)
async def explosive(item: Any, context: Context) -> Any:
    """One item takes its whole process with it, each time."""
    if item == "bomb before the call":
        os._exit(9)
    answer = await send("/calls/explosive", item, context)
    if item == "bomb":
        os._exit(9)
    return answer


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=10, delivery="at_most_once")
async def once(item: Any, context: Context) -> Any:
    return await send("/calls/once", item, context)


async def find_call(client_ref: str) -> Any:
    return await look_up("/calls/askable/find", client_ref)


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=4, find=find_call)
async def askable(item: Any, context: Context) -> Any:
    return await send("/calls/askable", item, context)


@backstay.task("task", retry=PATIENT, breaker=CALM)
class Task:
    async def submit(self, item: Any, context: Context) -> str:
        return str((await send("/tasks/task", item, context))["task_id"])

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, TaskAnswer]:
        async with session().post("/tasks/task/poll", json={"ids": list(task_ids)}) as response:
            answers = await response.json()
        return {
            task_id: done(answer["result"]) if answer["state"] == "done" else running()
            for task_id, answer in answers.items()
        }

    async def find(self, client_ref: str) -> str | None:
        found = await look_up("/tasks/task/find", client_ref)
        return None if found is None else str(found["task_id"])

    async def cancel(self, task_id: str) -> None:
        async with session().post(f"/tasks/task/{task_id}/cancel"):
            return


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=10, cost=0.01)
async def paid(item: Any, context: Context) -> Any:
    return await send("/calls/paid", item, context)


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=10, cost=lambda item: 0.02)
async def paid_twofold(item: Any, context: Context) -> Any:
    return await send("/calls/paid_twofold", item, context)


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=10, cost=0.03)
async def paid_threefold(item: Any, context: Context) -> Any:
    return await send("/calls/paid_threefold", item, context)


@backstay.handler(retry=PATIENT, breaker=CALM, timeout=10, rate="300/min")
async def rated(item: Any, context: Context) -> Any:
    return await send("/calls/rated", item, context)


BRISK = BreakerPolicy(window_calls=10, calls_min=5, open_ms=2_000, probes_max=2)


@backstay.handler(retry="queue", breaker=BRISK)
async def breakable(item: Any, context: Context) -> Any:
    return await send("/calls/breakable", item, context)


@backstay.handler(timeout=60)
async def blocking(item: float, context: Context) -> int:
    """Blocks the event loop, as no handler should and some do."""
    context.guard()
    time.sleep(item)  # noqa: ASYNC251
    return os.getpid()


@backstay.handler()
async def echo(item: Any) -> Any:
    return item
