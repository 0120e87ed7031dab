"""Webhooks take turns: however much waits for one of them, the others are told as soon as ever."""

import pytest

from backstay.store.webhooks import LASTING_MS, Webhooks
from tests.databases import START_MS, Site

MANY = 1_000


@pytest.fixture
async def webhooks(site: Site) -> Webhooks:
    return (await site.open_store()).webhooks


async def fill(site: Site, webhook: str, n: int, due_at: int = START_MS) -> None:
    await site.rows(
        f"WITH RECURSIVE counted(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < {n}) "
        "INSERT INTO deliveries (webhook_id, owner, event_id, event_type, body, created_at, due_at) "
        f"SELECT '{webhook}', 'ada', 'evt_' || i, 'job.completed', '{{}}', {due_at}, {due_at} FROM counted"
    )


async def test_what_waits_for_a_busy_webhook_does_not_hide_the_others(site: Site, webhooks: Webhooks) -> None:
    await fill(site, "wh_busy", MANY)
    await fill(site, "wh_other", 1)
    [other], _ = await webhooks.claim(40, ["wh_busy"])
    assert other.webhook_id == "wh_other"


async def test_webhooks_take_turns_also_when_there_is_room_for_one_only(site: Site, webhooks: Webhooks) -> None:
    for name, n in (("wh_a", 100), ("wh_b", 2), ("wh_c", 1)):
        await fill(site, name, n)
    await fill(site, "wh_later", 5, START_MS + LASTING_MS)
    told, past = [], ""
    for _ in range(8):
        [due], past = await webhooks.claim(1, [], past)
        told.append(due.webhook_id)
    assert told == ["wh_a", "wh_b", "wh_c", "wh_a", "wh_b", "wh_a", "wh_a", "wh_a"]


async def test_a_round_goes_on_where_it_was_among_very_many(
    site: Site, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstay.store.webhooks.LOOKED_MAX", 3)
    names = [f"wh_{number}" for number in range(8)]
    for name in names:
        await fill(site, name, 1, START_MS if name == "wh_7" else START_MS + 1)
    past, found = "", []
    for _ in range(3):
        dues, past = await webhooks.claim(40, [], past)
        found += [due.webhook_id for due in dues]
    assert found == ["wh_7"]
