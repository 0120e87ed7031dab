"""Workers: which are alive, their handlers and leases. They work for all owners, so the page is for admins."""

from collections import Counter

from fastapi import APIRouter, Request, Response

from backstay.server.pages import layout
from backstay.server.pages.page_request import visit_to_read
from backstay.store.keys import Role

router = APIRouter(include_in_schema=False)


@router.get("/workers")
async def list_workers(request: Request) -> Response:
    visit = await visit_to_read(request, Role.ADMIN)
    store = visit.service.store
    lease_ms = visit.service.backstay.limits.lease_ms
    held: Counter[str] = Counter()
    for lease in await store.workers.leases():
        held[lease.worker] += lease.items
    workers = [(worker, _state(worker.alive(lease_ms), worker.stopped_at)) for worker in await store.workers.page()]
    known = {worker.id for worker, _ in workers}
    lost = sum(items for worker, items in held.items() if worker not in known)
    return await layout.show_page(visit, "workers.html", workers=workers, held=held, lost=lost, lease_ms=lease_ms)


def _state(alive: bool, stopped_at: int | None) -> str:
    return "alive" if alive else "lost" if stopped_at is None else "stopped"
