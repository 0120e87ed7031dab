"""A stand-in for a paid provider: an HTTP server in a process of its own, with seeded faults and an exact bill."""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Manners:
    """How the provider treats one kind of request; changed while it runs by POST /manners/KIND."""

    seconds_min: float = 0.0
    seconds_max: float = 0.0
    refuses: float = 0.0  # answers 503 before it does anything
    throttles: float = 0.0  # answers 429 before it does anything
    forgets: float = 0.0  # does the work, bills it, and breaks the connection off instead of answering
    dawdles: float = 0.0  # does the work, bills it, and answers too late for any client
    down: bool = False  # refuses everything
    gathers: int = 0  # keeps requests waiting until so many have come
    holding: bool = False  # takes requests in, and finishes none of them until it is told to
    task_seconds: float = 0.3  # how long a task runs


@dataclass
class Charge:
    """One line of the bill: a request for which the provider did work."""

    kind: str
    client_ref: str
    payload: Any
    worker: int
    number: int
    at: float
    task_id: str | None = None
    ended_at: float | None = None


@dataclass
class Provider:
    rng: random.Random
    manners: dict[str, Manners] = field(default_factory=dict)
    bill: list[Charge] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    charge_of_ref: dict[str, Charge] = field(default_factory=dict)
    tasks: dict[str, Charge] = field(default_factory=dict)
    turned_away: list[tuple[str, int, float]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    arrived: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def becomes(self, fact: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(fact)

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def manners_for(self, kind: str) -> Manners:
        return self.manners.setdefault(kind, Manners())

    async def gather(self, kind: str) -> None:
        self.arrived[kind] += 1
        if wanted := self.manners_for(kind).gathers:
            await self.tell()
            await self.becomes(lambda: self.arrived[kind] >= wanted)

    def turn_away(self, kind: str, worker: int = 0) -> web.Response | None:
        """A refusal that costs nothing, if this request is to have one."""
        manners = self.manners_for(kind)
        if manners.down or self.rng.random() < manners.refuses:
            self.turned_away.append((kind, worker, time.time()))
            return web.json_response({"error": "overloaded"}, status=503)
        if self.rng.random() < manners.throttles:
            return web.json_response({"error": "slow down"}, status=429, headers={"Retry-After": "1"})
        return None

    def charge(self, kind: str, asked: dict[str, Any]) -> Charge:
        charge = Charge(kind, asked["client_ref"], asked["payload"], asked["worker"], len(self.bill), time.time())
        self.bill.append(charge)
        self.charge_of_ref[charge.client_ref] = charge
        return charge

    async def answer(self, request: web.Request, kind: str, body: dict[str, Any]) -> web.StreamResponse:
        """The answer to work that is done, unless it is lost on the way."""
        manners = self.manners_for(kind)
        if self.rng.random() < manners.dawdles:
            await asyncio.sleep(30)
        if self.rng.random() < manners.forgets and request.transport is not None:
            request.transport.abort()
        return web.json_response(body)


PROVIDER = web.AppKey("provider", Provider)


async def call(request: web.Request) -> web.StreamResponse:
    """Does the work at once. Every request is done and billed, whether its reference was seen before or not."""
    provider, kind, asked = request.app[PROVIDER], request.match_info["kind"], await request.json()
    await provider.gather(kind)
    refusal = provider.turn_away(kind, asked["worker"])
    if refusal is not None:
        return refusal
    charge = provider.charge(kind, asked)
    manners = provider.manners_for(kind)
    # Drawn even when it is over at once, so that a seed means the same run of faults at any latency.
    await asyncio.sleep(provider.rng.uniform(manners.seconds_min, manners.seconds_max))
    await provider.becomes(lambda: not manners.holding)
    charge.ended_at = time.time()
    result = {"payload": asked["payload"], "charge": charge.number}
    provider.answers[charge.client_ref] = result
    await provider.tell()
    return await provider.answer(request, kind, result)


async def find_call(request: web.Request) -> web.Response:
    provider = request.app[PROVIDER]
    charge = provider.charge_of_ref.get(request.query["client_ref"])
    if charge is None:
        raise web.HTTPNotFound
    await provider.becomes(lambda: charge.ended_at is not None)
    return web.json_response(provider.answers[charge.client_ref])


async def submit_task(request: web.Request) -> web.StreamResponse:
    provider, kind, asked = request.app[PROVIDER], request.match_info["kind"], await request.json()
    refusal = provider.turn_away(kind, asked["worker"])
    if refusal is not None:
        return refusal
    charge = provider.charge(kind, asked)
    charge.task_id = f"task-{len(provider.tasks)}"
    provider.tasks[charge.task_id] = charge
    charge.ended_at = charge.at + provider.manners_for(kind).task_seconds
    manners = provider.manners_for(kind)
    await asyncio.sleep(provider.rng.uniform(manners.seconds_min, manners.seconds_max))
    return await provider.answer(request, kind, {"task_id": charge.task_id})


async def poll_tasks(request: web.Request) -> web.Response:
    """Where these tasks are: `running`, `done` with a result, or absent when there is no such task."""
    provider, now = request.app[PROVIDER], time.time()
    refusal = provider.turn_away(f"{request.match_info['kind']}-poll")
    if refusal is not None:
        return refusal
    known = [provider.tasks[task_id] for task_id in (await request.json())["ids"] if task_id in provider.tasks]
    answers = {str(task.task_id): _task_answer(task, now) for task in known}
    return web.json_response(answers)


def _task_answer(task: Charge, now: float) -> dict[str, Any]:
    if task.ended_at is None or task.ended_at > now:
        return {"state": "running"}
    return {"state": "done", "result": {"payload": task.payload, "task": task.task_id}}


async def find_task(request: web.Request) -> web.Response:
    charge = request.app[PROVIDER].charge_of_ref.get(request.query["client_ref"])
    if charge is None:
        raise web.HTTPNotFound
    return web.json_response({"task_id": charge.task_id})


async def cancel_task(request: web.Request) -> web.Response:
    request.app[PROVIDER].cancelled.append(request.match_info["task_id"])
    return web.json_response({})


async def read_bill(request: web.Request) -> web.Response:
    provider = request.app[PROVIDER]
    charges = [asdict(charge) for charge in provider.bill]
    return web.json_response({"charges": charges, "turned_away": provider.turned_away})


async def change_manners(request: web.Request) -> web.Response:
    manners = request.app[PROVIDER].manners_for(request.match_info["kind"])
    for name, value in (await request.json()).items():
        if not hasattr(manners, name):
            raise web.HTTPBadRequest(text=f"no such manner: {name}")
        setattr(manners, name, value)
    await request.app[PROVIDER].tell()
    return web.json_response(asdict(manners))


def application(seed: int) -> web.Application:
    app = web.Application()
    app[PROVIDER] = Provider(random.Random(seed))
    app.add_routes(
        [
            web.post("/calls/{kind}", call),
            web.get("/calls/{kind}/find", find_call),
            web.post("/tasks/{kind}", submit_task),
            web.post("/tasks/{kind}/poll", poll_tasks),
            web.get("/tasks/{kind}/find", find_task),
            web.post("/tasks/{kind}/{task_id}/cancel", cancel_task),
            web.get("/bill", read_bill),
            web.post("/manners/{kind}", change_manners),
        ]
    )
    return app


async def serve(seed: int) -> None:
    """Serves on a free port, says which, and goes on until whoever started it closes its input."""
    runner = web.AppRunner(application(seed), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    asyncio.run(serve(arguments.parse_args().seed))
