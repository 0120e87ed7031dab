"""Practice providers for commands that run in this process, and files of requests for them."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

from backstay.llm.providers import provider_named, provider_names
from backstay.practice import Faults, Practice
from tests.cli.shell import Shell

CHAT = "/v1/chat/completions"


@contextmanager
def served(key: str | None = None, **faults: Any) -> Iterator[tuple[Practice, str]]:
    practice = Practice(Faults(key=key, **faults))
    with in_thread(practice.serving()) as base_url:
        yield practice, base_url


@contextmanager
def in_thread(serving: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """A server in a thread of its own, for commands that run in this process; gives its base URL."""
    ready, stop = threading.Event(), asyncio.Event()
    place: list[Any] = []

    async def serve() -> None:
        async with serving as base_url:
            place.extend((base_url, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield place[0]
    finally:
        place[1].call_soon_threadsafe(stop.set)
        thread.join()


def file_of(shell: Shell, *models: str | None, url: str = CHAT) -> Path:
    bodies = [{"messages": [{"role": "user", "content": f"n{n}"}], "max_tokens": 9} for n in range(len(models))]
    lines = [
        {"custom_id": f"r{n}", "method": "POST", "url": url, "body": body | ({"model": model} if model else {})}
        for n, (body, model) in enumerate(zip(bodies, models, strict=True))
    ]
    return shell.file("".join(json.dumps(line) + "\n" for line in lines), "requests.jsonl")


def results(shell: Shell) -> dict[str, Any]:
    lines = map(json.loads, (shell.folder / "requests.results.jsonl").read_text().splitlines())
    return {line["custom_id"]: line["response"]["body"] for line in lines}


def variables() -> list[str]:
    """Of the keys and addresses of all providers."""
    accesses = [provider_named(name).access for name in provider_names()]
    more = ["GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"]  # two providers look at more than their own two
    return [*more, *(name for access in accesses for name in (access.key_env, access.base_url_env))]
