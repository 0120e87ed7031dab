"""Half of a character in a JSON body, a lone surrogate: no database takes it, so it is refused before it gets there."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from backstay.llm.endpoint import Endpoint
from backstay.server.problems import OPENAI_PREFIXES
from backstay.server.service import ServiceOptions
from tests.server.operations import ROLES, Things, made_by_ada
from tests.server.receiver import Receiver
from tests.server.remote_rig import remote_work
from tests.server.rig import Rig, rigged

HALF = "\ud800"
JSON = {"content-type": "application/json"}
# As clients write it: escaped, as bytes that are not UTF-8, and in another encoding that JSON readers guess.
WRITTEN = {
    "escaped": lambda value: json.dumps(value).encode(),
    "raw": lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"),
    "utf-16": lambda value: json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass"),
    "utf-16, escaped": lambda value: json.dumps(value).encode("utf-16-le"),
}
# What the matrix sends no value for.
MORE: dict[str, dict[str, Any]] = {
    "POST /api/jobs": {"options": {"label": "a", "retry": "a", "delivery": "a", "idempotency_key": "a"}},
    "POST /api/webhooks": {"name": "mine", "events": ["job.completed"]},
    "POST /v1/batches": {"metadata": {"a": "b"}},
    "POST /api/dead-letters/replay": {"job": "1", "code": "GW_4XX", "ids": ["1-0"]},
}


@pytest.fixture
async def rig(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    options = ServiceOptions(works=False, upstream=Endpoint(f"http://{receiver.place}/v1"))
    async with rigged(database_url, tmp_path / "data", options=options, inside_hosts=receiver.place) as made:
        yield made


def broken(value: Any) -> Iterator[Any]:
    """The value again and again, each time with half of a character in another of its texts, names of fields too."""
    match value:
        case str():
            yield HALF
            yield value + HALF
        case dict():
            for name, inner in value.items():
                yield {**value, name + HALF: inner}
                yield from ({**value, name: other} for other in broken(inner))
        case list():
            for at, inner in enumerate(value):
                yield from ([*value[:at], other, *value[at + 1 :]] for other in broken(inner))


def bodies(things: Things) -> Iterator[tuple[str, str, Any]]:
    for operation in ROLES:
        given = things.body(operation).get("json")
        if given is None:
            continue
        method, _, template = operation.partition(" ")
        path = things.path(template)
        whole = {**given, **MORE.get(operation, {})}
        for twin in [p + path.removeprefix("/v1") for p in OPENAI_PREFIXES] if path.startswith("/v1/") else [path]:
            yield from ((method, twin, other) for other in broken(whole))


@pytest.mark.slow
@pytest.mark.parametrize("written", WRITTEN)
async def test_half_of_a_character_is_refused_in_every_text_of_every_body(
    rig: Rig, receiver: Receiver, written: str
) -> None:
    things = await made_by_ada(rig, receiver)
    asked = list(bodies(things))
    assert len(asked) > 80
    wrong = []
    for method, path, value in asked:
        reply = await rig.ada(method, path, data=WRITTEN[written](value), headers=JSON)
        if reply.status != 400:
            wrong.append((method, path, ascii(value), reply))
    assert wrong == []


async def test_the_answer_says_what_is_wrong(rig: Rig) -> None:
    given = {"input_file_id": "file-1", "endpoint": HALF, "completion_window": "24h"}
    theirs = await rig.ada.post("/v1/batches", json=given)
    assert theirs.status == 400
    assert "lone surrogate" in theirs.json["error"]["message"]
    ours = await rig.ada.post("/api/webhooks", json={"url": f"https://a.example/{HALF}"})
    assert (ours.status, ours.json["code"]) == (400, "GW_4XX")
    assert "lone surrogate" in ours.json["detail"]


async def test_whole_characters_are_taken_however_they_are_written(rig: Rig, receiver: Receiver) -> None:
    for number, name in enumerate(("Grüße", "\U0001f600", "\\ud800", "ud800", 'a "quoted" \\u0041')):
        for write in WRITTEN.values():
            body = write({"url": receiver.url, "name": name})
            reply = await rig.ada.post("/api/webhooks", data=body, headers=JSON)
            assert (reply.status, reply.json["name"]) == (201, name), number


async def test_no_line_of_items_upsets_the_answer(database_url: str, tmp_path: Path) -> None:
    """Lines are kept as they are written, so half of a character may be in them; what refuses one says so in words."""
    url, whole = "https://worker.example/", {"exchange": "grading", "routing_key": "a", "payload": 1}
    items = [*broken({"url": url, "payload": 1, "headers": {"x-a": "b"}}), *broken(whole)]
    async with remote_work(database_url, tmp_path / "data") as remote:
        for item in items:
            given = {"params": {"handler": "remote"}, "headers": {"content-type": "application/x-ndjson"}}
            reply = await remote.rig.ada.post("/api/jobs", data=json.dumps(item).encode(), **given)
            assert reply.status in (201, 422), (ascii(item), reply)
