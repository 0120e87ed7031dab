"""Whoever watches a job or an item sees it change, comes back where he was, and sees nothing that is not his."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import aiohttp
import pytest

from backstay.core.errors import DatabaseUnreachable
from backstay.server.api import events
from backstay.store.job_views import Asked, JobView, JobViews
from backstay.store.keys import Role
from tests.server.rig import Rig, Visitor
from tests.stories.stage import until

WAIT_SECONDS = 20


class Event(NamedTuple):
    id: str | None
    kind: str
    data: Any


class Stream:
    """A stream of events as a client reads it."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> Event | None:
        """The next event; None when the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(WAIT_SECONDS):
            while line := (await self.answer.content.readline()).decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "data" in fields:
                    return Event(fields.get("id"), fields["event"], json.loads(fields["data"]))
                else:
                    fields = {}
        return None

    async def all(self) -> list[Event]:
        return [event async for event in self]

    async def __aiter__(self) -> AsyncIterator[Event]:
        while event := await self.next():
            yield event


@asynccontextmanager
async def watching(visitor: Visitor, path: str, last_id: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if last_id is None else {"last-event-id": last_id}
    async with visitor.opened("GET", path, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)


async def test_a_job_is_seen_until_its_end_and_the_snapshots_are_what_a_get_says(rig: Rig) -> None:
    job = await rig.submit(items=[1, 2, 3])
    async with watching(rig.ada, f"/api/jobs/{job}/events") as stream:
        first = await stream.next()
        assert first is not None
        assert (first.kind, first.data) == ("job", (await rig.ada.get(f"/api/jobs/{job}")).json)
        await rig.work()
        rest = await stream.all()
    assert rest[-1].data == (await rig.ada.get(f"/api/jobs/{job}")).json
    assert rest[-1].data["state"] == "completed"
    assert len({event.id for event in [first, *rest]}) == 1 + len(rest), "no snapshot comes twice"


async def test_an_item_is_seen_until_its_end(rig: Rig) -> None:
    job = await rig.submit("refuse")
    async with watching(rig.ada, f"/api/items/{job}-0/events") as stream:
        first = await stream.next()
        assert first is not None
        assert (first.kind, first.data) == ("item", (await rig.ada.get(f"/api/items/{job}-0")).json)
        await rig.work()
        last = (await stream.all())[-1]
    assert (last.data["state"], last.data["error_code"]) == ("failed", "GW_4XX")


async def test_who_comes_back_sees_what_is_different_or_waits(rig: Rig) -> None:
    job = await rig.submit(items=[1, 2])
    path = f"/api/jobs/{job}/events"
    async with watching(rig.ada, path) as stream:
        seen = await stream.next()
    assert seen is not None
    async with watching(rig.ada, path, seen.id) as stream:
        again = asyncio.ensure_future(stream.next())
        assert (await rig.ada.post(f"/api/jobs/{job}/pause")).status == 200
        paused = await again
        assert paused is not None
        assert paused.data["state"] == "paused", "and not the one that was seen"
    await rig.ada.post(f"/api/jobs/{job}/resume")
    await rig.work()
    async with watching(rig.ada, path, paused.id) as stream:
        [ended] = await stream.all()
    assert ended.data["state"] == "completed"
    assert (await rig.ada.get(path, headers={"last-event-id": ended.id})).status == 204


async def test_an_ended_item_that_is_retried_is_news(rig: Rig) -> None:
    job = await rig.submit("refuse")
    await rig.work()
    path = f"/api/items/{job}-0/events"
    async with watching(rig.ada, path) as stream:
        [failed] = await stream.all()
    await rig.ada.post(f"/api/items/{job}-0/retry")
    async with watching(rig.ada, path, failed.id) as stream:
        now = await stream.next()
        assert now is not None
        assert now.data["state"] == "queued"


async def test_what_is_not_there_or_another_owners_is_not_found(rig: Rig) -> None:
    job = await rig.submit()
    for kind, known, unknown in (("jobs", job, "999"), ("items", f"{job}-0", "999-0")):
        theirs = await rig.bob.get(f"/api/{kind}/{known}/events")
        nobodys = await rig.bob.get(f"/api/{kind}/{unknown}/events")
        assert theirs.status == nobodys.status == 404
        assert theirs.body.replace(known.encode(), b"X") == nobodys.body.replace(unknown.encode(), b"X")
    assert (await rig.holder(None).get(f"/api/jobs/{job}/events")).status == 401
    assert len(rig.service.lookout) == 0


@pytest.mark.slow
async def test_a_deleted_job_ends_its_streams(sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = sqlite_rig
    monkeypatch.setattr(events, "LOOK_SECONDS", 3.0)  # it ends and is gone between two looks
    job = await rig.submit()
    async with watching(rig.ada, f"/api/jobs/{job}/events") as stream:
        assert await stream.next()
        assert (await rig.ada.post(f"/api/jobs/{job}/cancel")).status == 200
        assert (await rig.ada.delete(f"/api/jobs/{job}")).status == 204
        assert [event.kind for event in await stream.all()] == ["gone"]


@pytest.mark.slow
async def test_a_revoked_key_sees_no_more(sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEY_SECONDS", 0.05)
    rig = sqlite_rig
    job = await rig.submit()
    made = await rig.service.store.keys.create("ada", Role.READ)
    path = f"/api/jobs/{job}/events"
    async with watching(rig.holder(made.text), path) as stream, watching(rig.ada, path) as other:
        assert await stream.next()
        assert await other.next()
        await rig.service.store.keys.revoke(made.id, "ada")
        assert await stream.next() is None
        await rig.work()
        assert await other.next(), "another key goes on"
    assert (await rig.holder(made.text).get(path)).status == 401


async def test_a_database_that_does_not_answer_ends_no_stream(sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEY_SECONDS", 0.01)
    asked = asyncio.Event()

    async def unreachable(text: str) -> None:
        asked.set()
        raise DatabaseUnreachable()

    job = await sqlite_rig.submit()
    async with watching(sqlite_rig.ada, f"/api/jobs/{job}/events") as stream, asyncio.timeout(WAIT_SECONDS):
        assert await stream.next()
        with monkeypatch.context() as broken:
            broken.setattr(sqlite_rig.service.ring, "find", unreachable)
            await asked.wait()
        await sqlite_rig.work()
        assert await stream.next()


async def nobody_watches(rig: Rig) -> bool:
    return len(rig.service.lookout) == 0 and not rig.service.lookout._looking


class Counting(JobViews):
    """Counts the looks at the database."""

    looks = 0

    async def many(self, asked: Sequence[Asked]) -> dict[Asked, JobView]:
        self.looks += 1
        return await super().many(asked)


async def test_a_hundred_watchers_are_one_reader_and_leave_nothing_behind(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    counting = Counting(rig.service.store._db)
    rig.service.store.job_views = counting
    job = await rig.submit(items=list(range(5)))
    async with AsyncExitStack() as stack:
        visits = (watching(rig.ada, f"/api/jobs/{job}/events") for _ in range(100))
        streams = [await stack.enter_async_context(visit) for visit in visits]
        joined = counting.looks
        await rig.work()
        ends = await asyncio.gather(*(stream.all() for stream in streams))
        assert {seen[-1].data["state"] for seen in ends} == {"completed"}
        assert counting.looks - joined < 50, "not one for each watcher"
    await until(partial(nobody_watches, rig), "everyone has left and the reader has ended")
    assert rig.service.lookout._seen == {}


async def test_watchers_are_bounded_and_one_who_leaves_makes_room(
    sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = sqlite_rig
    monkeypatch.setattr(events, "WATCHERS_OF_OWNER_MAX", 1)
    path = f"/api/jobs/{await rig.submit()}/events"
    async with watching(rig.ada, path) as stream:
        assert await stream.next()
        refused = await rig.ada.get(path)
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    await until(partial(nobody_watches, rig), "the one who watched has left")
    async with watching(rig.ada, path) as stream:
        assert await stream.next()


async def test_a_quiet_stream_beats_and_ends_when_the_service_does(
    sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(events, "KEY_SECONDS", 0.05)
    path = f"/api/jobs/{await sqlite_rig.submit()}/events"
    async with watching(sqlite_rig.ada, path) as stream:
        async with asyncio.timeout(WAIT_SECONDS):
            while not (await stream.answer.content.readline()).startswith(b": "):
                pass
        sqlite_rig.service.lookout.close()
        assert await stream.next() is None
