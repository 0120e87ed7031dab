"""Whoever archives is killed: before the transaction nothing has changed, after it everything has."""

import asyncio
import subprocess
import sys

import pytest

from backstay.files.artifacts import artifacts_at
from tests.house.sources import ROOT
from tests.letters.desk import Desk
from tests.sites import Site
from tests.store.scene import Scene

SECONDS_MAX = 60


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_killed_archivist_loses_nothing(leaping_site: Site, place: str, moment: str) -> None:
    scene = Scene(leaping_site)
    await scene.store.open()
    try:
        desk = Desk(scene, artifacts_at(place))
        leaping_site.clock.ms -= 86_400_000 * 30  # long ago: the one who dies has a clock of his own
        await leaping_site.advance(0)
        await desk.fail(5)
        before = await desk.bodies()
        command = [sys.executable, "-m", "tests.letters.dying", leaping_site.url, place, moment]
        died = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, timeout=SECONDS_MAX, capture_output=True)
        assert died.returncode == -9, died.stderr
        assert len(await desk.blobs()) == 1
        archived = 5 if moment == "after" else 0
        assert [archive.items for archive in await desk.archives()] == [archived] * (moment == "after")
        assert (await desk.bodies() == before) == (moment == "before")
        assert await desk.archive() == 5 - archived
        [archive] = await desk.archives()
        assert await desk.restore(archive.id) == 5
        assert await desk.bodies() == before
    finally:
        await scene.store.close()
