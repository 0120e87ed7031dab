"""OpenAI's client manages the webhooks of this service as it manages OpenAI's."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.server.receiver import Receiver
from tests.server.rig import Rig, rigged


@pytest.fixture
async def rig(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    async with rigged(database_url, tmp_path / "data", inside_hosts=receiver.place) as made:
        yield made


def client_of(rig: Rig, owner: str = "ada") -> AsyncOpenAI:
    key = rig.visitor(owner).key or ""
    return AsyncOpenAI(api_key=key, base_url=f"{rig.url}/v1", max_retries=0, _strict_response_validation=True)


async def test_an_endpoint_is_made_shown_changed_rotated_tested_and_deleted(rig, receiver):
    client = client_of(rig)
    made = await client.webhooks.create(event_types=["batch.completed"], name="mine", url=receiver.url)
    assert made.signing_secret.startswith("whsec_")
    assert (await client.webhooks.retrieve(made.id)).name == "mine"
    changed = await client.webhooks.update(made.id, event_types=["batch.failed"], name="yours")
    assert (changed.event_types, changed.name, changed.url) == (["batch.failed"], "yours", receiver.url)
    rotated = await client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    assert rotated.signing_secret != made.signing_secret
    tested = await client.webhooks.test(made.id, event_type="batch.completed")
    assert (tested.status_code, tested.webhook_endpoint_id) == (200, made.id)
    visit = receiver.visits[-1]
    event = client.webhooks.unwrap(visit.body, visit.headers, secret=rotated.signing_secret)
    assert event.type == "batch.completed"
    assert (await client.webhooks.delete(made.id)).deleted
    with pytest.raises(NotFoundError):
        await client.webhooks.retrieve(made.id)


async def test_endpoints_are_paged_and_are_their_owner_s(rig, receiver):
    client = client_of(rig)
    ids = [
        (await client.webhooks.create(event_types=["batch.completed"], name=str(n), url=receiver.url)).id
        for n in range(5)
    ]
    assert [one.id async for one in client.webhooks.list(limit=2)] == sorted(ids)
    assert [one.id async for one in client_of(rig, "bob").webhooks.list()] == []
    with pytest.raises(NotFoundError):
        await client_of(rig, "bob").webhooks.retrieve(ids[0])
    assert "batch.expired" in (await client.webhooks.event_types.list()).data


async def test_what_cannot_be_is_refused_as_openai_refuses(rig, receiver):
    client = client_of(rig)
    with pytest.raises(BadRequestError) as inside:
        await client.webhooks.create(event_types=["batch.completed"], name="x", url="http://169.254.169.254/")
    assert inside.value.param == "url"
    with pytest.raises(BadRequestError) as unknown:
        await client.webhooks.create(event_types=["video.completed"], name="x", url=receiver.url)
    assert unknown.value.param == "event_types"
    bad: Any = ["user.a b"]
    with pytest.raises(BadRequestError):
        await client.webhooks.create(event_types=bad, name="x", url=receiver.url)
    own: Any = ["user.orders.created"]  # the client's types do not know users' own messages
    made = await client.webhooks.create(event_types=own, name="x", url=receiver.url)
    assert made.event_types == ["user.orders.created"]


async def test_an_unknown_id_is_repeated_on_one_line_whatever_it_is_made_of(rig):
    with pytest.raises(NotFoundError) as missing:
        await client_of(rig).webhooks.rotate_secret("s,\n\x07.~")
    assert "no webhook s,⟨U+000A⟩⟨U+0007⟩.~" in str(missing.value.body)
