"""Why a batch does not move can be read."""

from pathlib import Path

from backstay.practice import Faults
from tests.server.openai.desk import opened, requests


async def test_a_request_waits_for_its_provider_that_is_held_and_not_for_a_worker(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    async with opened(sqlite_file_url, tmp_path / "data", Faults(key="another")) as desk:
        batch = await desk.until(await desk.create(requests(1)), "in_progress")
        ada = desk.rig.ada
        [worker] = (await ada.get("/api/workers")).json["data"]
        assert any(name.startswith("call@") for name in worker["handlers"]), "from its start on"
        job = (await ada.get("/api/jobs")).json["data"][0]
        why = (await ada.get(f"/api/items/{job['id']}-0/why")).json
        assert "no_worker" not in [reason["code"] for reason in why["reasons"]]
        await desk.client().batches.cancel(batch.id)
