"""Cancelling a job for someone who waits: what is soon done is done, the rest goes on behind his back."""

from contextlib import suppress
from typing import Final

from backstay.client import Job
from backstay.core.errors import BackstayError, NotAllowed, NotFound
from backstay.core.events import Trouble
from backstay.server.service import Service

CHUNKS_AT_ONCE: Final = 5


async def cancel_job(service: Service, job_id: int, owner: str) -> None:
    """Marks the job, which stops it for good, and ends its waiting items."""
    await service.store.cancel(job_id, owner)
    job = service.client(owner).job(job_id)
    for _ in range(CHUNKS_AT_ONCE):
        if not await job.end_some():
            return
    service.tasks.spawn(_end_rest(service, job))


async def stop_job(service: Service, job_id: int, owner: str) -> None:
    """Only marks the job, if it is not over by now; its items end by and by."""
    with suppress(NotAllowed, NotFound):  # it was cancelled before, or has just ended by itself
        await service.store.cancel(job_id, owner)


async def _end_rest(service: Service, job: Job) -> None:
    """Whatever stops this, the workers' sweeps end the rest."""
    try:
        while await job.end_some():
            pass
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("cancel", str(error)))
