"""A run that sends its first requests only, so that answers and cost can be seen before the rest is sent."""

from typing import NamedTuple

from backstay.client import Client, Job
from backstay.core.display import show_count
from backstay.core.errors import NotAllowed
from backstay.core.ids import item_id
from backstay.core.states import ItemState
from backstay.llm.bodies import answer_text, object_of
from backstay.llm.lines import unseal
from backstay.run.result_file import ended_of
from backstay.store.workers import WorkerView


class TriedRequest(NamedTuple):
    """A request that was sent first, and what came of it."""

    custom_id: str
    body: str
    answer: str | None
    error: str | None
    cost_micros: int | None


async def _others(client: Client) -> list[WorkerView]:
    return [worker for worker in await client.store.workers.page() if worker.alive(client.limits.lease_ms)]


async def require_alone(client: Client) -> None:
    """Other workers would send all that is stored."""
    if others := await _others(client):
        hint = "stop them, or use another database with --db"
        who = show_count(len(others), "other worker")
        raise NotAllowed(f"--try cannot hold back the rest: {who} of this database would send it", hint=hint)


async def pause_alone(client: Client, job: Job) -> None:
    """Pauses a run that only this command sent: workers that start later must not continue it by themselves."""
    others, view = await _others(client), await job.show()
    if not others and not view.ended and view.stop_reason is None:
        await job.pause()


async def are_tried(client: Client, job_id: int, first: int | None) -> bool:
    """Whether the first requests have all ended."""
    if first is None:
        return False
    async for page in client.store.results.ended_items(job_id):
        return sum(1 for item, _ in page if item < item_id(job_id, first)) >= first
    return False


async def read_tried(client: Client, job_id: int, first: int) -> list[TriedRequest]:
    items = [item_id(job_id, position) for position in range(first)]
    costs, found = await client.store.results.costs_of(items), []
    for row in await client.store.results.of_items(items):
        request, ended = unseal(row.body), ended_of(row)
        ok = row.state == ItemState.SUCCEEDED
        answer = answer_text((object_of(row.result or "") or {}).get("body")) if ok else None
        error = None if ok else ended.message or ended.code or "failed"
        found.append(TriedRequest(request.custom_id, request.body, answer, error, costs.get(row.id)))
    return found
