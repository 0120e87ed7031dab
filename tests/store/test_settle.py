"""settle: the transitions of the table and no other, counters and jobs in the same transaction."""

import contextlib
import itertools
import re

import pytest

from backstay.core.callbacks import read_callback
from backstay.core.errors import NotAllowed
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.ids import item_id
from backstay.core.models import Attempt, Claimed, Failed, HandedBack, Outcome, Running, Settlement, Skipped, Stopped
from backstay.core.states import TERMINAL, TRANSITIONS, ItemState, JobState, StopReason
from tests.store.store_rig import BROKEN, LEASE_MS, OK, TASK, WRONG, Scene, decided


async def item_in(scene: Scene, state: ItemState, handler: str = "echo") -> Claimed:
    """An item in this state, as the last one to hold it saw it."""
    await scene.submit(2, handler=handler)
    (item,) = await scene.claim(1, handler=handler)
    match state:
        case ItemState.SUBMITTING:
            pass
        case ItemState.QUEUED:
            await scene.settle(item, BROKEN)
        case ItemState.PROCESSING:
            await scene.store.items.settle([Settlement(item.id, item.fence, 0, "task-1", "submitting", state)])
            (item,) = (await scene.store.items.poll(handler, None, 1, "w1", LEASE_MS)).items
        case _:
            await scene.store.items.settle([ending(item, item.fence, state)])
    assert (await scene.item(item.job_id)).state is state
    return item._replace(state=state)


def ending(item: Claimed, fence: int, state: ItemState) -> Settlement:
    """A settlement as somebody would write it who did not look; a success has its result with it."""
    at = item.started_at
    attempt = Attempt(item.id, fence, 1, state, at, at, None, None, None, "1", None, None, None)
    done = attempt if state is ItemState.SUCCEEDED else None
    return Settlement(item.id, fence, was=item.state, state=state, attempt=done)


async def push(scene: Scene, item: Claimed, new: ItemState) -> None:
    """Tries every verb that could bring an item to a state."""
    fences = await scene.site.rows(f"SELECT fence FROM items WHERE id = {item.id}")
    if item.state in (ItemState.SUBMITTING, ItemState.PROCESSING) or new is not ItemState.QUEUED:
        await scene.store.items.settle([ending(item, fences[0][0], new)])
    await scene.site.advance(1_000)
    if new is ItemState.SUBMITTING:
        await scene.claim(handler=item.handler)
        await scene.store.items.rescue(item.handler, False, 10, "w2", LEASE_MS)
    if new is ItemState.QUEUED and item.state is ItemState.FAILED:
        await scene.store.jobs.retry(item.job_id, "ann")
    if new is ItemState.SUCCEEDED:
        said = read_callback(b'{"status":"succeeded","result":1}')
        received = await scene.store.inbox.receive(item.id, item.fence, said)
        for late in await scene.store.inbox.late("ann", None, 1) if received.late else []:
            with contextlib.suppress(NotAllowed):
                await scene.store.inbox.accept(late.number, "ann", "a test")
    if new is ItemState.PROCESSING and item.state is ItemState.FAILED:
        await scene.site.rows(f"UPDATE items SET flaw = 'unknown', provider_task_id = 'task' WHERE id = {item.id}")
        await scene.store.jobs.retry(item.job_id, "ann")
    elif new is ItemState.PROCESSING:
        await scene.store.items.poll(item.handler, None, 10, "w2", LEASE_MS)
    if new is ItemState.CANCELLED and item.state is ItemState.QUEUED:
        await scene.store.jobs.cancel(item.job_id, "ann")
        await scene.store.sweeps.end_stopped(item.job_id, StopReason.CANCEL)
    if new is ItemState.FAILED and item.state is ItemState.QUEUED:
        await scene.site.advance(200_000)
        await scene.store.sweeps.stop_overdue()
        await scene.store.sweeps.end_stopped(item.job_id, StopReason.TIMEOUT)


@pytest.mark.slow
@pytest.mark.parametrize("old", ItemState)
async def test_only_the_transitions_of_the_table_are_possible(scene: Scene, old: ItemState) -> None:
    for new in ItemState:
        item = await item_in(scene, old, handler=f"{old} to {new}")
        before = await scene.item(item.job_id)
        await push(scene, item, new)
        after = await scene.item(item.job_id)
        if new in TRANSITIONS[old]:
            assert after.state is new
        else:
            assert (after.state, after.fence, after.finished_at) == (old, before.fence, before.finished_at), new


@pytest.mark.parametrize("end", sorted(TERMINAL))
async def test_an_end_takes_no_settlement_whatever_fence_it_carries(scene: Scene, end: ItemState) -> None:
    item = await item_in(scene, end)
    before = await scene.everything()
    for state, fence, was in itertools.product(ItemState, (item.fence, item.fence + 1), (end, "submitting")):
        settled = await scene.store.items.settle([Settlement(item.id, fence, was=was, state=state)])
        assert settled.applied == []
    assert await scene.everything() == before


@pytest.mark.parametrize(("table", "states"), [("items", ItemState), ("jobs", JobState)])
async def test_the_database_knows_exactly_the_states_of_the_code(scene: Scene, table: str, states: type) -> None:
    if scene.site.is_postgres:
        sql = f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'ck_{table}_state'"
    else:
        sql = f"SELECT sql FROM sqlite_master WHERE name = '{table}'"
    text = await scene.site.one(sql)
    allowed = text.split(f"ck_{table}_state")[-1] if not scene.site.is_postgres else text
    assert set(re.findall(r"'(\w+)'", allowed)) == {state.value for state in states}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("table", "column"), [("items", "state"), ("jobs", "state")])
async def test_the_database_itself_refuses_another_state(scene: Scene, table: str, column: str) -> None:
    await scene.submit()
    with pytest.raises(Exception, match=f"ck_{table}_state|CHECK"):
        await scene.site.rows(f"UPDATE {table} SET {column} = 'lost'")


async def test_a_result_is_kept_with_its_attempt(scene: Scene) -> None:
    job_id = await scene.submit()
    (item,) = await scene.claim()
    await scene.site.advance(2)
    await scene.settle(item, OK)
    (attempt,) = await scene.store.item_views.attempts(item.id)
    assert (attempt.number, attempt.outcome, attempt.result) == (1, "succeeded", '"done"')
    assert attempt.ended_at - attempt.started_at == 2_000
    ended = await scene.item(job_id)
    assert (ended.progress, ended.leased_by, ended.lease_expires_at) == (100, None, None)


async def test_a_retry_waits_and_counts_an_attempt(scene: Scene) -> None:
    job_id = await scene.submit()
    (item,) = await scene.claim()
    await scene.settle(item, BROKEN)
    waiting = await scene.item(job_id)
    assert (waiting.state, waiting.attempt_count, waiting.error_code) == (ItemState.QUEUED, 1, "GW_5XX")
    assert waiting.due_at is not None
    assert 1_600 <= waiting.due_at - scene.site.clock.ms <= 2_400
    assert (waiting.leased_by, waiting.last_attempt_at) == (None, scene.site.clock.ms)


async def test_a_group_of_different_fates_is_one_transaction(scene: Scene) -> None:
    job_id = await scene.submit(6)
    items = await scene.claim()
    outcomes: list[Outcome] = [OK, WRONG, BROKEN, TASK, Skipped("no need"), Stopped()]
    now = scene.site.clock.ms
    settled = await scene.store.items.settle([decided(i, o, now) for i, o in zip(items, outcomes, strict=True)])
    assert len(settled.applied) == 6
    assert await scene.states(job_id) == ["succeeded", "failed", "queued", "processing", "skipped", "cancelled"]
    assert (await scene.job(job_id)).state is JobState.RUNNING


async def test_a_group_over_several_jobs_moves_each_ones_counters(scene: Scene) -> None:
    jobs = [await scene.submit(2) for _ in range(3)]
    items = await scene.claim()
    settled = await scene.store.items.settle([decided(item, OK, scene.site.clock.ms) for item in items])
    assert sorted(settled.ended_jobs) == [(job, JobState.COMPLETED) for job in jobs]


async def test_settling_nothing_is_fine(scene: Scene) -> None:
    assert (await scene.store.items.settle([])).applied == []


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([OK, OK], JobState.COMPLETED),
        ([OK, WRONG], JobState.COMPLETED),
        ([WRONG, OK], JobState.COMPLETED),
        ([WRONG, WRONG], JobState.FAILED),
        ([Skipped("why"), Skipped("why")], JobState.FAILED),
        ([Skipped("why"), OK], JobState.COMPLETED),
    ],
)
async def test_a_job_ends_with_its_last_item_as_its_items_did(scene: Scene, outcomes: list, state: JobState) -> None:
    job_id = await scene.submit(2)
    items = await scene.claim()
    assert (await scene.settle(items[0], outcomes[0])).ended_jobs == []
    assert (await scene.settle(items[1], outcomes[1])).ended_jobs == [(job_id, state)]
    job = await scene.job(job_id)
    assert (job.state, job.finished_at) == (state, scene.site.clock.ms)


async def test_a_job_that_still_takes_items_does_not_end(scene: Scene) -> None:
    job = await scene.open_job(1, last=False)
    await scene.settle((await scene.claim())[0], OK)
    assert (await scene.job(job.id)).state is JobState.RUNNING


async def test_a_paused_job_ends_with_its_last_running_item(scene: Scene) -> None:
    job_id = await scene.submit()
    (item,) = await scene.claim()
    await scene.store.jobs.pause(job_id, "ann")
    await scene.settle(item, OK)
    assert (await scene.job(job_id)).state is JobState.COMPLETED


async def test_a_task_still_running_is_polled_later(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.site.advance(10)
    (polled,) = (await scene.store.items.poll("echo", "account-1", 1, "w1", LEASE_MS)).items
    await scene.settle(polled, Running(40))
    view = await scene.item(item.job_id)
    assert (view.state, view.progress, view.provider_task_id) == (ItemState.PROCESSING, 40, "task-0")
    assert view.due_at == scene.site.clock.ms + 5_000
    assert (await scene.job(item.job_id)).processing == 1


@pytest.mark.parametrize("text", ["nul \0 byte", "lone \ud800 surrogate", "é ☃ 𝄞", "x" * 5_000, ""])
async def test_whatever_a_message_holds_it_is_stored_and_read(scene: Scene, text: str) -> None:
    job_id = await scene.submit()
    (item,) = await scene.claim()
    await scene.settle(item, Failed(Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, text)))
    (attempt,) = await scene.store.item_views.attempts(item_id(job_id, 0))
    assert attempt.error_code == "GW_4XX"
    assert "\0" not in (attempt.message or "")


async def test_an_item_that_goes_back_does_not_stop_those_of_other_jobs(scene: Scene) -> None:
    """Nothing is counted in its job, so that only the other one changes."""
    first, second = await scene.submit(1), await scene.submit(1)
    back, done = sorted(await scene.claim(2), key=lambda item: item.id)
    now = scene.site.clock.ms
    settled = await scene.store.items.settle([decided(back, HandedBack("late"), now), decided(done, OK, now)])
    assert settled.lost == []
    assert (await scene.item(first)).state is ItemState.QUEUED
    assert (await scene.item(second)).state is ItemState.SUCCEEDED
