"""The service over HTTP: what a GET costs, how fast a batch is taken in, and what watchers cost a run."""

from __future__ import annotations

import asyncio
import compileall
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.load import requests_per_second
from bench.probes import NotMeasured
from bench.prompts import write_requests
from bench.served import ROOT, Served, served

WATCHERS = 1_000
WATCH_SECONDS_MAX = 600.0
NOWHERE = "http://127.0.0.1:9/v1"  # nobody works on the batches

_at = {"url": ""}


def prepare(url: str) -> None:
    _at["url"] = url
    compileall.compile_dir(ROOT / "backstay", quiet=1)


@contextmanager
def service(*arguments: str) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="serve-") as folder, served(_at["url"], Path(folder), arguments) as found:
        yield found


def get_item(n: int) -> dict[str, float]:
    with service("--no-worker", "--app", "bench.noop:app") as found:
        job = submitted(found, "noop", 10)
        return {"requests_per_second": requests_per_second(found.url, f"/api/items/{job}-3", n, found.key)}


def get_batch(n: int) -> dict[str, float]:
    with service("--no-worker", "--base-url", NOWHERE) as found:
        batch = created(found, uploaded(found, 10))
        return {"requests_per_second": requests_per_second(found.url, f"/v1/batches/{batch['id']}", n, found.key)}


def submitted(found: Served, handler: str, n: int) -> str:
    body = b"".join(b'{"n": %d}\n' % number for number in range(n))
    reply = found.ask("POST", f"/api/jobs?handler={handler}", body, "application/x-ndjson")
    return str(reply["id"])


def uploaded(found: Served, n: int) -> str:
    """A file of requests, sent as OpenAI's client does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.jsonl"
        write_requests(path, n)
        lines = path.read_bytes()
    head = '--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\n'
    head += 'Content-Disposition: form-data; name="file"; filename="r.jsonl"\r\n'
    body = head.encode() + b"Content-Type: application/octet-stream\r\n\r\n" + lines + b"\r\n--b--\r\n"
    return str(found.ask("POST", "/v1/files", body, "multipart/form-data; boundary=b")["id"])


def created(found: Served, file: str) -> dict[str, Any]:
    given = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch: dict[str, Any] = found.ask("POST", "/v1/batches", json.dumps(given).encode())
    return batch


def take_in(n: int) -> dict[str, float]:
    """From the first byte of the upload until the batch is in progress. Nobody works on it meanwhile."""
    with service("--no-worker", "--base-url", NOWHERE) as found:
        created(found, uploaded(found, 10))  # so that every module is there
        started = time.perf_counter()
        file = uploaded(found, n)
        sent = time.perf_counter()
        batch = created(found, file)
        while batch["status"] == "validating":
            time.sleep(0.005)
            batch = found.ask("GET", f"/v1/batches/{batch['id']}")
        ended = time.perf_counter()
    if batch["status"] != "in_progress" or batch["request_counts"]["total"] != n:
        raise NotMeasured(f"the batch is {batch['status']} with {batch['request_counts']}")
    return {"lines_per_second": n / (ended - started), "upload_seconds": sent - started}


def unwatched(n: int) -> dict[str, float]:
    return run_beside(n, 0)


def watched(n: int) -> dict[str, float]:
    return run_beside(n, WATCHERS)


def run_beside(n: int, watchers: int) -> dict[str, float]:
    """A job of no-ops in the serving process, watched from outside."""
    with service("--app", "bench.noop:app") as found:
        spent = asyncio.run(_watch(found, n, watchers))
        return {"items_per_second": n / spent, "peak_mb": found.peak_mb()}


async def _watch(found: Served, n: int, watchers: int) -> float:
    """Watchers come before the work begins: the job is paused until all are there."""
    job = await asyncio.to_thread(submitted, found, "noop", n)
    await asyncio.to_thread(found.ask, "POST", f"/api/jobs/{job}/pause", b"")
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"authorization": f"Bearer {found.key}"}
    async with aiohttp.ClientSession(found.url, connector=connector, headers=headers) as session:
        ready = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(_watcher(session, job, ready)) for _ in range(watchers)]
        for _ in tasks:
            await ready.acquire()
        before = (await asyncio.to_thread(found.ask, "GET", f"/api/jobs/{job}"))["done"]
        started = time.perf_counter()
        await asyncio.to_thread(found.ask, "POST", f"/api/jobs/{job}/resume", b"")
        view = await asyncio.to_thread(_ended, found, job, n)
        spent = time.perf_counter() - started
        ends = await asyncio.gather(*tasks)
    if before > n / 10 or view["succeeded"] != n or any(end != "completed" for end in ends):
        raise NotMeasured(f"{before} were done before, {view['succeeded']} succeeded, and {set(ends)} was seen")
    return spent


def _ended(found: Served, job: str, n: int) -> dict[str, Any]:
    view: dict[str, Any] = found.ask("GET", f"/api/jobs/{job}")
    while view["done"] < n:
        time.sleep(0.1)
        view = found.ask("GET", f"/api/jobs/{job}")
    return view


async def _watcher(session: aiohttp.ClientSession, job: str, ready: asyncio.Semaphore) -> str:
    state = ""
    async with asyncio.timeout(WATCH_SECONDS_MAX), session.get(f"/api/jobs/{job}/events", timeout=None) as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                if not state:
                    ready.release()
                state = json.loads(line[6:])["state"]
    return state
