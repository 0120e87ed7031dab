"""Runs that were started by a command on the same database are batches, too."""

import json
from typing import Final

from backstay.clock import new_id
from backstay.llm.envelope import unseal
from backstay.server.openai.survey import shown_model
from backstay.server.service import Service
from backstay.store.batches import Adoptable, Adopted

OWNERS_MAX: Final = 10_000


async def adopt(service: Service, owner: str) -> None:
    """Makes batches of the owner's runs that are none yet. Jobs of long ago are looked at once in a process's life."""
    seen = service.adopted_up_to
    after: int | None = seen.get(owner, 0)
    if len(seen) >= OWNERS_MAX:
        seen.clear()
    while after is not None:
        page = await service.store.batches.adoptable(owner, after)
        await service.store.batches.adopt(owner, [_adopted(run) for run in page.runs])
        seen[owner] = max(seen.get(owner, 0), page.settled)
        after = page.next
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
