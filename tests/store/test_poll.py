"""poll and rescue: tasks that are due, and items whose holder is gone."""

from backstay.core.models import Failed, NeverArrived, Running
from backstay.core.states import ItemState, StopReason
from tests.store.store_rig import BROKEN, LEASE_MS, OK, RECONCILE_MS, WRONG, Scene


async def polled(scene: Scene, account: str | None = "account-1", items: int = 10, worker: str = "w1") -> list[int]:
    return [item.id for item in (await scene.store.items.poll("echo", account, items, worker, LEASE_MS)).items]


async def rescued(scene: Scene, askable: bool) -> list[int]:
    return [item.id for item in (await scene.store.items.rescue("echo", askable, 10, "w2", LEASE_MS)).items]


async def test_a_task_is_polled_when_it_is_due_and_by_one_worker(scene: Scene) -> None:
    (item,) = await scene.processing()
    assert await polled(scene) == []
    await scene.site.advance(5)
    assert await polled(scene, worker="w1") == [item.id]
    assert await polled(scene, worker="w2") == []


async def test_tasks_of_another_account_are_left_alone(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.site.advance(5)
    assert await polled(scene, account=None) == []
    assert await polled(scene, account="account-2") == []
    assert await polled(scene, account="account-1") == [item.id]


async def test_a_poll_takes_the_longest_waiting_first(scene: Scene) -> None:
    (old,) = await scene.processing()
    await scene.site.advance(1)
    await scene.processing()
    await scene.site.advance(10)
    assert await polled(scene, items=1) == [old.id]


async def test_a_poller_that_died_is_replaced_when_its_lease_ends(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.site.advance(5)
    await polled(scene, worker="w1")
    await scene.site.advance(LEASE_MS / 1000 - 0.001)
    assert await polled(scene, worker="w2") == []
    await scene.site.advance(0.001)
    assert await polled(scene, worker="w2") == [item.id]


async def test_a_poll_that_is_extended_is_nobody_elses(scene: Scene) -> None:
    await scene.processing(2)
    await scene.site.advance(5)
    (kept, given_up) = (await scene.store.items.poll("echo", "account-1", 2, "w1", LEASE_MS)).items
    await scene.site.advance(LEASE_MS / 1000 - 1)
    await scene.store.items.extend_polls([(kept.id, kept.fence)], LEASE_MS)
    await scene.site.advance(1)
    assert await polled(scene, worker="w2") == [given_up.id]
    await scene.site.advance(LEASE_MS / 1000 - 1)
    assert await polled(scene, worker="w2") == [kept.id]


async def test_a_poller_that_lost_its_task_extends_nothing(scene: Scene) -> None:
    await scene.processing()
    await scene.site.advance(5)
    (old,) = (await scene.store.items.poll("echo", "account-1", 1, "w1", LEASE_MS)).items
    await scene.site.advance(LEASE_MS / 1000)
    (new,) = (await scene.store.items.poll("echo", "account-1", 1, "w2", LEASE_MS)).items
    before = await scene.everything()
    await scene.site.advance(1)
    await scene.store.items.extend_polls([(old.id, old.fence)], LEASE_MS)
    assert await scene.everything() == before
    await scene.settle(new, Running())
    before = await scene.everything()
    await scene.store.items.extend_polls([(new.id, new.fence)], LEASE_MS)
    assert await scene.everything() == before, "it was settled, and is polled in its own time"


async def test_a_poll_says_that_the_job_was_cancelled(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.store.jobs.cancel(item.job_id, "ann")
    await scene.store.sweeps.end_stopped(item.job_id, StopReason.CANCEL)
    (taken,) = (await scene.store.items.poll("echo", "account-1", 1, "w1", LEASE_MS, grace_ms=60_000)).items
    assert (taken.stop_reason, taken.provider_task_id) == ("cancel", "task-0")


async def test_a_poll_says_that_a_cancelled_job_has_had_its_grace(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.store.jobs.cancel(item.job_id, "ann")
    await scene.store.sweeps.end_stopped(item.job_id, StopReason.CANCEL)
    await scene.site.advance(60)
    (taken,) = (await scene.store.items.poll("echo", "account-1", 1, "w1", LEASE_MS, grace_ms=60_000)).items
    assert taken.stop_reason == "cancel_over"


async def test_cancelling_does_not_take_a_task_away_from_who_polls_it(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.site.advance(5)
    assert await polled(scene, worker="w1") == [item.id]
    await scene.store.jobs.cancel(item.job_id, "ann")
    await scene.store.sweeps.end_stopped(item.job_id, StopReason.CANCEL)
    assert await polled(scene, worker="w2") == []


async def test_a_paused_jobs_tasks_are_polled_on(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.store.jobs.pause(item.job_id, "ann")
    await scene.site.advance(5)
    assert await polled(scene) == [item.id]


async def test_a_failed_task_goes_back_to_the_queue_and_is_asked_for_anew(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.site.advance(5)
    (taken,) = (await scene.store.items.poll("echo", "account-1", 1, "w1", LEASE_MS)).items
    await scene.settle(taken, Failed(BROKEN.failure, task_ended=True))
    back = await scene.item(item.job_id)
    assert (back.state, back.provider_task_id, back.account) == (ItemState.QUEUED, None, None)
    await scene.site.advance(10)
    (again,) = await scene.claim()
    assert again.round == item.round + 1


async def test_an_item_that_cannot_be_asked_about_is_rescued_when_its_lease_ends(scene: Scene) -> None:
    await scene.submit()
    (item,) = await scene.claim()
    await scene.site.advance(LEASE_MS / 1000 - 0.001)
    assert await rescued(scene, askable=False) == []
    await scene.site.advance(0.001)
    assert await rescued(scene, askable=False) == [item.id]


async def test_an_item_that_can_be_asked_about_waits_until_a_lost_request_must_have_landed(scene: Scene) -> None:
    await scene.submit()
    (item,) = await scene.claim()
    await scene.site.advance(RECONCILE_MS / 1000 - 0.001)
    assert await rescued(scene, askable=True) == []
    await scene.site.advance(0.001)
    assert await rescued(scene, askable=True) == [item.id]


async def test_a_rescued_item_is_leased_anew_with_its_body(scene: Scene) -> None:
    await scene.submit()
    (old,) = await scene.claim()
    await scene.site.advance(LEASE_MS / 1000)
    (item,) = (await scene.store.items.rescue("echo", False, 10, "w2", LEASE_MS)).items
    assert (item.fence, item.body, item.started_at) == (old.fence + 1, old.body, old.started_at)
    assert await rescued(scene, askable=False) == []


async def test_an_item_the_provider_never_had_goes_back_at_no_cost(scene: Scene) -> None:
    await scene.submit()
    await scene.claim()
    await scene.site.advance(RECONCILE_MS / 1000)
    (item,) = (await scene.store.items.rescue("echo", True, 1, "w2", LEASE_MS)).items
    await scene.settle(item, NeverArrived(), askable=True)
    (again,) = await scene.claim()
    assert (again.attempt_count, again.rescues, again.round) == (0, 1, 0)


async def test_what_was_rescued_is_told_in_its_timeline(scene: Scene) -> None:
    await scene.submit()
    await scene.claim()
    await scene.site.advance(RECONCILE_MS / 1000)
    (item,) = (await scene.store.items.rescue("echo", True, 1, "w2", LEASE_MS)).items
    await scene.settle(item, NeverArrived(), askable=True)
    assert [event.act for event in await scene.store.events.oldest(f"item:{item.id}")] == ["rescued"]


async def test_items_are_stuck_from_when_they_could_be_rescued_until_they_are(scene: Scene) -> None:
    await scene.submit(3)
    await scene.claim()
    await scene.site.advance(LEASE_MS / 1000)
    assert await scene.store.item_views.stuck() == {}, "a request of the lost holder may yet arrive"
    await scene.site.advance((RECONCILE_MS - LEASE_MS) / 1000)
    assert await scene.store.item_views.stuck() == {"echo": 3}
    await scene.store.items.rescue("echo", False, 10, "w2", LEASE_MS)
    assert await scene.store.item_views.stuck() == {}


async def test_ended_items_are_neither_polled_nor_rescued(scene: Scene) -> None:
    await scene.ended(OK)
    await scene.ended(WRONG)
    await scene.site.advance(100_000)
    assert await polled(scene) == []
    assert await rescued(scene, askable=False) == []
