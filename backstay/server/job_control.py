"""Cancels and removes jobs on request."""

from contextlib import suppress
from typing import Final

from backstay.client import end_waiting_items
from backstay.core.errors import BackstayError, NotAllowed, NotFound
from backstay.core.events import Trouble
from backstay.server.service import Service
from backstay.upkeep.retention import delete_artifacts

CHUNKS_AT_ONCE: Final = 5


async def cancel_job(service: Service, job_id: int, owner: str) -> None:
    """Marks the job as cancelled, which is final, and ends its waiting items."""
    await service.store.jobs.cancel(job_id, owner)
    for _ in range(CHUNKS_AT_ONCE):
        if not await end_waiting_items(service.main, job_id):
            return
    service.tasks.spawn(_end_waiting_in_background(service, job_id))


async def end_waiting(service: Service, job_id: int) -> None:
    """Ends all waiting items of a job that was stopped."""
    while await end_waiting_items(service.main, job_id):
        pass


async def stop_job(service: Service, job_id: int, owner: str) -> None:
    """Only marks the job as cancelled, if it has not ended; its items end later."""
    with suppress(NotAllowed, NotFound):  # it was cancelled before, or has just ended
        await service.store.jobs.cancel(job_id, owner)


async def _end_waiting_in_background(service: Service, job_id: int) -> None:
    """If this stops half-way, the sweeps of the workers end the rest."""
    try:
        await end_waiting(service, job_id)
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("cancel", str(error)))


ITEMS_AT_ONCE: Final = 10_000


async def remove_job(service: Service, job_id: int, owner: str) -> None:
    items = await service.store.jobs.disown(job_id, owner)
    if items <= ITEMS_AT_ONCE:
        await _delete_rows_and_files(service, job_id)
    else:
        service.tasks.spawn(remove_disowned_jobs(service))


async def remove_disowned_jobs(service: Service) -> None:
    """Finishes removals that a dead process had begun."""
    try:
        while left := await service.store.jobs.disowned_jobs():
            for job_id in left:
                await _delete_rows_and_files(service, job_id)
    except BackstayError as error:
        service.backstay.bus.emit(Trouble("removal", str(error)))


async def _delete_rows_and_files(service: Service, job_id: int) -> None:
    await delete_artifacts(service.store, service.artifacts, service.main.clock, job_id)
    await service.store.jobs.purge(job_id)


async def drop_blobs(service: Service) -> int:
    """Deletes the bytes of deleted and expired files; returns how many files that were."""
    idle = await service.store.files.idle_blobs()
    for file_id, blob in idle:
        await service.artifacts.delete(blob)
        await service.store.files.forget_blob(file_id)
    return len(idle)
