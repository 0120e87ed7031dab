"""A file of requests at a provider that fails, with the run killed half-way: each result is there once in the end, and
nothing was paid for twice.

The run has its completions stored at the provider (--reconcilable), so what was under way at the kill, and every answer
that was lost, is looked up before it is ever sent again. The provider is the practice one, so nothing costs anything;
its bill is held against the results at the end. All files are in build/rehearsal, which is emptied each time.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REQUESTS = Path(os.path.relpath(Path(__file__).with_name("requests.jsonl")))
FOLDER = Path("build", "rehearsal")
RESULTS = FOLDER / "results.jsonl"
DATABASE = f"sqlite:///{FOLDER / 'runs.db'}"
KILL_AT = 100  # results
WIDTH = 90
DOLLARS = "0.05"
FAULTS = ("--seed", "1", "--latency", "0.25", "--fail", "0.05", "--throttle", "0.05", "--cut", "0.02")
TERMS = ("--concurrency", "25", "--price", "0.15/0.60", "--budget", DOLLARS, "--reconcilable", "--timeout", "3")
# A lost request is looked up once it must have landed. The default is for a provider far away; this one is near.
WAITS = {
    "BACKSTAY_SEND_GUARD_SECONDS": "2",
    "BACKSTAY_VISIBILITY_LAG_SECONDS": "1",
    "BACKSTAY_RECONCILE_MARGIN_SECONDS": "1",
}


def say(text: str) -> None:
    print(text, flush=True)


def show(command: Sequence[str]) -> None:
    """A command as one would type it, over several lines."""
    lines = textwrap.wrap(shlex.join(("backstay", *command)), WIDTH, break_on_hyphens=False)
    say("\n$ " + " \\\n    ".join(lines) + "\n")


def start(command: Sequence[str], **pipes: Any) -> "subprocess.Popen[str]":
    """With no key and no settings of yours: nothing of them is needed here."""
    yours = ("BACKSTAY_", "OPENAI_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(yours)} | WAITS
    return subprocess.Popen([sys.executable, "-m", "backstay", *command], env=environment, text=True, **pipes)


@contextlib.contextmanager
def practice() -> Iterator[str]:
    """The provider on a free port; it ends with the block."""
    command = ("practice", "--port", "0", *FAULTS)
    show(command)
    with start((*command, "--json"), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["base_url"]
        finally:
            process.terminate()


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def results() -> list[str]:
    """The custom_ids that have their result."""
    return [json.loads(line)["custom_id"] for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def whole_lines() -> int:
    return RESULTS.read_bytes().count(b"\n") if RESULTS.exists() else 0


def kill_half_way(command: Sequence[str]) -> None:
    process = start(command)
    while whole_lines() < KILL_AT and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    say(f"\nkilled with -9 at {whole_lines()} results, in the middle of its calls. The same command again")
    say("asks the provider what became of those, and goes on:\n")


def job() -> Any:
    with start(("job", "show", "1", "--json", "--db", DATABASE), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        return json.load(process.stdout)


def compare(bill: Any) -> int:
    """What was asked for, what came, what the provider charged, and what the run says of itself."""
    asked = {json.loads(line)["custom_id"] for line in REQUESTS.read_text().splitlines()}
    came, told = results(), job()
    known = told["spent_micros"] + told["unknown_micros"]
    say("\nthe results against the provider's own bill:\n")
    say(f"  requests    {len(asked)}")
    say(f"  results     {len(came)}, {len(came) - len(set(came))} of them twice")
    say(f"  charged     {bill['charged']} calls, {dollars(bill['cost_micros'])} of a budget of ${DOLLARS}")
    say(f"  paid again  {bill['paid_again']}")
    say(f"  spent       {dollars(told['spent_micros'])} by the run's count, and at most {dollars(known)}")
    right = set(came) == asked and len(came) == len(asked)
    return 0 if right and bill["paid_again"] == 0 and bill["cost_micros"] <= known else 1


def dollars(micros: int) -> str:
    return f"${micros / 1e6:.4f}"


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    say("A provider that fails, throttles and cuts connections:")
    with practice() as base_url:
        command = ("run", str(REQUESTS), "--out", str(RESULTS), "--db", DATABASE, "--base-url", base_url, *TERMS)
        say("A file of 300 requests:")
        show(command)
        kill_half_way(command)
        code = start(command).wait()
        outcome = compare(read(f"{base_url.removesuffix('/v1')}/bill?summary=1"))
    say(f"\nlook at the results: {RESULTS}")
    say(f"and at the job:      .venv/bin/backstay job show 1 --db {DATABASE}")
    return code or outcome


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
