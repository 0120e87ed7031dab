"""A database in which every page has something to show."""

from typing import NamedTuple

from backstay.core.models import NewSchedule
from tests.server.rig import Rig

CODES = ("GW_4XX", "GW_5XX", "UNKNOWN")


class Scene(NamedTuple):
    failing: str  # a job that has ended, with successes and failures
    waiting: str  # one that nobody has begun
    failed: str  # an item
    succeeded: str


async def staged(rig: Rig) -> Scene:
    """Of ada's."""
    items = [{"n": n, **({"code": CODES[n % 3]} if n < 6 else {})} for n in range(12)]
    failing = await rig.submit("fail_as_told", items, label="Minutes of October")
    await rig.work()
    for name in ("nightly", "weekly"):
        await rig.service.store.schedules.add(NewSchedule(name, "echo", "30 2 * * *", "Europe/Berlin"), "ada")
    await rig.service.store.schedules.pause("weekly", "ada")
    waiting = await rig.submit("echo", [{"n": n} for n in range(60)], label="Tickets")
    return Scene(failing, waiting, f"{failing}-0", f"{failing}-11")


def paths(scene: Scene) -> list[str]:
    """Every page."""
    return [
        "/",
        "/?span=24h",
        "/jobs",
        "/jobs?state=running&q=x",
        f"/jobs/{scene.failing}",
        f"/jobs/{scene.failing}/retry",
        f"/jobs/{scene.waiting}",
        f"/jobs/{scene.waiting}/cancel",
        f"/items/{scene.failed}",
        f"/items/{scene.succeeded}",
        f"/items/{scene.waiting}-0",
        "/dead-letters",
        "/dead-letters/replay?code=GW_4XX",
        "/dead-letters/archive?code=GW_4XX",
        "/providers",
        "/schedules",
        "/safety",
        "/workers",
        "/keys",
        "/login",
    ]
