"""A bare FastAPI route that returns the JSON of an item or a batch as a dictionary, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bench.load import requests_per_second
from bench.servers import free_port

MOMENT = 1_790_000_000_000
ITEM: dict[str, Any] = {
    **{"id": "1-3", "job": "1", "position": 3, "handler": "noop", "state": "queued", "attempts": 0},
    **{"repeats": 0, "progress": 0, "error_code": None, "message": None, "created_at": MOMENT, "queued_at": MOMENT},
    **{"last_attempt_at": None, "finished_at": None, "timed_out_at": None, "deadline_at": MOMENT, "due_at": None},
    "provider_task_id": None,
}
BATCH: dict[str, Any] = {
    **{"id": "batch_0123456789abcdef01234567", "object": "batch", "endpoint": "/v1/chat/completions", "errors": None},
    **{"input_file_id": "file-0123456789abcdef01234567", "completion_window": "24h", "status": "in_progress"},
    **{"output_file_id": None, "error_file_id": None, "created_at": MOMENT // 1000, "expires_at": MOMENT // 1000},
    **{f"{moment}_at": None for moment in ("in_progress", "finalizing", "completed", "failed", "expired")},
    **{"cancelling_at": None, "cancelled_at": None, "metadata": None, "model": "gpt-4o-mini"},
    "request_counts": {"total": 10, "completed": 0, "failed": 0},
}


def prepare(url: str) -> None:
    """Needs no database."""


def get_item(n: int) -> dict[str, float]:
    with listening() as url:
        return {"requests_per_second": requests_per_second(url, "/api/items/1-3", n)}


def get_batch(n: int) -> dict[str, float]:
    with listening() as url:
        return {"requests_per_second": requests_per_second(url, "/v1/batches/batch_1", n)}


@contextmanager
def listening() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.bare_service", str(port)])
    try:
        while process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/items/1-3"):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def main(port: int) -> None:
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/api/items/{item_id}")
    async def item(item_id: str) -> dict[str, Any]:
        return ITEM

    @app.get("/v1/batches/{batch_id}")
    async def batch(batch_id: str) -> dict[str, Any]:
        return BATCH

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, loop="uvloop")


if __name__ == "__main__":
    main(int(sys.argv[1]))
