"""GET /api/items/{id}/log: what a handler said, read back over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from backstay.app import Backstay
from backstay.core.errors import Transient
from backstay.handlers.handler import Context
from backstay.server.service import ServiceOptions
from tests.server.rig import Rig, rigged


def talking(url: str) -> Backstay:
    made = Backstay(url)

    @made.handler(retry="none")
    async def talk(item: dict[str, Any], context: Context) -> None:
        context.log(f"said {item['say']}")
        if item.get("fails"):
            raise Transient("it did not work")

    @made.handler()
    async def keep_quiet(item: Any) -> None: ...

    return made


@asynccontextmanager
async def talked(url: str, place: Any, items: list[dict[str, Any]], **settings: Any) -> AsyncIterator[tuple[Rig, str]]:
    """A service that works, with a job that has ended; once it is stopped and started, all is written."""
    async with rigged(url, place, talking(url), ServiceOptions(), **settings) as rig:
        job = await rig.submit("talk", items)
        await rig.service.client("ada").job(int(job)).wait(timeout_seconds=60)
    async with rigged(url, place, talking(url), **settings) as rig:
        yield rig, job


async def test_what_a_handler_said_is_read_by_the_items_owner(database_url: str, tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [{"say": "one"}, {"say": "two", "fails": True}]
    async with talked(database_url, tmp_path / "data", items) as (rig, job):
        log = await rig.ada.get(f"/api/items/{job}-0/log")
        assert (log.status, log.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert [line.split(" ", 1)[1].split(" after")[0] for line in log.body.decode().splitlines()] == [
            "said one",
            "[succeeded",
        ]
        second = (await rig.ada.get(f"/api/items/{job}-1/log")).body.decode()
        assert "said two" in second
        assert "failed, GW_5XX" in second
        assert "it did not work" in second
        assert (await rig.bob.get(f"/api/items/{job}-0/log")).status == 404
        assert (await rig.ada.get(f"/api/items/{job}-7/log")).status == 404
        assert (await rig.holder(None).get(f"/api/items/{job}-0/log")).status == 401


async def test_an_item_that_said_nothing_has_an_empty_log(sqlite_rig: Rig) -> None:
    job = await sqlite_rig.submit("echo")
    log = await sqlite_rig.ada.get(f"/api/items/{job}-0/log")
    assert (log.status, log.body) == (200, b"")


async def test_secrets_that_a_handler_says_are_not_kept(sqlite_file_url: str, tmp_path: Path) -> None:
    say = "Authorization: Bearer very-secret-token and api_key=very-secret-key"
    async with talked(sqlite_file_url, tmp_path / "data", [{"say": say}]) as (rig, job):
        log = (await rig.ada.get(f"/api/items/{job}-0/log")).body.decode()
        assert "said" in log
        assert "very-secret" not in log


async def test_logs_go_with_their_job(sqlite_file_url: str, tmp_path: Path) -> None:
    async with talked(sqlite_file_url, tmp_path / "data", [{"say": "one"}]) as (rig, job):
        assert [name async for name in rig.service.artifacts.names(f"logs/{job}")] != []
        assert (await rig.ada.delete(f"/api/jobs/{job}")).status == 204
        assert [name async for name in rig.service.artifacts.names(f"logs/{job}")] == []
