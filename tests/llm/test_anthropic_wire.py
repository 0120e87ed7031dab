"""What we send to Anthropic, compared field by field with what its own client sends for the same request."""

from typing import Any

import anthropic
import pytest

from backstay.core.models import Submitted
from backstay.llm.endpoint import Lane
from tests.databases import Site
from tests.llm.lane_rig import KEY, Arrival, LaneRig, Recorder, lane

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "max_tokens": 100,
    "system": "be brief",
    "messages": [{"role": "user", "content": "héllo ✓"}],
    "stop_sequences": ["END"],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}],
    "tool_choice": {"type": "auto"},
    "metadata": {"user_id": "u-1"},
    "output_config": {"effort": "low"},
    "thinking": {"type": "disabled"},
    "service_tier": "auto",
}


def sdk(rig: LaneRig) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=rig.base_url.removesuffix("/v1"), api_key=KEY, max_retries=0)


def check_same(ours: Arrival, theirs: Arrival) -> None:
    """The key and the version are sent as by earlier versions of the client, which every gateway knows."""
    assert (ours.method, ours.path, ours.value) == (theirs.method, theirs.path, theirs.value)
    assert ours.headers["x-api-key"] == KEY
    assert theirs.headers["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in ours.headers
    assert ours.headers["anthropic-version"] == "2023-06-01"
    assert ours.headers["accept"] in ("application/json", theirs.headers["accept"])
    if ours.value is not None:
        assert ours.headers["content-type"] == theirs.headers["content-type"] == "application/json"
    own = {"x-api-key", "anthropic-version", "accept-encoding", "user-agent", "host", "content-length", "accept"}
    assert set(ours.headers) <= own | {"content-type", "connection"}


async def test_a_call_is_the_message_that_the_client_sends(sqlite_site: Site) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.CALL, recorder, api="anthropic") as rig, sdk(rig) as client:
        job = await rig.request([BODY], "/v1/messages")
        assert (await rig.done(job)).succeeded == 1
        [ours] = recorder.take()
        await client.messages.create(**BODY)
        [theirs] = recorder.take()
        check_same(ours, theirs)


async def test_a_batch_is_created_shown_read_and_cancelled_as_by_the_client(sqlite_site: Site) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.BATCH, recorder, api="anthropic") as rig, sdk(rig) as client:
        job = await rig.request([BODY, {**BODY, "max_tokens": 7}], "/v1/messages")
        assert (await rig.done(job)).succeeded == 2
        create, *shows, results = recorder.take()
        batch = await client.messages.batches.create(requests=create.value["requests"])
        [theirs] = recorder.take()
        check_same(create, theirs)
        assert [set(each) for each in create.value["requests"]] == [{"custom_id", "params"}] * 2
        assert [each["params"] for each in create.value["requests"]] == [BODY, {**BODY, "max_tokens": 7}]

        async def ended() -> bool:
            return (await client.messages.batches.retrieve(batch.id)).processing_status == "ended"

        await rig.until(ended)
        recorder.take()
        ours_id = shows[0].path.rpartition("/")[2]
        await client.messages.batches.retrieve(ours_id)
        check_same(shows[0], recorder.take()[0])
        assert results.path == f"/v1/messages/batches/{ours_id}/results"
        recorder.take()

        await rig.handler.cancel(f"{batch.id}/x")  # type: ignore[union-attr]
        [cancel] = recorder.take()
        with pytest.raises(anthropic.BadRequestError):  # it has ended
            await client.messages.batches.cancel(batch.id)
        check_same(cancel, recorder.take()[0])
        assert cancel.value is None


async def test_a_list_is_asked_for_as_by_the_client(sqlite_site: Site) -> None:
    recorder = Recorder()
    async with lane(sqlite_site, Lane.BATCH, recorder, api="anthropic") as rig, sdk(rig) as client:
        job = await rig.request([BODY], "/v1/messages")
        assert (await rig.done(job)).succeeded == 1
        rig.restart()
        task = (await rig.item(job)).provider_task_id
        assert task is not None
        recorder.take()
        assert isinstance(await rig.handler.ask(task.rpartition("/")[2], 1), Submitted)
        listed, results = recorder.take()
        _ = [each async for each in client.messages.batches.list(limit=100)]
        [theirs] = recorder.take()
        check_same(listed, theirs)
        assert listed.query == theirs.query == {"limit": "100"}
        assert results.path.endswith("/results")
