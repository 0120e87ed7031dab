"""Deleting a job for someone who waits: it is gone at once; its rows and artifacts follow."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backstay.clock import Tasks
from backstay.core.errors import BackstayError
from backstay.core.events import Trouble
from backstay.server.service import Service

ITEMS_AT_ONCE: Final = 10_000
PREFIXES: Final = ("logs", "results")
_tasks: Final = Tasks()


async def remove(service: Service, job_id: int, owner: str) -> None:
    items = await service.store.purge.disown(job_id, owner)
    if items <= ITEMS_AT_ONCE:
        await _finish(service, job_id)
    else:
        _tasks.spawn(remove_rest(service))


@asynccontextmanager
async def removing(service: Service) -> AsyncIterator[None]:
    """While the block runs, what was begun before is brought to its end."""
    task = _tasks.spawn(remove_rest(service))
    try:
        yield
    finally:
        task.cancel()


async def remove_rest(service: Service) -> None:
    """Goes on with what a process that is gone had begun."""
    try:
        while left := await service.store.purge.left():
            for job_id in left:
                await _finish(service, job_id)
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("removal", str(error)))


async def _finish(service: Service, job_id: int) -> None:
    """Artifacts first: while the job's row is there, whoever takes over knows that there are some."""
    for kind in ("logs", "results"):
        async for name in service.artifacts.names(f"{kind}/{job_id}"):
            await service.artifacts.delete(name)
    await service.store.purge.finish(job_id)
