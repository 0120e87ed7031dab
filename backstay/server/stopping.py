"""Cancelling a job for someone who waits: what is soon done is done, the rest goes on behind his back."""

from typing import Final

from backstay.clock import Tasks
from backstay.core.errors import BackstayError
from backstay.core.events import ItemsStopped, JobEnded, Trouble
from backstay.core.states import ItemState, StopReason
from backstay.server.service import Service

CHUNKS_AT_ONCE: Final = 5
_tasks: Final = Tasks()


async def cancel_job(service: Service, job_id: int, owner: str) -> None:
    """Marks the job, which stops it for good, and ends its waiting items."""
    await service.store.cancel(job_id, owner)
    for _ in range(CHUNKS_AT_ONCE):
        if not await _end_some(service, job_id):
            return
    _tasks.spawn(_end_all(service, job_id))


async def _end_all(service: Service, job_id: int) -> None:
    """Whatever stops this, the workers' sweeps end the rest."""
    try:
        while await _end_some(service, job_id):
            pass
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("cancel", str(error)))


async def _end_some(service: Service, job_id: int) -> bool:
    items, ended_jobs, more = await service.store.end_stopped(job_id, StopReason.CANCEL)
    if items:
        service.backstay.bus.emit(ItemsStopped(job_id, items, ItemState.CANCELLED))
    for ended, state in ended_jobs:
        service.backstay.bus.emit(JobEnded(ended, state))
    return more
