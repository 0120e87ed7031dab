"""Why a batch does not move can be read."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

from backstay.practice import Faults
from tests.server.openai.openai_rig import Desk, opened, requests

WAIT_SECONDS = 20


async def test_a_request_waits_for_its_provider_that_is_held_and_not_for_a_worker(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    async with opened(sqlite_file_url, tmp_path / "data", Faults(key="another")) as desk:
        batch = await desk.until(await desk.create(requests(1)), "in_progress")
        ada = desk.rig.ada
        [worker] = (await ada.get("/api/workers")).json["data"]
        assert any(name.startswith("call@") for name in worker["handlers"]), "from its start on"
        async with asyncio.timeout(WAIT_SECONDS):
            jobs: list[Any] = []
            while not jobs:
                await asyncio.sleep(0.01)
                jobs = (await ada.get("/api/jobs")).json["data"]
        job = jobs[0]
        why = (await ada.get(f"/api/items/{job['id']}-0/why")).json
        assert "no_worker" not in [reason["code"] for reason in why["reasons"]]
        await desk.client().batches.cancel(batch.id)


async def test_a_batch_says_that_the_key_of_the_service_behind_is_wrong(desk: Desk) -> None:
    desk.practice.change(key="another")
    batch = await desk.until(await desk.create(requests(1)), "in_progress")
    ada = desk.rig.ada
    why: dict[str, Any] = {"reasons": []}
    async with asyncio.timeout(WAIT_SECONDS):
        while not why["reasons"]:
            await asyncio.sleep(0.02)
            why = (await ada.get(f"/v1/batches/{batch.id}/why")).json
    assert (why["id"], why["status"]) == (batch.id, "in_progress")
    [reason] = why["reasons"]
    assert reason["code"] == "provider_held"
    assert "Incorrect API key provided" in reason["text"]
    [job] = (await ada.get("/api/jobs")).json["data"]
    of_job = (await ada.get(f"/api/jobs/{job['id']}/why")).json
    assert (of_job["id"], of_job["reasons"][0]["code"]) == (job["id"], "provider_held")
    assert (await desk.rig.bob.get(f"/api/jobs/{job['id']}/why")).status == 404
    desk.practice.change(key=None)
    completed = asyncio.ensure_future(desk.until(batch, "completed"))
    while not completed.done():  # an answer to the wrong key that comes late may hold the provider again
        await ada.post(f"/api/providers/{quote(provider_in(reason['text']), safe='')}/release")
        await asyncio.wait([completed], timeout=1.0)
    await completed
    assert (await ada.get(f"/v1/batches/{batch.id}/why")).json["reasons"] == []


def provider_in(text: str) -> str:
    return text.split()[1]
