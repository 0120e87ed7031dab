"""What a remote worker says while a poller is at its item."""

from backstay.core.callbacks import Callback, Kind
from backstay.core.outcomes import Running
from tests.store.scene import LEASE_MS, OK, Scene

SAID = Callback(Kind.SUCCEEDED, '{"status":"succeeded","result":1}')


async def test_a_poller_that_looked_too_early_does_not_put_the_next_look_off(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.site.advance(5)
    (early,) = (await scene.store.items.poll("echo", "account-1", 1, "w1", LEASE_MS)).items
    await scene.store.inbox.receive(item.id, item.fence, SAID)
    settled = await scene.settle(early, Running(after_ms=30_000))
    assert [lost.id for lost in settled.lost] == [item.id]
    (again,) = (await scene.store.items.poll("echo", "account-1", 1, "w2", LEASE_MS)).items
    await scene.settle(again, OK)
    assert await scene.states(item.job_id) == ["succeeded"]


async def test_progress_takes_nothing_away_from_a_poller(scene: Scene) -> None:
    (item,) = await scene.processing()
    await scene.site.advance(5)
    (taken,) = (await scene.store.items.poll("echo", "account-1", 1, "w1", LEASE_MS)).items
    await scene.store.inbox.receive(item.id, item.fence, Callback(Kind.PROGRESS, "{}", 40))
    assert not (await scene.settle(taken, OK)).lost
