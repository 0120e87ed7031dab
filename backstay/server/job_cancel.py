"""Cancels a job while a client waits: short work is done before the answer, the rest continues after it."""

from contextlib import suppress
from typing import Final

from backstay.client import end_some
from backstay.core.errors import BackstayError, NotAllowed, NotFound
from backstay.core.events import Trouble
from backstay.server.service import Service

CHUNKS_AT_ONCE: Final = 5


async def cancel_job(service: Service, job_id: int, owner: str) -> None:
    """Marks the job as cancelled, which is final, and ends its waiting items."""
    await service.store.jobs.cancel(job_id, owner)
    for _ in range(CHUNKS_AT_ONCE):
        if not await end_some(service.main, job_id):
            return
    service.tasks.spawn(_end_rest(service, job_id))


async def end_waiting(service: Service, job_id: int) -> None:
    """Ends all waiting items of a job that was stopped."""
    while await end_some(service.main, job_id):
        pass


async def stop_job(service: Service, job_id: int, owner: str) -> None:
    """Only marks the job, if it is not over by now; its items end by and by."""
    with suppress(NotAllowed, NotFound):  # it was cancelled before, or has just ended
        await service.store.jobs.cancel(job_id, owner)


async def _end_rest(service: Service, job_id: int) -> None:
    """Whatever stops this, the workers' sweeps end the rest."""
    try:
        await end_waiting(service, job_id)
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("cancel", str(error)))
