"""Money whose outcome is unknown, over HTTP: booked or released by its owner, once."""

from typing import Any

import pytest

from backstay.core.money import Period
from backstay.store.keys import Role
from tests.server.rig import Rig
from tests.store.rare_ends import spent_and_lost


async def test_money_is_booked_and_released_in_parts(rig: Rig) -> None:
    job = await spent_and_lost(rig.service.store, spent=100, lost=300)
    path = f"/api/jobs/{job}/settle-unknown"
    booked = await rig.ada.post(path, json={"act": "book", "micros": 50, "expected_micros": 300})
    assert booked.status == 200, booked
    assert (booked.json["spent_micros"], booked.json["unknown_micros"]) == (150, 250)
    assert booked.headers["etag"]
    released = (await rig.ada.post(path, json={"act": "release", "expected_micros": 250})).json
    assert (released["spent_micros"], released["unknown_micros"]) == (150, 0)
    events = await rig.service.store.events.oldest(f"job:{job}")
    key = rig.keys["ada", Role.ADMIN].split("_")[1]
    assert [(event.act, event.detail) for event in events] == [
        ("unknown_booked", f"$0.000050 by key {key}"),
        ("unknown_released", f"$0.000250 by key {key}"),
    ]


async def test_the_same_twice_is_done_once(rig: Rig) -> None:
    job = await spent_and_lost(rig.service.store, spent=0, lost=300)
    path, body = f"/api/jobs/{job}/settle-unknown", {"act": "book", "micros": 100, "expected_micros": 300}
    assert (await rig.ada.post(path, json=body)).status == 200
    again = await rig.ada.post(path, json=body)
    assert (again.status, again.headers["x-should-retry"]) == (409, "false")
    assert "has changed: it is now $" in again.json["detail"]
    keyed = [
        await rig.ada.post(path, json={**body, "expected_micros": 200}, headers={"idempotency-key": "k"}) for _ in "ab"
    ]
    assert [(one.status, one.json["unknown_micros"]) for one in keyed] == [(200, 100), (200, 100)]
    assert (await rig.ada.get(f"/api/jobs/{job}")).json["spent_micros"] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"act": "book"}, 422),
        ({"act": "keep", "expected_micros": 300}, 422),
        ({"expected_micros": 300}, 422),
        ({"act": "book", "expected_micros": 300, "micros": 0}, 422),
        ({"act": "book", "expected_micros": 300, "micros": -1}, 422),
        ({"act": "book", "expected_micros": 300, "micros": 10**30}, 422),
        ({"act": "book", "expected_micros": 10**30}, 422),
        ({"act": "book", "expected_micros": 300, "micros": 301}, 400),
        ({"act": "book", "expected_micros": 299}, 409),
        ({"act": "book", "expected_micros": 300, "colour": "red"}, 422),
    ],
)
async def test_what_makes_no_sense_changes_nothing(sqlite_rig: Rig, body: dict[str, Any], status: int) -> None:
    job = await spent_and_lost(sqlite_rig.service.store, spent=0, lost=300)
    reply = await sqlite_rig.ada.post(f"/api/jobs/{job}/settle-unknown", json=body)
    assert reply.status == status, reply
    shown = (await sqlite_rig.ada.get(f"/api/jobs/{job}")).json
    assert (shown["spent_micros"], shown["unknown_micros"]) == (0, 300)


async def test_another_owners_job_does_not_exist_and_a_reader_may_not(rig: Rig) -> None:
    job = await spent_and_lost(rig.service.store, spent=0, lost=300)
    path, body = f"/api/jobs/{job}/settle-unknown", {"act": "release", "expected_micros": 300}
    assert (await rig.bob.post(path, json=body)).status == 404
    assert (await rig.visitor("ada", Role.READ).post(path, json=body)).status == 403
    assert (await rig.visitor("ada", Role.WRITE).post(path, json=body)).status == 200


@pytest.mark.parametrize(("role", "left"), [(Role.WRITE, 700), (Role.ADMIN, 1_000)])
async def test_only_an_operator_gives_money_back_to_a_budget_that_others_share(
    sqlite_rig: Rig, role: Role, left: int
) -> None:
    budgets = sqlite_rig.service.store.budgets
    await budgets.set("", "", Period.MONTH, 1_000)
    job = await spent_and_lost(sqlite_rig.service.store, spent=0, lost=300)
    assert [one.left_micros for one in await budgets.all()] == [700]
    visitor = sqlite_rig.holder(sqlite_rig.keys["ada", role])
    released = await visitor.post(f"/api/jobs/{job}/settle-unknown", json={"act": "release", "expected_micros": 300})
    assert released.json["unknown_micros"] == 0
    assert [one.left_micros for one in await budgets.all()] == [left]
