"""A worker's room is shared by its handlers, and none of it is kept for a handler that has nothing to do."""

from backstay.store.items import Want
from tests.store.store_rig import Scene

LEASE_MS = 60_000


async def claimed(scene: Scene, wants: list[Want], room: int) -> dict[str, int]:
    taken = await scene.store.items.claim(wants, "w1", LEASE_MS, room=room)
    handlers = [item.handler for item in taken.items]
    return {want.handler: handlers.count(want.handler) for want in wants}


async def test_a_single_slot_goes_to_whoever_has_an_item(scene: Scene) -> None:
    await scene.submit(3, handler="busy")
    wants = [Want(name, 1, 1) for name in ("idle", "idler", "busy")]
    assert await claimed(scene, wants, room=1) == {"idle": 0, "idler": 0, "busy": 1}


async def test_busy_handlers_share_the_room_evenly(scene: Scene) -> None:
    for handler in ("one", "two"):
        await scene.submit(20, handler=handler)
    wants = [Want(name, 10, 1) for name in ("idle", "one", "two")]
    assert await claimed(scene, wants, room=10) == {"idle": 0, "one": 5, "two": 5}


async def test_a_handler_takes_no_more_than_it_wants_and_all_together_no_more_than_the_room(scene: Scene) -> None:
    for handler in ("few", "many"):
        await scene.submit(20, handler=handler)
    assert await claimed(scene, [Want("few", 2, 1), Want("many", 10, 1)], room=10) == {"few": 2, "many": 8}
    assert await claimed(scene, [Want("few", 2, 1), Want("many", 10, 1)], room=1) == {"few": 1, "many": 0}
