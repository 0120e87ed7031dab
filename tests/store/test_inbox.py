"""What a remote worker says while a poller is at its item."""

import pytest

from backstay.core.callbacks import Callback, Kind
from backstay.core.models import Running
from backstay.store import inbox
from tests.store.store_rig import LEASE_MS, OK, Scene

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


async def test_no_more_text_is_read_at_once_than_fits_but_always_one_message(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "BODY_MAX", 10)
    for n, body in enumerate(("a" * 20, "b" * 6, "c" * 4, "d")):
        await scene.site.rows(
            "INSERT INTO inbox (owner, item_id, fence, kind, received_at, body, digest)"
            f" VALUES ('ann', {n}, 1, 'succeeded', 1, '{body}', '{n}')"
        )
    said = await scene.store.inbox.finals(range(4))
    assert list((await scene.store.inbox.bodies(said)).values()) == ["a" * 20]
    assert sorted((await scene.store.inbox.bodies(said[1:])).values()) == ["b" * 6, "c" * 4]
    assert await scene.store.inbox.bodies([]) == {}
