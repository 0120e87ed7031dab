"""A POST with a key that is sent again has one effect and one answer, on any number of servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from backstay.app import Backstay
from backstay.server.app import create_app
from backstay.server.auth import Writer
from backstay.server.idempotency import EffectId, EffectKey
from backstay.server.problems import Problem
from backstay.server.service import ServiceOptions
from backstay.store.keys import KeptReply, KeyClaim, Role
from tests.databases import Site
from tests.server.rig import Rig, Visitor, served


@dataclass(slots=True)
class Counter:
    """Routes whose effect can be counted."""

    runs: list[Any] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: bool = False

    def router(self) -> APIRouter:
        router = APIRouter()

        @router.post("/count", status_code=201)
        async def count(who: Writer, request: Request, effect: EffectId, key: EffectKey = None) -> JSONResponse:
            self.runs.append(await request.body())
            if self.refuses:
                raise Problem(400, "not now")
            return JSONResponse({"run": len(self.runs), "id": effect, "key": key}, 201, {"location": "/here"})

        @router.post("/wait")
        async def wait(who: Writer) -> dict[str, int]:
            self.runs.append(None)
            self.entered.set()
            await self.leave.wait()
            return {"run": len(self.runs)}

        @router.post("/fall")
        async def fall(who: Writer) -> None:
            self.runs.append(None)
            raise RuntimeError("a mistake of ours")

        @router.post("/secret")
        async def secret(who: Writer) -> JSONResponse:
            self.runs.append(None)
            return JSONResponse({"secret": "whsec_planted"}, headers={"cache-control": "no-store"})

        return router


@asynccontextmanager
async def counting(url: str, data: Path, counter: Counter) -> AsyncIterator[Rig]:
    made = Backstay(url)
    made.settings = made.settings.model_copy(update={"data": str(data)})
    app: FastAPI = create_app(made, ServiceOptions(works=False))
    for prefix in ("/api", "/v1"):
        app.include_router(counter.router(), prefix=prefix)
    async with served(app) as address, aiohttp.ClientSession() as session:
        rig = Rig(made, app, address, session)
        for owner in ("ada", "bob"):
            for role in Role:
                rig.keys[owner, role] = (await rig.service.store.keys.create(owner, role)).text
        yield rig


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
async def rig(database_url: str, tmp_path: Path, counter: Counter) -> AsyncIterator[Rig]:
    async with counting(database_url, tmp_path, counter) as made:
        yield made


def keyed(key: str = "k1", **more: str) -> dict[str, Any]:
    return {"headers": {"idempotency-key": key, **more}}


async def test_the_same_key_and_body_get_the_same_answer_and_one_effect(rig: Rig, counter: Counter) -> None:
    first = await rig.ada.post("/api/count", json={"a": 1}, **keyed())
    again = await rig.ada.post("/api/count", json={"a": 1}, **keyed())
    assert (first.status, first.body) == (again.status, again.body) == (201, first.body)
    assert again.headers["x-backstay-replayed"] == "1"
    assert again.headers["location"] == first.headers["location"]
    assert "x-backstay-replayed" not in first.headers
    assert len(counter.runs) == 1


async def test_another_body_query_or_path_with_the_key_is_refused(rig: Rig, counter: Counter) -> None:
    await rig.ada.post("/api/count", json={"a": 1}, **keyed())
    for path, body in (("/api/count", {"a": 2}), ("/api/count?x=1", {"a": 1}), ("/api/wait", {"a": 1})):
        reply = await rig.ada.post(path, json=body, **keyed())
        assert (reply.status, reply.json["status"]) == (422, 422), path
        assert reply.headers["x-should-retry"] == "false"
    assert len(counter.runs) == 1


async def test_openai_clients_are_told_409_and_not_to_try_again(rig: Rig, counter: Counter) -> None:
    await rig.ada.post("/v1/count", json={"a": 1}, **keyed())
    reply = await rig.ada.post("/v1/count", json={"a": 2}, **keyed())
    assert reply.status == 409
    assert reply.headers["x-should-retry"] == "false"
    assert reply.json["error"]["type"] == "invalid_request_error"


async def test_while_the_first_is_answered_the_same_key_is_409_and_may_be_tried_again(
    rig: Rig, counter: Counter
) -> None:
    first = asyncio.ensure_future(rig.ada.post("/api/wait", **keyed()))
    await counter.entered.wait()
    for path in ("/api/wait", "/v1/wait"):
        busy = await rig.ada.post(path, **keyed())
        assert (busy.status, busy.headers["retry-after"], busy.headers["x-should-retry"]) == (409, "1", "true")
    counter.leave.set()
    assert (await first).json == {"run": 1}
    assert (await rig.ada.post("/api/wait", **keyed())).json == {"run": 1}


async def test_a_storm_of_the_same_request_on_two_servers_has_one_effect(
    database_url: str, tmp_path: Path, counter: Counter
) -> None:
    async with counting(database_url, tmp_path, counter) as one, counting(database_url, tmp_path, counter) as two:
        visitors = [one.ada, Visitor(two.url, two.session, one.ada.key)] * 10
        replies = await asyncio.gather(*(visitor.post("/api/count", json={}, **keyed()) for visitor in visitors))
        assert {reply.status for reply in replies} <= {201, 409}
        assert len({reply.body for reply in replies if reply.status == 201}) == 1
    assert len(counter.runs) == 1


async def test_what_was_refused_or_fell_frees_the_key(rig: Rig, counter: Counter) -> None:
    counter.refuses = True
    assert (await rig.ada.post("/api/count", json={"a": 1}, **keyed())).status == 400
    counter.refuses = False
    assert (await rig.ada.post("/api/count", json={"a": 2}, **keyed())).status == 201
    for _ in range(2):
        assert (await rig.ada.post("/api/fall", **keyed("k2", connection="close"))).status == 500
    assert len(counter.runs) == 4


async def test_owners_do_not_share_keys_and_a_reader_is_shown_nothing(rig: Rig, counter: Counter) -> None:
    mine = await rig.ada.post("/api/count", json={}, **keyed())
    theirs = await rig.bob.post("/api/count", json={}, **keyed())
    assert (mine.json["run"], theirs.json["run"]) == (1, 2)
    assert mine.json["id"] != theirs.json["id"]
    assert (await rig.visitor("ada", Role.READ).post("/api/count", json={}, **keyed())).status == 403
    assert (await rig.visitor("ada", Role.WRITE).post("/api/count", json={}, **keyed())).status == 422
    assert (await rig.holder(None).post("/api/count", json={}, **keyed())).status == 401


async def test_a_form_sent_again_with_another_boundary_is_the_same_form(rig: Rig, counter: Counter) -> None:
    def form(boundary: str, text: str) -> dict[str, Any]:
        data = f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\n{text}\r\n--{boundary}--\r\n'.encode()
        return {"data": data, **keyed("form", **{"content-type": f"multipart/form-data; boundary={boundary}"})}

    text = "x-" * 200_000
    assert (await rig.ada.post("/api/count", **form("one", text))).status == 201
    assert (await rig.ada.post("/api/count", **form("another", text))).headers["x-backstay-replayed"] == "1"
    assert (await rig.ada.post("/api/count", **form("another", text + "x"))).status == 422


async def test_an_answer_with_a_secret_is_shown_once_and_not_kept(rig: Rig, counter: Counter) -> None:
    assert (await rig.ada.post("/api/secret", **keyed())).json["secret"] == "whsec_planted"
    again = await rig.ada.post("/api/secret", **keyed())
    assert (again.status, len(counter.runs)) == (409, 1)
    kept = await rig.service.store.replies.take("ada", "k1")
    assert isinstance(kept, KeptReply)
    assert (kept.status, kept.body) == (200, None)


async def test_a_bad_key_is_one_clear_problem(rig: Rig, counter: Counter) -> None:
    for bad in ("", "x" * 256, "naïve"):
        reply = await rig.ada.post("/api/count", json={}, **keyed(bad))
        assert reply.status == 400, bad
        assert "idempotency key" in reply.json["detail"]
    assert counter.runs == []


async def test_without_a_key_every_request_is_new(rig: Rig, counter: Counter) -> None:
    ids = {(await rig.ada.post("/api/count", json={})).json["id"] for _ in range(2)}
    assert len(ids) == 2


async def test_a_key_whose_holder_is_gone_is_free_after_its_lease_and_the_holder_cannot_answer_it(site: Site) -> None:
    store = await site.open_store()
    dead = await store.replies.take("ada", "k")
    assert isinstance(dead, KeyClaim)
    await site.advance(29)
    assert isinstance(await store.replies.take("ada", "k"), KeptReply)
    await store.replies.hold(dead)
    await site.advance(29)
    assert isinstance(await store.replies.take("ada", "k"), KeptReply)
    await site.advance(2)
    heir = await store.replies.take("ada", "k")
    assert isinstance(heir, KeyClaim)
    await store.replies.keep(dead, KeptReply("d", 200, "{}", "from the dead"))
    await store.replies.keep(heir, KeptReply("d", 200, "{}", "from the heir"))
    await store.replies.give(dead)
    assert await store.replies.take("ada", "k") == KeptReply("d", 200, "{}", "from the heir")


async def test_a_reply_counts_for_a_day_and_is_then_forgotten(site: Site) -> None:
    store = await site.open_store()
    for n in range(30):
        claim = await store.replies.take("ada", f"k{n}")
        assert isinstance(claim, KeyClaim)
        await store.replies.keep(claim, KeptReply("d", 200, "{}", "body"))
    await site.advance(86_399)
    assert isinstance(await store.replies.take("ada", "k0"), KeptReply)
    await site.advance(2)
    for n in range(3):
        assert isinstance(await store.replies.take("bob", f"other{n}"), KeyClaim)
    assert await site.one("SELECT count(*) FROM replies") == 3
