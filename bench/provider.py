"""What stands for a paid provider, in a process of its own: a server as light as can be, or the practice provider."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from bench.servers import NotHere

ROOT = Path(__file__).resolve().parent.parent
SLOW_SECONDS = 0.5
BACKLOG = 4_096
END_SECONDS_MAX = 30

# One throttled answer in three names no time to wait, the others name one second.
FAULTS = {"throttle": 0.10, "fail": 0.02, "retry_after": 1.0, "seed": 1}

COMPLETION = {
    "id": "chatcmpl-9aXkQpZ0bench",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "gpt-4o-mini-2024-07-18",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "complaint", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 58, "completion_tokens": 2, "total_tokens": 60},
    "system_fingerprint": "fp_bench",
}
BODY = json.dumps(COMPLETION).encode()
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class LightProvider(asyncio.Protocol):
    """Answers every request alike; it reads no more of one than where it ends."""

    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while end := whole_request(self.waiting):
            self.waiting = self.waiting[end:]
            if self.latency:
                self.loop.call_later(self.latency, self.answer)
            else:
                self.transport.write(REPLY)

    def answer(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(REPLY)


def whole_request(data: bytes) -> int:
    """Where the first request ends, or 0 when it is not all there yet."""
    head = data.find(b"\r\n\r\n") + 4
    if head < 4:
        return 0
    fields = data[:head].lower()
    if (at := fields.find(b"\r\ncontent-length:")) >= 0:
        end = head + int(fields[at + 17 : fields.index(b"\r\n", at + 17)])
    elif b"\r\ntransfer-encoding: chunked\r\n" in fields:
        end = data.find(b"\r\n0\r\n\r\n", head) + 7
    else:
        end = head
    return end if head <= end <= len(data) else 0


@contextlib.asynccontextmanager
async def light(latency: float) -> AsyncIterator[str]:
    gc.disable()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: LightProvider(latency), "127.0.0.1", 0, backlog=BACKLOG)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    server.close()


def practice(faults: dict[str, Any]) -> contextlib.AbstractAsyncContextManager[str]:
    from backstay.clock import collect_rarely
    from backstay.practice import Faults, Practice

    collect_rarely()  # as `backstay practice` does
    return Practice(Faults(**faults)).serving()


KINDS = {
    "provider": lambda: light(0.0),
    "slow-provider": lambda: light(SLOW_SECONDS),
    "practice": lambda: practice({}),
    "faulty-practice": lambda: practice(FAULTS),
}


async def serve(kind: str) -> None:
    """Says where it is, and serves until its input ends: when its owner closes it or dies in whatever way."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with KINDS[kind]() as base_url:
        print(base_url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def provider(kind: str) -> Iterator[str]:
    """The base URL of a provider that lives as long as the block."""
    command = [sys.executable, "-m", "bench.provider", kind]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        base_url = process.stdout.readline().strip()
        if not base_url:
            raise NotHere(f"the {kind} ended with code {process.wait()}")
        yield base_url
    finally:
        try:
            process.communicate(timeout=END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1]))
