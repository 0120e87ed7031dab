"""What OpenAI's client makes of our answers is, field by field, what the golden file says."""

import json
import re
from pathlib import Path
from typing import Any

from tests.server.openai.openai_rig import Desk, line

GOLDEN = Path(__file__).with_name("golden.json")
_ID = re.compile(r"\b(file-|batch_)[0-9a-f]{24}")


def masked(value: Any, key: str = "") -> Any:
    """Ids and moments differ from one time to the next; whether there is one must not."""
    if isinstance(value, dict):
        return {name: masked(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    if isinstance(value, str):
        return _ID.sub(r"\1…", value)
    return "a moment" if key.endswith("_at") and isinstance(value, int) else value


async def test_every_object_is_as_the_golden_file_says(desk: Desk) -> None:
    client = desk.client()
    content = "\n".join([line("good"), line("bad", messages="none")]).encode()
    given: Any = {"file": ("in.jsonl", content), "purpose": "batch"}
    file = await client.files.create(**given, expires_after={"anchor": "created_at", "seconds": 3600})
    order: Any = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    created = await client.batches.create(**order, metadata={"kind": "golden"})
    done = await desk.until(created)
    broken = await desk.done(f"{line('a')}\n{line('a')}".encode())
    seen = {
        "file": file,
        "batch created": created,
        "batch done": done,
        "batch failed": broken,
        "output file": await client.files.retrieve(done.output_file_id or ""),
        "page of batches": await client.batches.list(limit=1),
        "last page of batches": await client.batches.list(limit=1, after=broken.id),
        "empty page of files": await client.files.list(after=file.id, order="desc"),
        "model": await client.models.retrieve("practice"),
        "deleted file": await client.files.delete(file.id),
    }
    shown = {name: masked(one.model_dump(mode="json")) for name, one in seen.items()}
    assert shown == json.loads(GOLDEN.read_text(encoding="utf-8")), json.dumps(shown, indent=1)
