"""Runs that were started by a command on the same database are batches, too."""

import json
from dataclasses import dataclass
from typing import Final

from backstay.clock import new_id
from backstay.llm.lines import unseal
from backstay.server.openai.survey import shown_model
from backstay.server.service import Service
from backstay.store.batches import Adoptable, Adopted

OWNERS_MAX: Final = 10_000
LATE_SECONDS: Final = 10.0


@dataclass(slots=True)
class Looked:
    """How far an owner's jobs were looked through for runs in this process's life."""

    settled: int = 0  # final up to this position
    newest: int = 0  # up to here at least once
    again_at: float = 0.0  # when those between are due to be looked at again: one may have been committed late


async def adopt(service: Service, owner: str) -> None:
    """Makes batches of the owner's runs that are none yet: of the new ones always, of late ones now and then."""
    if len(service.looked_for_runs) >= OWNERS_MAX:
        service.looked_for_runs.clear()
    looked = service.looked_for_runs.setdefault(owner, Looked())
    after, now = looked.newest, service.main.clock.monotonic()
    if now >= looked.again_at:
        after, looked.again_at = looked.settled, now + LATE_SECONDS
    more = True
    while more:
        page = await service.store.batches.adoptable(owner, after)
        await service.store.batches.adopt(owner, [_adopted(run) for run in page.runs])
        looked.settled = max(looked.settled, page.settled)
        looked.newest = max(looked.newest, page.last)
        after, more = page.last, page.more
        if page.runs:
            service.wake_mover()


def _adopted(run: Adoptable) -> Adopted:
    request = unseal(run.first)
    model = json.loads(request.body).get("model")
    named = run.label or f"job-{run.job_id}"
    return Adopted(
        batch_id=f"batch_{new_id()}",
        run=run,
        file_id=f"file-{new_id()}",
        filename=named if named.endswith(".jsonl") else f"{named}.jsonl",
        endpoint=request.url,
        model=shown_model(model) if isinstance(model, str) else None,
    )
