"""What handlers say is kept, item by item, without the work's ever waiting for it."""

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import Any

import pytest

from backstay.core.errors import FilesUnreachable
from backstay.core.events import Event, ItemLogged, ItemsSettled, LeasesLost, Trouble
from backstay.core.failures import ErrorCode
from backstay.core.ids import item_id
from backstay.core.models import Attempt, Settlement
from backstay.core.states import ItemState
from backstay.observe import logs
from backstay.observe.bus import Bus
from backstay.observe.logs import LEFT_OUT, ItemLogs, place_of
from tests.databases import START_MS, Leaping, Ticker

ITEM = item_id(12, 7)


class Memory:
    """Keeps pieces; fails or waits when it is told to."""

    def __init__(self) -> None:
        self.pieces: dict[str, str] = {}
        self.fails = False
        self.changed = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int:
        await self.open.wait()
        if self.fails:
            raise FilesUnreachable()
        self.pieces[name] = b"".join([chunk async for chunk in chunks]).decode()
        self.changed.set()
        return len(self.pieces[name])

    async def until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not fact():
                self.changed.clear()
                await self.changed.wait()

    def log(self, item: int = ITEM) -> str:
        return "".join(text for name, text in sorted(self.pieces.items()) if name.startswith(place_of(item) + "/"))


def settled(item: int = ITEM, state: ItemState = ItemState.SUCCEEDED, **given: Any) -> ItemsSettled:
    attempt = Attempt(item, 1, 1, state, START_MS, START_MS + 25, given.get("code"), given.get("message"), *[None] * 5)
    settlement = Settlement(
        item, 1, was=ItemState.SUBMITTING, state=state, attempt_count=1, round=0, rescues=0, repeats=0,
        error_code=given.get("code"), attempt=attempt,
    )  # fmt: skip
    return ItemsSettled("worker", [settlement], {})


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def bus() -> Bus:
    return Bus()


async def test_a_run_that_has_ended_is_a_piece_with_its_end(memory: Memory, bus: Bus) -> None:
    async with ItemLogs(memory, Ticker(), bus):
        bus.emit(ItemLogged(ITEM, "looked at it"))
        bus.emit(ItemLogged(ITEM, "sent it"))
        bus.emit(settled(state=ItemState.FAILED, code=ErrorCode.GW_5XX, message="the gateway answered 502"))
        await memory.until(lambda: bool(memory.pieces))
    moment = "2027-01-15T08:00:00.000Z"
    assert memory.log() == (
        f"{moment} looked at it\n{moment} sent it\n{moment} [failed, GW_5XX after 25 ms]: the gateway answered 502\n"
    )
    assert [name.rpartition("/")[0] for name in memory.pieces] == ["logs/12/7"]


async def test_items_that_say_nothing_leave_nothing(memory: Memory, bus: Bus) -> None:
    async with ItemLogs(memory, Ticker(), bus):
        bus.emit(settled())
    assert memory.pieces == {}


async def test_the_runs_of_an_item_follow_each_other(memory: Memory, bus: Bus) -> None:
    async with ItemLogs(memory, Ticker(), bus):
        for run in range(1, 13):
            bus.emit(ItemLogged(ITEM, f"run {run}"))
            bus.emit(settled())
            await memory.until(lambda run=run: len(memory.pieces) == run)  # type: ignore[misc]
    said = [line.split(" ", 1)[1] for line in memory.log().splitlines() if "run" in line]
    assert said == [f"run {run}" for run in range(1, 13)], "in one and the same millisecond, too"


async def test_a_long_run_can_be_followed(memory: Memory, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LINGER_SECONDS", 0.01)
    async with ItemLogs(memory, Leaping(), bus):
        bus.emit(ItemLogged(ITEM, "begun"))
        await memory.until(lambda: "begun" in memory.log())
        bus.emit(ItemLogged(ITEM, "going on"))
        await memory.until(lambda: "going on" in memory.log())


async def test_what_is_left_at_the_end_is_kept(memory: Memory, bus: Bus) -> None:
    async with ItemLogs(memory, Ticker(), bus):
        for position in range(100):
            bus.emit(ItemLogged(item_id(12, position), "cut short"))
    assert len(memory.pieces) == 100


async def test_a_lost_lease_is_said(memory: Memory, bus: Bus) -> None:
    async with ItemLogs(memory, Ticker(), bus):
        bus.emit(ItemLogged(ITEM, "begun"))
        bus.emit(LeasesLost("worker", (ITEM,)))
    assert "lease was lost" in memory.log()


async def test_a_talkative_item_is_cut_short_and_says_so(
    memory: Memory, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ITEM_BYTES_MAX", 1_000)
    async with ItemLogs(memory, Ticker(), bus):
        for _ in range(1_000):
            bus.emit(ItemLogged(ITEM, "x" * 100))
        bus.emit(ItemLogged(item_id(12, 8), "another is not"))
    assert memory.log().endswith(LEFT_OUT)
    assert memory.log().count(LEFT_OUT) == 1
    assert len(memory.log()) < 1_500
    assert "another is not" in memory.log(item_id(12, 8))


async def test_a_place_that_does_not_answer_costs_bounded_memory_and_is_told(
    memory: Memory, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MEMORY_BYTES_MAX", 10_000)
    told: list[Event] = []
    bus.subscribe(told.append)
    memory.fails = True
    async with ItemLogs(memory, Ticker(), bus) as item_logs:
        for position in range(1_000):
            bus.emit(ItemLogged(item_id(12, position), "x" * 100))
            bus.emit(settled(item_id(12, position)))
            await asyncio.sleep(0)
        assert item_logs._size < 12_000
        assert any(isinstance(event, Trouble) for event in told)
        memory.fails = False
    assert len(memory.pieces) > 50, "what was kept in memory was put when the place was there again"


async def test_the_work_does_not_wait_for_a_slow_place(memory: Memory, bus: Bus) -> None:
    memory.open.clear()
    async with ItemLogs(memory, Ticker(), bus):
        bus.emit(ItemLogged(ITEM, "first"))
        bus.emit(settled())
        await asyncio.sleep(0)
        bus.emit(ItemLogged(ITEM, "second"))
        bus.emit(settled())
        memory.open.set()
    assert [line.split(" ", 1)[1] for line in memory.log().splitlines()][::2] == ["first", "second"]
