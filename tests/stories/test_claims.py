"""Three invocations at once, as real processes: nothing is submitted twice."""

import asyncio
from pathlib import Path

import pytest

from backstay.core.ids import item_id
from backstay.core.models import AttemptOutcome
from tests.databases import fresh_database
from tests.stories.stage import Stage, paid_twice

pytestmark = pytest.mark.slow

database_url = fresh_database("postgres", later="sqlite")

ITEMS = 2_100


async def test_three_invocations_at_once_submit_every_item_exactly_once(database_url: str, tmp_path: Path) -> None:
    async with Stage(database_url, tmp_path) as stage:
        # One invocation alone would take 8 s, so each of three that begin together has its part.
        await stage.manners("task", seconds_min=0.08, seconds_max=0.12, task_seconds=0.1)
        job = await stage.submit("task", range(ITEMS))
        ticks = await stage.ticks_at_once(3)
        claimed = [report["claimed"] for report in await asyncio.gather(*map(stage.report, ticks))]
        assert all(claimed), f"all three took part, or this shows nothing: {claimed}"
        claimed.append((await stage.report(stage.tick()))["claimed"])  # what was handed back when the others had ended

        bill = await stage.bill("task")
        assert len(bill) == ITEMS, "the provider counts exactly one submission per item"
        assert paid_twice(bill) == []
        ids = [item_id(job.id, position) for position in range(ITEMS)]
        acts = [act for item in ids for act in await stage.acts(item)]
        tries = [attempt for item in ids for attempt in await stage.store.item_views.attempts(item)]
        again = acts.count("handed_back") + acts.count("rescued")  # cut off before or after it was to be sent
        again += sum(attempt.outcome == AttemptOutcome.RETRY for attempt in tries)  # refused by a busy machine
        assert sum(claimed) == ITEMS + again, "only what the provider never had is claimed again"
        items = [await stage.store.item_views.get(item, "local") for item in ids]
        task_ids = [item.provider_task_id for item in items]
        assert None not in task_ids
        assert len(set(task_ids)) == ITEMS, "no two items share a task"
        assert {(charge.payload, charge.task_id) for charge in bill} == set(enumerate(task_ids))

        stage.worker()
        ended = await job.wait(timeout_seconds=60)
        assert ended.succeeded == ITEMS
        assert len(await stage.bill("task")) == ITEMS
