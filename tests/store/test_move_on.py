"""move_on: waiting items go to the fallback of their handler, as many as it has room for, and lose nothing by that."""

from typing import Any

import pytest

from backstay.core.ids import item_id
from backstay.core.states import ItemState
from backstay.store.sweeps import Relief
from tests.store.store_rig import OK, WRONG, Scene, decided

TO_BACKUP = Relief("echo", "backup", "echo: the provider is on hold, and backup tries next")


async def handlers(scene: Scene, job: int, items: int) -> list[str]:
    return [(await scene.item(job, position)).handler for position in range(items)]


async def test_the_next_items_go_in_their_order_and_no_more_than_there_is_room_for(scene: Scene) -> None:
    job = await scene.submit(5)
    assert await scene.store.sweeps.move_on(TO_BACKUP, 2) == 2
    assert await scene.store.sweeps.move_on(TO_BACKUP, 2) == 0, "two are ready there already"
    assert await scene.store.sweeps.move_on(TO_BACKUP, 3) == 1
    assert await handlers(scene, job, 5) == ["backup"] * 3 + ["echo"] * 2
    [told] = await scene.store.events.oldest(f"item:{item_id(job, 0)}")
    assert (told.act, told.detail) == ("fallback", TO_BACKUP.detail)


async def test_a_moved_item_is_new_at_its_provider_and_keeps_its_cost_and_its_deadline(scene: Scene) -> None:
    job = await scene.submit(deadline_ms=60_000)
    await scene.site.rows(f"UPDATE items SET cost_micros = 7, tokens = 5, attempt_count = 2 WHERE job_id = {job}")
    before = await scene.item(job)
    await scene.site.advance(10)
    assert await scene.store.sweeps.move_on(TO_BACKUP, 1) == 1
    [(cost, tokens)] = await scene.site.rows(f"SELECT cost_micros, tokens FROM items WHERE job_id = {job}")
    [claimed] = await scene.claim(handler="backup")
    assert (cost, tokens, claimed.attempt_count) == (7, 5, 0)
    assert (claimed.round, claimed.queued_at, claimed.deadline_at) == (1, scene.site.clock.ms, before.deadline_at)


async def test_only_items_of_the_one_job_that_a_run_works_on_go(scene: Scene) -> None:
    other, mine = await scene.submit(2), await scene.submit(2)
    assert await scene.store.sweeps.move_on(TO_BACKUP._replace(only_job=mine), 9) == 2
    assert (await handlers(scene, other, 2), await handlers(scene, mine, 2)) == (["echo"] * 2, ["backup"] * 2)


@pytest.mark.parametrize(("seconds", "moved"), [(19, 0), (20, 1)])
async def test_only_items_go_whose_share_of_the_time_is_over(scene: Scene, seconds: int, moved: int) -> None:
    await scene.submit()
    late = await scene.submit(deadline_ms=60_000)
    await scene.site.advance(seconds)
    assert await scene.store.sweeps.move_on(TO_BACKUP._replace(time_shares=3), 9) == moved
    assert await handlers(scene, late, 1) == (["backup"] if moved else ["echo"])


async def test_what_waits_for_a_retry_is_paused_or_is_to_be_looked_up_first_stays(scene: Scene) -> None:
    waits, paused, asked = await scene.submit(), await scene.submit(), await scene.submit()
    await scene.site.rows(f"UPDATE items SET due_at = {scene.site.clock.ms + 1000} WHERE job_id = {waits}")
    await scene.store.jobs.pause(paused, "ann")
    await scene.site.rows(f"UPDATE items SET ask_first = 1 WHERE job_id = {asked}")
    assert await scene.store.sweeps.move_on(TO_BACKUP, 9) == 0


async def test_a_worker_of_one_job_finds_what_moved_although_that_queue_is_elsewhere(scene: Scene) -> None:
    await scene.store.items.advance_turns({"backup": [(9 << 52) + 500]})
    job = await scene.submit(2)
    [first, second] = await scene.claim(2)
    await scene.settle(second, OK)
    settled = decided(first, WRONG, scene.site.clock.ms)._replace(
        state=ItemState.QUEUED, handler_next="backup", same_request=1, error_code=None
    )
    await scene.store.items.settle([settled])
    [(low, high, key)] = await scene.site.rows(
        "SELECT first_key, last_key, order_key FROM jobs JOIN items ON items.job_id = jobs.id"
        f" WHERE items.id = {item_id(job, 0)}"
    )
    assert low <= key <= high


@pytest.mark.parametrize(("same", "kept"), [(1, (7, 5)), (0, (None, 0))])
async def test_a_fallback_for_the_same_request_keeps_its_cost_and_another_is_weighed_anew(
    scene: Scene, same: int, kept: tuple[Any, ...]
) -> None:
    job = await scene.submit()
    await scene.site.rows(f"UPDATE items SET cost_micros = 7, tokens = 5 WHERE job_id = {job}")
    [item] = await scene.claim()
    await scene.site.advance(10)
    settled = decided(item, WRONG, scene.site.clock.ms)
    await scene.store.items.settle(
        [settled._replace(state=ItemState.QUEUED, handler_next="backup", same_request=same, error_code=None)]
    )
    [found] = await scene.site.rows(f"SELECT cost_micros, tokens, queued_at FROM items WHERE job_id = {job}")
    assert found[:2] == kept
    assert found[2] == (scene.site.clock.ms if same else item.queued_at), "its time starts anew, or goes on"
