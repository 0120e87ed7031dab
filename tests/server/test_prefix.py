"""The service mounted below a path of another application works as one of its own, and every link stays below it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest
from fastapi import FastAPI

from backstay.server.app import create_app
from backstay.server.service import ServiceOptions
from backstay.store.keys import Role
from tests.server.pages.reader import Held, Reader
from tests.server.pages.scene import paths, staged
from tests.server.rig import OWNERS, Rig, practice_app, served

# The second is also how paths of the service itself begin, the third is not plain.
PREFIXES = ("/backstay", "/api", "/the team/jobs")
LINKS = ("href", "src", "action", "data-live", "data-later")


@asynccontextmanager
async def mounted(url: str, data: Path, prefix: str) -> AsyncIterator[Rig]:
    made = practice_app(url)
    made.settings = made.settings.model_copy(update={"data": str(data), "owner": OWNERS[0]})
    service = create_app(made, ServiceOptions(works=False))

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with service.router.lifespan_context(service):
            yield

    host = FastAPI(lifespan=life)
    host.mount(prefix, service)
    async with served(host) as address, aiohttp.ClientSession() as session:
        rig = Rig(made, service, address + prefix, session)
        for owner in OWNERS:
            rig.keys[owner, Role.ADMIN] = (await rig.service.store.keys.create(owner, Role.ADMIN, owner)).text
        yield rig


@pytest.mark.parametrize("prefix", [PREFIXES[0], *(pytest.param(one, marks=pytest.mark.slow) for one in PREFIXES[1:])])
async def test_every_link_of_every_page_stays_below_the_prefix(
    sqlite_file_url: str, tmp_path: Path, prefix: str
) -> None:
    outside = prefix.replace(" ", "%20")
    async with mounted(sqlite_file_url, tmp_path / "data", prefix) as rig:
        scene, found = await staged(rig), Reader(rig)
        reply = await found.post("/login", key=rig.keys["ada", Role.ADMIN], next="/jobs")
        assert (reply.status, reply.headers["location"]) == (303, f"{outside}/jobs")
        assert {morsel["path"] for morsel in SimpleCookie(reply.headers["set-cookie"]).values()} == {outside}
        leading: dict[str, str] = {}  # one of each kind
        for path in (*paths(scene), "/nowhere"):
            page = Held((await found.get(path)).body.decode())
            led = [one[name] for _, one in page.elements for name in LINKS if name in one]
            assert [link for link in led if not link.startswith((f"{outside}/", "#"))] == [], path
            links = [one["href"] for _, one in page.elements if one.get("href", "#").startswith("/")]
            leading.update({re.sub(r"\d+|\?.*", "", link): link for link in links})
        for link in leading.values():
            reply = await found.get(link.removeprefix(outside))
            assert reply.status in (200, 303), (link, reply)


async def test_the_api_names_the_prefix(sqlite_file_url: str, tmp_path: Path) -> None:
    async with mounted(sqlite_file_url, tmp_path / "data", "/backstay") as rig:
        made = await rig.ada.post("/api/jobs", json={"handler": "echo", "items": [1]})
        assert (made.status, made.headers["location"]) == (201, f"/backstay/api/jobs/{made.json['id']}")
        await rig.ada.post("/api/jobs", json={"handler": "echo", "items": [2]})
        listed = await rig.ada.get("/api/jobs", params={"limit": "1"})
        assert listed.headers["link"].startswith("</backstay/api/jobs?")
        schema = (await rig.ada.get("/api/openapi.json")).json
        assert (schema["servers"], "/api/jobs" in schema["paths"]) == ([{"url": "/backstay"}], True)
        assert (await rig.ada.get("/v1/nothing")).json["error"]["type"]  # as OpenAI's clients read it
        stranger = await rig.holder(None).get("/jobs/1", headers={"accept": "text/html"})
        assert stranger.headers["location"] == "/backstay/login?next=/jobs/1"
