"""`backstay.schedules`: adds, lists, pauses, resumes, runs and removes the schedules of an application."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from types import MappingProxyType
from typing import Any, Final

from backstay import cron as cron_lines
from backstay.client import Client, Job, Options
from backstay.core.errors import UsageError
from backstay.core.models import NewSchedule, read_missed_policy
from backstay.handlers.function import Registry, dump, unknown_handler
from backstay.handlers.handler import Handler, name_of
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
