"""Tasks that are stopped have ended, even those that lose a cancellation."""

import asyncio

import pytest

from backstay import clock
from backstay.clock import Tasks


async def test_a_task_that_loses_its_first_cancellation_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock, "CANCEL_AGAIN_SECONDS", 0.01)
    lost = 0

    async def loses_one() -> None:
        nonlocal lost
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost += 1
        await asyncio.Event().wait()

    tasks = Tasks()
    task = tasks.spawn(loses_one())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await tasks.stop()
    assert task.cancelled()
    assert lost == 1
