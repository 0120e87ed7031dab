"""What batches tell: each end once, signed so that every major of OpenAI's client reads it, and nothing of long ago."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import python_path
from tests.server.openai.openai_rig import Desk, opened, requests
from tests.server.openai.test_runs import run_of
from tests.server.receiver import Receiver

UNWRAP = Path(__file__).with_name("unwrap.py")
SECRET_OF_ANOTHER = "whsec_" + "A" * 43 + "="


@pytest.fixture
async def telling(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Desk]:
    """A desk that may tell the receiver, which is on this machine."""
    settings = {"inside_hosts": receiver.place}
    async with opened(database_url, tmp_path / "data", settings=settings) as made:
        yield made


async def _read(major: int, body: str, headers: dict[str, str], secrets: list[str]) -> Any:
    path = await asyncio.to_thread(python_path, "openai", major)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(UNWRAP),
        env={**os.environ, "PYTHONPATH": path},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    given = json.dumps({"body": body, "headers": headers, "secrets": secrets})
    async with asyncio.timeout(60):
        said, wrong = await process.communicate(given.encode())
    assert process.returncode == 0, wrong.decode()
    return json.loads(said)


@pytest.mark.slow
async def test_every_major_reads_our_events_with_the_new_secret_and_the_old(telling: Desk, receiver: Receiver) -> None:
    client = telling.client()
    made = await client.webhooks.create(event_types=["batch.completed"], name="mine", url=receiver.url)
    rotated = await client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    done = await telling.done(requests(1))
    visit = await receiver.wait(1)
    assert len(visit.headers["webhook-signature"].split()) == 2
    secrets = [made.signing_secret, rotated.signing_secret, SECRET_OF_ANOTHER]
    for major in (1, 2, 3):
        said = await _read(major, visit.body, visit.headers, secrets)
        assert said["version"].startswith(f"{major}.")
        event = ["BatchCompletedWebhookEvent", "batch.completed", done.id]
        assert said["read"] == [event, event, ["not signed"]]


async def test_a_run_that_had_ended_is_adopted_without_a_word(
    telling: Desk, receiver: Receiver, database_url: str, tmp_path: Path
) -> None:
    await run_of(database_url, telling.base_url, requests(2), tmp_path, "ada")
    client = telling.client()
    await client.webhooks.create(event_types=["batch.completed"], name="mine", url=receiver.url)
    [old] = [batch async for batch in client.batches.list()]
    assert (await telling.until(old)).status == "completed"
    new = await telling.done(requests(1))
    told = json.loads((await receiver.wait(1)).body)
    assert told["data"] == {"id": new.id}
