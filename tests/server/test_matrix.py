"""Every operation in the OpenAPI document, asked with no key, a wrong key, another owner's key and a read-only key."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from fastapi import FastAPI

from backstay.llm.endpoint import Endpoint
from backstay.server.pages import routers as page_routers
from backstay.server.problems import OPENAI_PREFIXES
from backstay.server.service import ServiceOptions
from backstay.store.keys import Role
from tests.server.operations import OPEN, OPERATED, ROLES, SHARED, SHARED_LISTS, Things, made_by_ada
from tests.server.receiver import Receiver, receiving
from tests.server.rig import Reply, Rig, Visitor, rigged
from tests.stories.stage import until

# Refused here, because OpenAI alone is behind this service; tests/server/anthropic has them with Anthropic behind it.
WITHOUT_ANTHROPIC = {"POST /v1/messages/batches", "POST /v1/messages/batches/{message_batch_id}/cancel"}
WRONG_KEY = f"bks_{'0' * 12}_{'x' * 43}"
MODELS = '{"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "me"}]}'


async def deleted(rig: Rig, path: str) -> bool:
    return (await rig.ada.delete(path)).status in (200, 204)


async def deleted_with_its_job(rig: Rig, path: str) -> bool:
    """A batch goes when its job is deleted, and in no other way."""

    async def job() -> int | None:
        return (await rig.service.store.batches.get(path.rpartition("/")[2], "ada")).job_id

    async def is_over() -> bool:
        await rig.work()
        return bool((await rig.ada.get(path)).json["status"] == "cancelled")

    job_id = await until(job, "the batch has a job")
    assert (await rig.ada.post(f"{path}/cancel")).status == 200
    await until(is_over, "the batch is cancelled")
    assert (await rig.ada.delete(f"/api/jobs/{job_id}")).status == 204
    return (await rig.ada.get(path)).status == 404


# What is made by a request, and how it is deleted.
MADE = {
    "POST /api/uploads": deleted,
    "POST /v1/files": deleted,
    "POST /api/webhooks": deleted,
    "POST /v1/webhook_endpoints": deleted,
    "POST /v1/batches": deleted_with_its_job,
}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        made.says(200, MODELS)
        yield made


@pytest.fixture
async def rig(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    options = ServiceOptions(works=False, upstream=Endpoint(f"http://{receiver.place}/v1"))
    async with rigged(database_url, tmp_path / "data", options=options, inside_hosts=receiver.place) as made:
        yield made


def operations(app: FastAPI) -> Iterator[str]:
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            yield f"{method.upper()} {path}"


async def ask(visitor: Visitor, operation: str, things: Things, prefix: str = OPENAI_PREFIXES[0]) -> Reply:
    """The answer, of which a stream without an end is not waited for."""
    method, _, template = operation.partition(" ")
    path = things.path(template)
    path = prefix + path.removeprefix("/v1") if path.startswith("/v1/") else path
    async with visitor.opened(method, path, **things.body(operation)) as answer:
        endless = answer.content_type == "text/event-stream"
        return Reply(answer.status, dict(answer.headers), b"" if endless else await answer.read())


def names_something_owned(operation: str) -> bool:
    named = {part[1:-1] for part in operation.split("/") if part.startswith("{")}
    return bool(named - SHARED)


def in_order_of_harm(operation: str) -> tuple[int, bool, str]:
    """Looks first, deletes last; of these the job, which takes the others with it."""
    return ("GET", "POST", "PATCH", "DELETE").index(operation.split()[0]), "/api/jobs/" in operation, operation


def test_every_operation_is_in_the_matrix(sqlite_rig: Rig) -> None:
    assert set(operations(sqlite_rig.app)) == set(ROLES)


def test_what_is_left_out_of_the_document_is_known_to_be_open(sqlite_rig: Rig) -> None:
    documented = set(sqlite_rig.app.openapi()["paths"])
    twins = {f"{prefix}{path.removeprefix('/v1')}" for prefix in OPENAI_PREFIXES for path in documented}
    served = {path.replace(":path}", "}") for path in paths(sqlite_rig.app.routes)}
    pages = {path for router in page_routers() for path in paths(router.routes)}  # which have a test of their own
    assert served - documented - twins - pages == OPEN


def paths(routes: Any, before: str = "") -> Iterator[str]:
    """The paths of all routes, those of included routers as well."""
    for route in routes:
        context = getattr(route, "include_context", None)
        if context is not None:
            yield from paths(route.original_router.routes, before + context.prefix)
        else:
            yield before + route.path


@pytest.mark.slow
async def test_every_operation_keeps_to_whose_it_is(rig: Rig, receiver: Receiver) -> None:
    things = await made_by_ada(rig, receiver)
    wrong = []
    for operation in sorted(ROLES, key=in_order_of_harm):
        visitors = {"no key": (rig.holder(None), 401), "a wrong key": (rig.holder(WRONG_KEY), 401)}
        if ROLES[operation] is not Role.READ:
            visitors["a read-only key"] = (rig.visitor("ada", Role.READ), 403)
        if ROLES[operation] is Role.ADMIN:
            visitors["a writer's key"] = (rig.visitor("ada", Role.WRITE), 403)
        if names_something_owned(operation):
            visitors["another owner's key"] = (rig.bob, 404)
        if operation in OPERATED:
            visitors["another owner's admin"] = (rig.bob, 403)
        for prefix in OPENAI_PREFIXES if " /v1/" in operation else OPENAI_PREFIXES[:1]:
            for who, (visitor, expected) in visitors.items():
                status = (await ask(visitor, operation, things, prefix)).status
                if status != expected:
                    wrong.append((operation, prefix, who, status))
    assert wrong == []


@pytest.mark.slow
async def test_every_operation_is_there_for_whose_it_is(rig: Rig, receiver: Receiver) -> None:
    """Else a 404 for another owner would say nothing."""
    things = await made_by_ada(rig, receiver)
    wrong = []
    for operation in sorted(ROLES, key=in_order_of_harm):
        reply = await ask(rig.visitor("ada", ROLES[operation]), operation, things)
        if reply.status >= 400 and reply.status != (400 if operation in WITHOUT_ANTHROPIC else 409):
            wrong.append((operation, reply))
    assert wrong == []


@pytest.mark.slow
async def test_no_list_shows_what_is_another_owners(rig: Rig, receiver: Receiver) -> None:
    things = await made_by_ada(rig, receiver)
    lists = 0
    for operation in sorted(set(ROLES) - SHARED_LISTS):
        if operation.startswith("GET") and not names_something_owned(operation):
            mine, his = await ask(rig.ada, operation, things), await ask(rig.bob, operation, things)
            if "data" in mine.json:
                lists += 1
                assert mine.json["data"] != [], operation
                assert his.json["data"] == [], operation
    assert lists >= 7


@pytest.mark.slow
async def test_another_owners_id_answers_as_one_that_never_was(rig: Rig, receiver: Receiver) -> None:
    things = await made_by_ada(rig, receiver)
    nothing = {"job_id": "777", "item_id": "777-0", "late_id": "777", "archive_id": "777"}
    for name, value in things.named.items():
        nothing.setdefault(name, value[:-4] + "0000")
    never = Things({**nothing, "provider": "echo", "model_id": "m"}, things.webhook_url)
    for operation in sorted(ROLES, key=in_order_of_harm):
        if names_something_owned(operation):
            his, none = await ask(rig.bob, operation, things), await ask(rig.bob, operation, never)
            assert (his.status, none.status) == (404, 404), operation
            assert without_ids(his, things) == without_ids(none, never), operation


@pytest.mark.parametrize("operation", MADE)
async def test_the_id_of_a_deleted_thing_is_given_to_nobody_else(rig: Rig, receiver: Receiver, operation: str) -> None:
    """Neither the next of its kind nor one that another owner makes with the same idempotency key has it."""
    things = await made_by_ada(rig, receiver)
    path, same = operation.partition(" ")[2], {"headers": {"idempotency-key": "the same"}}
    mine = await rig.ada.post(path, **things.body(operation), **same)
    assert await MADE[operation](rig, f"{path}/{mine.json['id']}")
    following = await rig.ada.post(path, **things.body(operation))
    his = await rig.bob.post(path, **things.body(operation), **same)
    assert len({reply.json["id"] for reply in (mine, following, his)}) == 3, (mine, following, his)


async def test_the_id_of_a_revoked_key_is_given_to_nobody_else(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = rig.service.store.keys
    monkeypatch.setattr("backstay.store.keys.new_id", lambda: "0123456789ab" * 2)
    first = await keys.create("ada", Role.ADMIN)
    await keys.revoke(first.id, "ada")
    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await keys.create("bob", Role.ADMIN)
    assert await keys.verify(first.text) is None


def without_ids(reply: Reply, things: Things) -> str:
    said = reply.body.decode()
    for value in sorted(things.named.values(), key=len, reverse=True):
        said = said.replace(value, "…")
    return said
