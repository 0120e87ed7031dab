"""Items over HTTP: list with filters, show, timeline, why it is not running, retry."""

import pytest

from tests.server.rig import Rig
from tests.server.test_jobs import problem


async def positions(rig: Rig, job: str, **wanted: str) -> list[int]:
    """Over all pages, of two each."""
    found, cursor = [], None
    while True:
        params = {"limit": "2", **wanted, **({"cursor": cursor} if cursor else {})}
        page = (await rig.ada.get(f"/api/jobs/{job}/items", params=params)).json
        found += [item["position"] for item in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def test_items_are_listed_in_order_and_chosen_by_state_code_and_position(rig: Rig) -> None:
    codes = ["GW_4XX", None, "NOT_PDF", None, "GW_4XX", None]
    job = await rig.submit("fail_as_told", [{"code": code} for code in codes])
    assert await positions(rig, job) == [0, 1, 2, 3, 4, 5]
    assert await positions(rig, job, state="failed") == []
    await rig.work()
    assert await positions(rig, job, state="failed") == [0, 2, 4]
    assert await positions(rig, job, state="succeeded") == [1, 3, 5]
    assert await positions(rig, job, state="queued") == []
    assert await positions(rig, job, error_code="GW_4XX") == [0, 4]
    assert await positions(rig, job, state="failed", error_code="NOT_PDF") == [2]
    assert await positions(rig, job, position_from="2", position_to="4") == [2, 3, 4]
    assert await positions(rig, job, state="failed", position_from="1", position_to="3") == [2]
    assert await positions(rig, job, position_from="6") == []


async def test_a_long_job_is_looked_through_a_bounded_span_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstay.store.item_views.ITEMS_LOOKED_MAX", 10)
    job = await rig.submit("fail_as_told", [{"code": "NOT_PDF" if n == 45 else "GW_4XX"} for n in range(50)])
    await rig.work()
    first = (await rig.ada.get(f"/api/jobs/{job}/items", params={"error_code": "NOT_PDF"})).json
    assert (first["data"], first["has_more"]) == ([], True)
    assert await positions(rig, job, error_code="NOT_PDF") == [45]


async def test_an_item_shows_what_became_of_it(rig: Rig) -> None:
    job = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {"n": 2}])
    await rig.work()
    failed = (await rig.ada.get(f"/api/items/{job}-0")).json
    assert (failed["id"], failed["job"], failed["position"]) == (f"{job}-0", job, 0)
    assert (failed["state"], failed["error_code"], failed["attempts"]) == ("failed", "GW_4XX", 1)
    assert failed["message"] == "told to fail with GW_4XX"
    assert "payload" not in failed
    full = (await rig.ada.get(f"/api/items/{job}-1?include=payload&include=result")).json
    assert (full["state"], full["payload"], full["result"]) == ("succeeded", {"n": 2}, {"n": 2})
    story = (await rig.ada.get(f"/api/items/{job}-0/timeline")).json
    assert [moment["what"] for moment in story["timeline"]] == ["submitted", "call 1 ended: failed"]
    assert story["attempts"][0]["error_code"] == "GW_4XX"


async def test_an_item_says_why_it_is_not_running(rig: Rig) -> None:
    job = await rig.submit()
    await rig.ada.post(f"/api/jobs/{job}/pause")
    why = (await rig.ada.get(f"/api/items/{job}-0/why")).json
    assert why["state"] == "queued"
    assert [reason["code"] for reason in why["reasons"]][:2] == ["job_paused", "no_worker"]


async def test_a_failed_item_is_retried_by_its_owner_once(rig: Rig) -> None:
    job = await rig.submit("refuse")
    path = f"/api/items/{job}-0"
    problem(await rig.ada.post(f"{path}/retry"), 409)
    await rig.work()
    before = await rig.ada.get(path)
    problem(await rig.bob.post(f"{path}/retry"), 404)
    retried = await rig.ada.post(f"{path}/retry", headers={"if-match": before.headers["etag"]})
    assert (retried.json["state"], retried.json["attempts"]) == ("queued", 0)
    problem(await rig.ada.post(f"{path}/retry", headers={"if-match": before.headers["etag"]}), 412)
    assert (await rig.ada.get(path, headers={"if-none-match": before.headers["etag"]})).status == 200
    assert (await rig.ada.get(path, headers={"if-none-match": retried.headers["etag"]})).status == 304


@pytest.mark.parametrize("item", ["1", "1-", "x-1", "1-99999999999", "9" * 30 + "-1", "1-1-1", "1-٣"])
async def test_what_is_no_item_is_not_found(sqlite_rig: Rig, item: str) -> None:
    for end in ("", "/timeline", "/why"):
        problem(await sqlite_rig.ada.get(f"/api/items/{item}{end}"), 404)


async def test_results_are_streamed_from_any_position_on(rig: Rig) -> None:
    job = await rig.submit("fail_as_told", [{"n": n, "code": None if n % 3 else "GW_4XX"} for n in range(1_500)])
    await rig.work()
    path = f"/api/jobs/{job}/results"
    assert [line["position"] for line in (await rig.ada.get(path)).lines] == list(range(1_500))
    late = (await rig.ada.get(path, params={"after": "1490", "state": "failed"})).lines
    assert [line["position"] for line in late] == [1491, 1494, 1497]
    assert late[0]["error_code"] == "GW_4XX"
    assert late[0]["result"] is None
    problem(await rig.bob.get(path), 404)
