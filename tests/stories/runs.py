"""What the stories of runs play on: a practice provider and `backstay run`, each a real process."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.house.sources import ROOT

COMMAND = (sys.executable, "-m", "backstay")
PRICE = "0.15/0.60"
# After a crash a lost call is asked about when it must have landed; a story has no minutes to spare for that.
SHORT_WAITS = {
    "BACKSTAY_SEND_GUARD_SECONDS": "2",
    "BACKSTAY_VISIBILITY_LAG_SECONDS": "0.5",
    "BACKSTAY_RECONCILE_MARGIN_SECONDS": "0.5",
    "BACKSTAY_POLL_INTERVAL_SECONDS": "0.5",
    "BACKSTAY_CIRCUIT_COOLDOWN_MS": "1000",
}


class Provider:
    """A practice provider: what it was asked and what it charged is its own count."""

    def __init__(self, base_url: str, root: str | None = None) -> None:
        self.base_url = base_url
        self._root = base_url.removesuffix("/v1") if root is None else root

    def read(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._root}{path}", timeout=60) as answer:
            return json.load(answer)

    def bill(self) -> Any:
        return self.read("/bill")

    def counts(self) -> Any:
        return self.read("/counts")

    def change(self, **faults: Any) -> None:
        request = urllib.request.Request(
            f"{self._root}/faults", json.dumps(faults).encode(), {"content-type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).close()


@contextlib.contextmanager
def practice(*options: str) -> Iterator[Provider]:
    with subprocess.Popen(
        [*COMMAND, "practice", "--port", "0", "--json", *options], stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            yield Provider(json.loads(process.stdout.readline())["base_url"])
        finally:
            process.kill()


class Rehearsal:
    """One run in a folder of its own, begun as often as it takes."""

    def __init__(self, folder: Path, provider: Provider, database_url: str, *options: str) -> None:
        self.folder = folder
        self.provider = provider
        self.options = ("--base-url", provider.base_url, "--db", database_url, "--price", PRICE, *options)
        self.kills = 0

    def requests(self, count: int, url: str = "/v1/chat/completions", **body: Any) -> Path:
        file = self.folder / "requests.jsonl"
        with file.open("w", encoding="utf-8") as lines:
            for n in range(count):
                lines.write(json.dumps(_request(n, url, body)) + "\n")
        return file

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        log = (self.folder / "run.log").open("ab")
        out = str(self.folder / "results.jsonl")
        return subprocess.Popen(
            [*COMMAND, "run", str(self.folder / "requests.jsonl"), "--out", out, *self.options],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, **SHORT_WAITS, **environment},
        )

    def finish(self, seconds: float = 1_200) -> int:
        """Runs to the end; returns the exit code."""
        process = self.start()
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"it did not end within {seconds} s:\n{self.log}") from None

    def rage(self, kills: int, gap_seconds: tuple[float, float], seed: int) -> None:
        """Starts it and kills it -9, again and again, as long as it has not ended by itself."""
        chance = random.Random(seed)
        for _ in range(kills):
            process = self.start()
            try:
                process.wait(chance.uniform(*gap_seconds))
                return
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                self.kills += 1

    @property
    def log(self) -> str:
        return (self.folder / "run.log").read_text(errors="replace")

    def lines(self, name: str = "results.jsonl") -> list[dict[str, Any]]:
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def failures(self) -> list[dict[str, Any]]:
        return self.lines("results.errors.jsonl")

    def check_complete(self, count: int) -> None:
        """Each custom_id stands in exactly one file, once, and its answer belongs to it."""
        results, failures = self.lines(), self.failures()
        ids = [line["custom_id"] for line in results + failures]
        assert len(ids) == count, f"{len(ids)} lines for {count} requests\n{self.log}"
        assert len(set(ids)) == count, "a custom_id stands there twice"
        for line in results:
            assert f"number {line['custom_id'].removeprefix('r')} " in answer_of(line), line


def answer_of(line: Mapping[str, Any]) -> str:
    body = line["response"]["body"]
    if body.get("type") == "message":
        return str(body["content"][0]["text"])
    if "candidates" in body:
        return str(body["candidates"][0]["content"]["parts"][0]["text"])
    if "choices" in body:
        return str(body["choices"][0]["message"]["content"])
    said = body["output"]["message"] if isinstance(body["output"], dict) else body["output"][0]
    return str(said["content"][0]["text"])


def _request(n: int, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    words = f"question number {n} of many"
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": words}], "max_tokens": 40}
    if url == "/v1/responses":
        asked = {"input": words, "max_output_tokens": 40}
    asked = {"model": "gpt-4o-mini", **asked}
    if url.endswith(":generateContent"):  # the model is in the path
        asked = {"contents": [{"parts": [{"text": words}]}], "generationConfig": {"maxOutputTokens": 40}}
    return {"custom_id": f"r{n}", "method": "POST", "url": url, "body": {**asked, **body}}


def wait_until(fact: Any, what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.05)


def paid_again(bill: Mapping[str, Any]) -> int:
    """How many charges there were beyond the first of each request, by the provider's own count."""
    return int(bill["paid_again"])


Options = Sequence[str]
