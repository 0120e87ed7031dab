"""Jobs after others, fallbacks and submits without doubles, over HTTP and on the pages."""

from typing import Any

import pytest

from tests.server.pages.reader import reader
from tests.server.rig import Rig
from tests.server.test_jobs import problem


async def test_a_job_after_another_waits_says_so_and_gets_its_results(rig: Rig) -> None:
    first = await rig.submit(items=[{"n": 1}, {"n": 2}])
    reply = await rig.ada.post("/api/jobs", json={"handler": "echo", "options": {"after": [first], "label": "later"}})
    assert reply.status == 201, reply
    later = reply.json["id"]
    assert (reply.json["waits_for"], reply.json["total"], reply.json["state"]) == ([first], 0, "queued")
    why = (await rig.ada.get(f"/api/jobs/{later}/why")).json["reasons"]
    assert (why[0]["code"], why[0]["text"]) == (
        "waits_for_jobs",
        f"job {later} waits for job {first}: it starts when all of them have ended",
    )
    page = await (await reader(rig)).held(f"/jobs/{later}")
    assert f"waits for job {first}" in page.text
    assert f"/jobs/{first}" in page.links
    for _ in range(3):
        await rig.made.tick()
    results = await rig.ada.get(f"/api/jobs/{later}/results")
    assert [line["result"] for line in results.lines] == [{"n": 1}, {"n": 2}]


async def test_a_fallback_takes_over_what_the_handler_fails_and_both_attempts_are_shown(rig: Rig) -> None:
    job = await rig.submit("refuse", [{"n": 1}], fallback="echo")
    await rig.work()
    await rig.work()
    view = (await rig.ada.get(f"/api/jobs/{job}")).json
    assert (view["state"], view["succeeded"], view["fallback"]) == ("completed", 1, "echo")
    page = await (await reader(rig)).held(f"/items/{job}-0")
    assert "handler refuse failed, and echo tries next" in page.text
    assert "Call 2" in page.text


@pytest.mark.parametrize("unique", ["payload", "report of May"])
async def test_a_unique_job_is_submitted_once(rig: Rig, unique: str) -> None:
    jobs = [await rig.submit(unique=unique, unique_seconds=60) for _ in range(2)]
    assert jobs[0] == jobs[1]


async def test_items_with_known_keys_are_left_out_of_a_body_and_of_lines(rig: Rig) -> None:
    await rig.submit(items=[{"id": 1}, {"id": 2}], item_key="id")
    reply = await rig.ada.post(
        "/api/jobs",
        params={"handler": "echo", "item_key": "id"},
        data=b'{"id": 2}\n{"id": 3}\n',
        headers={"content-type": "application/x-ndjson"},
    )
    assert (reply.json["total"], reply.json["known"]) == (1, 1)
    page = await (await reader(rig)).held(f"/jobs/{reply.json['id']}")
    assert "Known before" in page.text


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"after": ["1"]}, 404, "no job 1"),
        ({"after": ["77"]}, 404, "no job 77"),
        ({"after": []}, 422, "after"),
        ({"after": ["x"]}, 422, "after"),
        ({"after": ["1"], "after_items": "some"}, 422, "after_items"),
        ({"fallback": "nobody"}, 422, "no handler 'nobody'"),
        ({"fallback": "echo"}, 422, "cannot be its own fallback"),
        ({"unique_seconds": 5}, 400, "unique_seconds needs unique"),
        ({"unique": "k"}, 400, "unique needs unique_seconds"),
        ({"unique": "k", "unique_seconds": 5, "idempotency_key": "k"}, 400, "cannot be used together"),
        ({"item_key": "id"}, 400, "item 0 has no key"),
        ({"item_key": ""}, 422, "item_key"),
    ],
)
async def test_options_that_cannot_be_are_refused_and_nothing_is_written(
    sqlite_rig: Rig, options: dict[str, Any], status: int, said: str
) -> None:
    theirs = await sqlite_rig.bob.post("/api/jobs", json={"handler": "echo", "items": [1]})
    assert theirs.json["id"] == "1"
    found = problem(
        await sqlite_rig.ada.post("/api/jobs", json={"handler": "echo", "items": [1], "options": options}), status
    )
    assert said in found["detail"]
    assert (await sqlite_rig.ada.get("/api/jobs")).json["data"] == []


async def test_a_job_that_another_waits_for_cannot_be_deleted(sqlite_rig: Rig) -> None:
    first = await sqlite_rig.submit()
    later = (await sqlite_rig.ada.post("/api/jobs", json={"handler": "echo", "options": {"after": [first]}})).json["id"]
    await sqlite_rig.made.tick()
    refused = problem(await sqlite_rig.ada.delete(f"/api/jobs/{first}"), 409)
    assert refused["detail"] == f"job {later} waits for the results of job {first}"
