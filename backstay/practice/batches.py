"""Batches: what clients see of them, from creation to their end."""

import asyncio
from typing import Any

from aiohttp import web

from backstay.clock import Tasks
from backstay.practice.batch_run import BatchRun
from backstay.practice.bodies import read_object
from backstay.practice.endpoints import ENDPOINTS
from backstay.practice.metadata import check_metadata
from backstay.practice.pages import Paging, page
from backstay.practice.refusals import Refused, Reply, missing, not_found, reply_with
from backstay.practice.shop import Shop

WINDOW = "24h"
WINDOW_SECONDS = 86_400
LIST_MAX = 100
ENDED = ("failed", "completed", "expired")

TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


class Batches:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._working: set[asyncio.Task[None]] = set()
        self._runs: dict[str, BatchRun] = {}

    async def create(self, request: web.Request) -> Reply:
        asked = read_object(await request.read())
        for name in ("input_file_id", "endpoint", "completion_window"):
            if not isinstance(asked.get(name), str):
                raise missing(name)
        if asked["endpoint"] not in ENDPOINTS:
            said = f"Invalid value: '{asked['endpoint']}'. Supported values are: {', '.join(map(repr, ENDPOINTS))}."
            raise Refused(400, said, "invalid_value", "endpoint")
        if asked["completion_window"] != WINDOW:
            said = f"Invalid value: '{asked['completion_window']}'. Value must be '{WINDOW}'."
            raise Refused(400, said, "invalid_value", "completion_window")
        check_metadata(asked.get("metadata"))
        self._check_file(asked["input_file_id"])
        run = BatchRun(self._new(asked), self._shop)
        self._runs[run.id] = run
        task = Tasks().start(run.run())
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return reply_with(run.dump())

    async def show(self, request: web.Request) -> Reply:
        return reply_with(self._found(request).dump())

    async def list_(self, request: web.Request) -> Reply:
        """The newest first, always."""
        paging = Paging.read(request.query, LIST_MAX, "desc")
        return page(list(self._runs.values()), paging._replace(order="desc"))

    async def cancel(self, request: web.Request) -> Reply:
        run = self._found(request)
        if run.status in ENDED:
            raise Refused(409, f"Cannot cancel a batch with status '{run.status}'.")
        run.cancel()
        return reply_with(run.dump())

    async def close(self) -> None:
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    def _check_file(self, name: str) -> None:
        """A file that is not there is told of by the batch itself."""
        file = self._shop.files.find(name)
        if file is not None and file.status != "processed":
            said = (
                f"The input file '{name}' is in '{file.status}' state. Only files with status 'Processed' are accepted."
            )
            raise Refused(400, said, param="input_file_id")

    def _found(self, request: web.Request) -> BatchRun:
        name = request.match_info["id"]
        if (run := self._runs.get(name)) is None:
            raise not_found("batch", name)
        return run

    def _new(self, asked: dict[str, Any]) -> dict[str, Any]:
        now = self._shop.now()
        return {
            "id": f"batch_{self._shop.gate.mark()}",
            "object": "batch",
            "endpoint": asked["endpoint"],
            "model": None,
            "errors": None,
            "input_file_id": asked["input_file_id"],
            "completion_window": WINDOW,
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "expires_at": now + WINDOW_SECONDS,
            **{f"{name}_at": None for name in TIMES},
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "usage": None,
            "metadata": asked.get("metadata"),
        }
