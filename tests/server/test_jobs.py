"""Jobs over HTTP: submit, list, show, pause, resume, cancel, retry, delete."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.server.rig import Reply, Rig, rigged


def problem(reply: Reply, status: int) -> Any:
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["status"] == status
    assert reply.json["detail"]
    return reply.json


async def test_a_submitted_job_is_worked_off_and_its_results_are_read(rig: Rig) -> None:
    reply = await rig.ada.post("/api/jobs", json={"handler": "echo", "items": [{"n": n} for n in range(3)]})
    assert reply.status == 201
    job = reply.json
    assert reply.headers["location"] == f"/api/jobs/{job['id']}"
    assert (job["state"], job["total"], job["sealed"]) == ("queued", 3, True)
    await rig.work()
    after = (await rig.ada.get(reply.headers["location"])).json
    assert (after["state"], after["succeeded"], after["done"]) == ("completed", 3, 3)
    results = await rig.ada.get(f"/api/jobs/{job['id']}/results", params={"payload": "true"})
    assert results.headers["content-type"] == "application/x-ndjson"
    assert [line["result"] for line in results.lines] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [line["payload"] for line in results.lines] == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_lines_are_taken_in_as_they_come(rig: Rig) -> None:
    async def lines() -> Any:
        for n in range(5_000):
            yield f'{{"n": {n}}}\n'.encode()
        yield b'\n{"n": 5000}'

    reply = await rig.ada.post(
        "/api/jobs",
        params={"handler": "echo", "label": "many", "priority": "3"},
        data=lines(),
        headers={"content-type": "application/x-ndjson"},
    )
    assert reply.status == 201, reply
    assert (reply.json["total"], reply.json["label"], reply.json["priority"]) == (5_001, "many", 3)
    last = (await rig.ada.get(f"/api/items/{reply.json['id']}-5000", params={"include": "payload"})).json
    assert last["payload"] == {"n": 5000}


async def test_a_budget_beside_lines_is_refused_too(sqlite_rig: Rig) -> None:
    reply = await sqlite_rig.ada.post(
        "/api/jobs?handler=echo&budget_micros=5", data=b"1\n", headers={"content-type": "application/x-ndjson"}
    )
    assert "a budget cannot be enforced for 'echo'" in problem(reply, 422)["detail"]
    assert (await sqlite_rig.ada.get("/api/jobs")).json["data"] == []


async def test_a_budget_needs_the_cost_of_the_fallback_too(sqlite_rig: Rig) -> None:
    @sqlite_rig.made.handler(cost=0.01)
    async def costly(item: Any) -> Any:
        return item

    asked = {"handler": "costly", "items": [1], "options": {"budget_micros": 50_000, "fallback": "echo"}}
    refused = problem(await sqlite_rig.ada.post("/api/jobs", json=asked), 422)
    assert "a budget cannot be enforced for 'echo'" in refused["detail"]
    assert (await sqlite_rig.ada.get("/api/jobs")).json["data"] == []
    await sqlite_rig.submit("costly", budget_micros=50_000)


async def test_a_line_that_is_no_json_is_named(rig: Rig) -> None:
    reply = await rig.ada.post(
        "/api/jobs?handler=echo", data=b'{"n": 1}\n{"n": \n', headers={"content-type": "application/x-ndjson"}
    )
    assert "line 2 is not JSON" in problem(reply, 422)["detail"]
    assert (await rig.ada.get("/api/jobs")).json["data"] == []


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"handler": "echoo", "items": [1]}, 422, "no handler 'echoo'"),
        ({"handler": "call@api.example#1234", "items": [1]}, 422, "LLM requests are not submitted here"),
        ({"handler": "echo", "items": []}, 422, "items"),
        ({"handler": "echo"}, 422, "items"),
        ({"handler": "fail_as_told", "items": [1]}, 400, "the payload does not fit"),
        ({"handler": "echo", "items": [1], "options": {"priority": 10}}, 422, "priority"),
        ({"handler": "echo", "items": [1], "options": {"retry": "often"}}, 400, "often"),
        ({"handler": "echo", "items": [1], "options": {"colour": "red"}}, 422, "colour"),
        ({"handler": "echo", "items": [1], "colour": "red"}, 422, "colour"),
        (
            {"handler": "echo", "items": [1], "options": {"budget_micros": 5}},
            422,
            "cannot be enforced for 'echo'",
        ),
        ([], 422, "the body"),
    ],
)
async def test_what_cannot_be_submitted_is_refused_in_one_line(
    sqlite_rig: Rig, body: Any, status: int, said: str
) -> None:
    found = problem(await sqlite_rig.ada.post("/api/jobs", json=body), status)
    assert said in found["detail"]
    assert "\n" not in found["detail"]


async def test_a_body_of_another_kind_or_size_is_refused(sqlite_rig: Rig) -> None:
    ada = sqlite_rig.ada
    problem(await ada.post("/api/jobs", data=b"a=b", headers={"content-type": "text/plain"}), 415)
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    problem(await ada.post("/api/jobs", data=b"\x1f\x8b", headers=packed), 415)
    large = b'{"handler": "echo", "items": ["' + b"x" * (17 << 20) + b'"]}'
    assert (
        "x-ndjson"
        in problem(await ada.post("/api/jobs", data=large, headers={"content-type": "application/json"}), 413)["hint"]
    )
    one_line = b'"' + b"x" * (17 << 20)
    lines = {"content-type": "application/x-ndjson"}
    problem(await ada.post("/api/jobs?handler=echo", data=one_line, headers=lines), 413)
    problem(await ada.post("/api/jobs", data=b"1\n", headers=lines), 422)


async def test_the_same_key_is_one_job_and_another_body_is_refused(rig: Rig) -> None:
    given = {"handler": "echo", "items": [1, 2], "options": {"idempotency_key": "once"}}
    first = await rig.ada.post("/api/jobs", json=given)
    again = await rig.ada.post("/api/jobs", json=given)
    assert (first.status, again.status) == (201, 201)
    assert first.json["id"] == again.json["id"]
    problem(await rig.ada.post("/api/jobs", json={**given, "items": [1, 3]}), 422)
    assert (await rig.bob.post("/api/jobs", json=given)).json["id"] != first.json["id"]


async def test_jobs_are_listed_newest_first_page_by_page(rig: Rig) -> None:
    ids = [await rig.submit() for _ in range(5)]
    await rig.bob.post("/api/jobs", json={"handler": "echo", "items": [1]})
    seen, path = [], "/api/jobs?limit=2"
    while path:
        reply = await rig.ada.get(path)
        assert len(reply.json["data"]) <= 2
        seen += [job["id"] for job in reply.json["data"]]
        assert reply.json["has_more"] is (reply.json["next_cursor"] is not None)
        path = reply.headers["link"].partition(">")[0][1:] if "link" in reply.headers else ""
    assert seen == ids[::-1]


async def test_jobs_are_chosen_by_state_and_handler(rig: Rig) -> None:
    echoed, refused = await rig.submit(), await rig.submit("refuse")
    await rig.work()
    waiting = await rig.submit()

    async def listed(**wanted: str) -> list[str]:
        return [job["id"] for job in (await rig.ada.get("/api/jobs", params=wanted)).json["data"]]

    assert await listed(state="completed") == [echoed]
    assert await listed(state="failed") == [refused]
    assert await listed(handler="echo") == [waiting, echoed]
    assert await listed(handler="echo", state="queued") == [waiting]
    problem(await rig.ada.get("/api/jobs", params={"state": "odd"}), 422)


async def test_a_cursor_is_good_for_its_owner_and_its_list_alone(sqlite_rig: Rig) -> None:
    for _ in range(3):
        await sqlite_rig.submit()
    cursor = (await sqlite_rig.ada.get("/api/jobs?limit=1")).json["next_cursor"]
    assert (await sqlite_rig.ada.get("/api/jobs", params={"cursor": cursor})).status == 200
    problem(await sqlite_rig.bob.get("/api/jobs", params={"cursor": cursor}), 400)
    problem(await sqlite_rig.ada.get("/api/jobs", params={"cursor": cursor, "state": "queued"}), 400)
    problem(await sqlite_rig.ada.get("/api/dead-letters", params={"cursor": cursor}), 400)
    for nonsense in ("", "x", "é", "=" * 50, "MTIz", cursor[:-1]):
        problem(await sqlite_rig.ada.get("/api/jobs", params={"cursor": nonsense}), 400)


async def test_a_job_is_paused_resumed_and_cancelled(rig: Rig) -> None:
    job = await rig.submit(items=[1, 2, 3])
    assert (await rig.ada.post(f"/api/jobs/{job}/pause")).json["state"] == "paused"
    problem(await rig.ada.post(f"/api/jobs/{job}/pause"), 409)
    await rig.work()
    assert (await rig.ada.get(f"/api/jobs/{job}")).json["done"] == 0
    assert (await rig.ada.post(f"/api/jobs/{job}/resume")).json["state"] == "queued"
    cancelled = (await rig.ada.post(f"/api/jobs/{job}/cancel")).json
    assert (cancelled["state"], cancelled["cancelled"]) == ("cancelled", 3)
    assert problem(await rig.ada.post(f"/api/jobs/{job}/resume"), 409)["hint"] is not None


async def test_the_failed_items_of_a_job_are_retried(rig: Rig) -> None:
    job = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {}, {"code": "NOT_PDF"}])
    await rig.work()
    retried = (await rig.ada.post(f"/api/jobs/{job}/retry")).json
    assert (retried["retried"], retried["job"]["failed"], retried["job"]["state"]) == (2, 0, "running")
    problem(await rig.ada.post(f"/api/jobs/{job}/retry"), 409)


async def test_one_call_retries_a_bounded_number_and_says_that_there_are_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstay.server.api.jobs.REPLAY_ITEMS_MAX", 4)
    monkeypatch.setattr("backstay.store.jobs.RETRY_ITEMS", 2)
    job = await rig.submit("refuse", [{"n": n} for n in range(7)])
    await rig.work()
    calls = [(await rig.ada.post(f"/api/jobs/{job}/retry")).json for _ in range(2)]
    assert [(said["retried"], said["more"], said["job"]["failed"]) for said in calls] == [(4, True, 3), (3, False, 0)]


async def test_an_etag_saves_the_body_and_guards_a_change(rig: Rig) -> None:
    job = await rig.submit()
    tag = (await rig.ada.get(f"/api/jobs/{job}")).headers["etag"]
    same = await rig.ada.get(f"/api/jobs/{job}", headers={"if-none-match": f'"other", W/{tag}'})
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    paused = await rig.ada.post(f"/api/jobs/{job}/pause", headers={"if-match": tag})
    assert paused.status == 200
    assert paused.headers["etag"] != tag
    problem(await rig.ada.post(f"/api/jobs/{job}/resume", headers={"if-match": tag}), 412)
    assert (await rig.ada.get(f"/api/jobs/{job}", headers={"if-none-match": tag})).status == 200
    assert (await rig.ada.post(f"/api/jobs/{job}/resume", headers={"if-match": paused.headers["etag"]})).status == 200


async def test_a_job_that_has_ended_is_deleted_with_all_that_was_its(rig: Rig) -> None:
    kept = await rig.submit(items=[1, 2])
    job = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {}], idempotency_key="k")
    problem(await rig.ada.delete(f"/api/jobs/{job}"), 409)
    await rig.work()
    await rig.ada.post(f"/api/jobs/{job}/retry")
    await rig.work()
    await rig.service.artifacts.put(f"logs/{job}/{job}-0.log", _once(b"words"))
    assert (await rig.ada.delete(f"/api/jobs/{job}")).status == 204
    gone = await rig.ada.get(f"/api/jobs/{job}")
    assert json.loads(gone.body) == {**(await rig.ada.get("/api/jobs/999")).json, "detail": f"no job {job}"}
    assert (await rig.ada.get(f"/api/items/{job}-0")).status == 404
    assert [one async for one in rig.service.artifacts.names(f"logs/{job}/")] == []
    assert await rig.service.store.jobs.disowned_jobs() == []
    assert await rig.service.store.events.oldest(f"job:{job}") == []
    assert await rig.service.store.item_views.attempts(int(job) << 28) == []
    assert (await rig.ada.get(f"/api/items/{kept}-1")).status == 200
    assert (
        await rig.ada.post("/api/jobs", json={"handler": "echo", "items": [7], "options": {"idempotency_key": "k"}})
    ).status == 201


async def test_a_deletion_that_was_cut_short_is_finished_when_the_service_starts(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    async with rigged(sqlite_file_url, tmp_path / "data") as rig:
        job = await rig.submit(items=[1, 2, 3])
        await rig.work()
        await rig.service.store.jobs.disown(int(job), "ada")
    async with rigged(sqlite_file_url, tmp_path / "data") as rig, asyncio.timeout(20):
        while await rig.service.store.jobs.disowned_jobs():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
        assert [page async for page in rig.service.store.results.pages(int(job))] == []


@pytest.mark.parametrize("path", ["/api/jobs", "/api/webhooks", "/v1/webhook_endpoints"])
async def test_a_body_that_is_no_json_is_refused_in_a_sentence_that_says_where(sqlite_rig: Rig, path: str) -> None:
    kind = {"content-type": "application/json"}
    reply = await sqlite_rig.ada.post(path, data=b'{"handler": "echo",\n "items": }', headers=kind)
    said = reply.json["error"]["message"] if path.startswith("/v1") else problem(reply, 422)["detail"]
    assert re.fullmatch("the body is not JSON: expect(ed|ing) value at line 2 column 11", said)


async def test_a_large_body_is_refused_before_it_is_held(sqlite_rig: Rig) -> None:
    headers = {"content-type": "application/json"}
    reply = await sqlite_rig.ada.post("/api/dead-letters/replay", data=b" " * (17 << 20), headers=headers)
    assert reply.status == 413, reply


async def _once(piece: bytes) -> Any:
    yield piece


@pytest.mark.parametrize("job", ["0", "x", "1x", "9" * 30, "-1", "٣", "%00"])
async def test_what_is_no_job_is_not_found(sqlite_rig: Rig, job: str) -> None:
    problem(await sqlite_rig.ada.get(f"/api/jobs/{job}"), 404)
