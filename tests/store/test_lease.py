"""lease and fence: who lost its lease writes nothing, whoever holds the item now."""

from backstay.core.models import Claimed, Skipped, Stopped
from backstay.core.states import BatchStatus
from backstay.store.batches import Adoptable, Adopted, NewBatch
from backstay.store.files import NewFile
from tests.databases import START_MS
from tests.store.store_rig import BROKEN, LEASE_MS, OK, RECONCILE_MS, TASK, WRONG, Scene, decided


async def lost_to_another(scene: Scene) -> tuple[Claimed, Claimed]:
    """An item as its old holder sees it, and as its new one does."""
    await scene.submit()
    (old,) = await scene.claim(worker="w1")
    await scene.site.advance(RECONCILE_MS / 1000)
    (new,) = (await scene.store.items.rescue("echo", True, 10, "w2", LEASE_MS)).items
    return old, new


async def test_a_lost_holder_writes_no_outcome_at_all(scene: Scene) -> None:
    old, new = await lost_to_another(scene)
    before = await scene.everything()
    for outcome in (OK, BROKEN, WRONG, TASK, Skipped("why"), Stopped()):
        settled = await scene.settle(old, outcome)
        assert settled.applied == []
        assert [lost.id for lost in settled.lost] == [new.id]
    assert await scene.everything() == before


async def test_a_lost_holder_reports_no_progress(scene: Scene) -> None:
    old, new = await lost_to_another(scene)
    await scene.store.items.report_progress([(old.id, old.fence, 50)])
    assert (await scene.item(old.job_id)).progress == 0
    await scene.store.items.report_progress([(new.id, new.fence, 50)])
    assert (await scene.item(old.job_id)).progress == 50


async def test_a_lost_holder_extends_nothing_and_is_told_so(scene: Scene) -> None:
    old, new = await lost_to_another(scene)
    await scene.site.advance(1)
    expires_at = (await scene.item(old.job_id)).lease_expires_at
    assert await scene.store.items.extend([(old.id, old.fence)], LEASE_MS, "w1") == {(old.id, old.fence)}
    assert (await scene.item(old.job_id)).lease_expires_at == expires_at
    assert await scene.store.items.extend([(new.id, new.fence)], LEASE_MS, "w2") == set()


async def test_the_new_holder_is_not_disturbed_by_the_old_ones_answer_in_the_same_group(scene: Scene) -> None:
    old, new = await lost_to_another(scene)
    now = scene.site.clock.ms
    settled = await scene.store.items.settle([decided(old, OK, now), decided(new, WRONG, now)])
    assert [s.fence for s in settled.applied] == [new.fence]
    assert [s.fence for s in settled.lost] == [old.fence]
    assert await scene.states(old.job_id) == ["failed"]
    assert [attempt.outcome for attempt in await scene.store.item_views.attempts(old.id)] == ["failed"]


async def test_an_expired_lease_that_nobody_took_still_lets_its_holder_finish(scene: Scene) -> None:
    job_id = await scene.submit()
    (item,) = await scene.claim()
    await scene.site.advance(1_000)
    assert len((await scene.settle(item, OK)).applied) == 1
    assert await scene.states(job_id) == ["succeeded"]


async def test_a_second_answer_of_the_same_holder_is_lost(scene: Scene) -> None:
    await scene.submit()
    (item,) = await scene.claim()
    await scene.settle(item, OK)
    before = await scene.everything()
    assert (await scene.settle(item, WRONG)).applied == []
    assert await scene.everything() == before


async def test_extending_moves_the_end_of_the_lease_from_now(scene: Scene) -> None:
    job_id = await scene.submit()
    (item,) = await scene.claim()
    await scene.site.advance(30)
    assert await scene.store.items.extend([(item.id, item.fence)], LEASE_MS, "w1") == set()
    assert (await scene.item(job_id)).lease_expires_at == START_MS + 30_000 + LEASE_MS


async def test_an_extended_item_is_not_rescued_at_its_first_lease_end(scene: Scene) -> None:
    await scene.submit()
    (item,) = await scene.claim()
    await scene.site.advance(60)
    await scene.store.items.extend([(item.id, item.fence)], LEASE_MS, "w1")
    await scene.site.advance(60)
    assert (await scene.store.items.rescue("echo", False, 10, "w2", LEASE_MS)).items == []


async def test_a_settled_item_cannot_be_extended(scene: Scene) -> None:
    await scene.submit()
    (item,) = await scene.claim()
    await scene.settle(item, OK)
    assert await scene.store.items.extend([(item.id, item.fence)], LEASE_MS, "w1") == {(item.id, item.fence)}


async def test_a_polled_task_is_fenced_as_well(scene: Scene) -> None:
    await scene.processing()
    await scene.site.advance(10)
    (old,) = (await scene.store.items.poll("echo", "account-1", 10, "w1", LEASE_MS)).items
    await scene.site.advance(LEASE_MS / 1000)
    (new,) = (await scene.store.items.poll("echo", "account-1", 10, "w2", LEASE_MS)).items
    assert (await scene.settle(old, OK)).applied == []
    assert len((await scene.settle(new, WRONG)).applied) == 1
    assert await scene.states(old.job_id) == ["failed"]


async def a_batch(scene: Scene, name: str = "batch_1", owner: str = "ann") -> None:
    new = NewBatch(name, owner, "/v1/x", "file_1", "24h", 86_400_000, None, None)
    assert await scene.store.batches.create(new, None) == (name, True)


async def test_a_batch_goes_to_another_process_only_when_its_lease_has_ended(scene: Scene) -> None:
    await a_batch(scene)
    batches = scene.store.batches
    assert await batches.claim(LEASE_MS) == ("batch_1", "ann")
    await scene.site.advance(LEASE_MS / 1000 - 1)
    await batches.extend("batch_1", LEASE_MS)
    await scene.site.advance(LEASE_MS / 1000 - 1)
    assert await batches.claim(LEASE_MS) is None
    await scene.site.advance(2)
    assert await batches.claim(LEASE_MS) == ("batch_1", "ann")


async def test_of_two_processes_that_end_a_batch_one_has_written_its_files(scene: Scene) -> None:
    await a_batch(scene)
    batches, files = scene.store.batches, scene.store.files
    await batches.begin("batch_1", 1, None)
    await batches.finalize("batch_1")
    batch = await batches.get("batch_1", "ann")
    first, second = (NewFile(name, "ann", "output.jsonl", "batch_output", 3) for name in ("file_a", "file_b"))
    assert await batches.end(batch, BatchStatus.COMPLETED, first, None)
    assert not await batches.end(batch, BatchStatus.COMPLETED, second, None)
    assert (await batches.get("batch_1", "ann")).output_file_id == "file_a"
    assert [await files.find(name, "ann") is not None for name in ("file_a", "file_b")] == [True, False]


async def test_of_two_processes_that_adopt_a_run_one_has_made_its_batch(scene: Scene) -> None:
    job = await scene.submit()
    run = Adoptable(job, START_MS, START_MS + 3_600_000, None, START_MS, "{}", 1)
    for n in (1, 2):
        await scene.store.batches.adopt("ann", [Adopted(f"batch_{n}", run, f"file_{n}", "in.jsonl", "/v1/x", None)])
    assert [batch.id for batch in await scene.store.batches.page("ann", None, 10)] == ["batch_1"]
    assert [await scene.store.files.find(f"file_{n}", "ann") is not None for n in (1, 2)] == [True, False]


async def test_the_models_that_an_owner_asked_for_are_known_to_them_alone(scene: Scene) -> None:
    for name, owner, model in (("b1", "ann", "gpt-b"), ("b2", "ann", "gpt-a"), ("b3", "ann", None), ("b4", "bob", "o")):
        await a_batch(scene, name, owner)
        await scene.store.batches.begin(name, 1, model)
    assert await scene.store.batches.models("ann") == ["gpt-a", "gpt-b"]
