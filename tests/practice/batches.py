"""Batches as a visitor makes, awaits and reads them."""

import json
from typing import Any

from tests.practice.visitor import CHAT, Answer, Visitor, eventually

ENDS = ("completed", "failed", "expired", "cancelled")


async def create(visitor: Visitor, file_id: str, **more: Any) -> Answer:
    body = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **more}
    return await visitor.post("/v1/batches", body)


async def begin(visitor: Visitor, lines: bytes, **more: Any) -> Any:
    file = (await visitor.upload(lines)).json
    return (await create(visitor, file["id"], **more)).json


async def ended(visitor: Visitor, batch: Any) -> Any:
    async def is_over() -> bool:
        batch.update((await visitor.get(f"/v1/batches/{batch['id']}")).json)
        return batch["status"] in ENDS

    await eventually(is_over)
    return batch


async def read(visitor: Visitor, file_id: str | None) -> dict[str, Any]:
    """The lines of a file by their custom_id."""
    if file_id is None:
        return {}
    content = await visitor.get(f"/v1/files/{file_id}/content")
    rows = [json.loads(line) for line in content.body.splitlines()]
    return {row["custom_id"]: row for row in rows}


async def run(visitor: Visitor, lines: bytes, **more: Any) -> Any:
    return await ended(visitor, await begin(visitor, lines, **more))
