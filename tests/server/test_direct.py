"""What is asked for most often goes past the framework, and nobody can tell from the answer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.store.batches import NewBatch
from backstay.store.keys import Role
from tests.server.rig import Reply, Rig, Visitor, practice_app, rigged

THE_LONG_WAY = "?nothing=1"  # a query, with which a request goes through the framework
OF_ONE_ANSWER = ("x-request-id", "ratelimit", "date")
BATCH = "batch_0123456789abcdef01234567"


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data", practice_app(sqlite_file_url)) as made:
        await made.submit("echo", [{"n": 1}])
        new = NewBatch(BATCH, "ada", "/v1/embeddings", "file-1", "24h", 86_400_000, metadata=None, output_seconds=None)
        await made.service.store.batches.create(new, None)
        yield made


def said(reply: Reply) -> tuple[int, dict[str, str], bytes]:
    headers = {name.lower(): value for name, value in reply.headers.items() if name.lower() not in OF_ONE_ANSWER}
    return reply.status, headers, reply.body


THERE = [
    "/api/items/1-0",
    "/api/jobs/1",
    *(f"{start}/batches/{BATCH}" for start in ("/v1", "/openai/v1", "/openai")),
]
NOWHERE = [
    "/api/items/1-9",
    "/api/items/x%00y",
    "/api/jobs/2",
    "/api/jobs/x",
    "/v1/batches/none",
    "/openai/batches/%20",
]
NO_PATHS = ["/api/jobs/..%2F1", "/v1/batches/a%2Fb", "/api/items/1-0/x"]  # as the framework reads them


@pytest.mark.parametrize("path", THERE + NOWHERE + NO_PATHS)
async def test_the_direct_way_and_the_long_one_lead_to_the_same_answer(rig: Rig, path: str) -> None:
    wrong = rig.holder(f"bks_{'0' * 12}_{'x' * 43}")
    visitors: list[Visitor] = [rig.ada, rig.visitor("ada", Role.READ), rig.bob, wrong, rig.holder(None)]
    seen = 200 if path in THERE else 404
    expected = (404,) * 5 if path in NO_PATHS else (seen, seen, 404, 401, 401)
    for visitor, status in zip(visitors, expected, strict=True):
        direct = await visitor.get(path)
        assert direct.status == status
        assert said(direct) == said(await visitor.get(path + THE_LONG_WAY))
        assert {"x-request-id", "ratelimit"} <= {name.lower() for name in direct.headers}


@pytest.mark.parametrize("path", THERE[:2])
async def test_an_etag_counts_on_both_ways(rig: Rig, path: str) -> None:
    seen = {"if-none-match": (await rig.ada.get(path)).headers["etag"]}
    assert (await rig.ada.get(path, headers=seen)).status == 304
    assert (await rig.ada.get(path + THE_LONG_WAY, headers=seen)).status == 304


async def test_a_key_that_is_revoked_opens_neither_way(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstay.server.auth.REMEMBERED_SECONDS", 0.0)
    key = await rig.service.store.keys.create("ada", Role.READ)
    visitor = rig.holder(key.text)
    assert (await visitor.get("/api/items/1-0")).status == 200
    await rig.service.store.keys.revoke(key.id, "ada")
    assert [(await visitor.get("/api/items/1-0" + way)).status for way in ("", THE_LONG_WAY)] == [401, 401]
