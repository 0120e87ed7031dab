"""`backstay practice` as a user starts and stops it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.request import Request, urlopen

import pytest

from backstay.cli.main import run
from tests.practice.visitor import CHAT, chat_body

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 30


@contextmanager
def started(*args: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "backstay", "practice", *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def base_url_of(process: "subprocess.Popen[str]") -> str:
    said: str = json.loads(_line(process.stdout))["base_url"]
    return said


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def post(url: str, body: Any) -> Any:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=SECONDS_MAX) as response:
        return json.load(response)


def fetch(url: str) -> Any:
    with urlopen(url, timeout=SECONDS_MAX) as response:
        return json.load(response)


def test_it_says_where_it_is_in_one_line_on_stderr() -> None:
    with started("--port", "0") as process:
        line = _line(process.stderr)
        process.terminate()
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert line.startswith("practice provider at http://127.0.0.1:")
    assert "/v1" in line
    assert (out, err) == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_well_even_while_calls_hang(number: signal.Signals) -> None:
    with started("--port", "0", "--json", "--hang", "1") as process:
        base_url = base_url_of(process)
        with ThreadPoolExecutor() as clients:
            hanging = clients.submit(fetch, f"{base_url}/models")
            root = base_url.removesuffix("/v1")
            while fetch(f"{root}/counts")["running"] == 0:
                pass
            process.send_signal(number)
            assert process.wait(5) == 0
            assert isinstance(hanging.exception(SECONDS_MAX), OSError)


def test_every_option_reaches_the_provider() -> None:
    options = {
        "seed": 3,
        "latency": 0.01,
        "fail": 0.01,
        "throttle": 0.02,
        "retry_after": 3.0,
        "hang": 0.01,
        "cut": 0.03,
        "slow_body": 0.01,
        "slow_seconds": 2.0,
        "nonsense": 0.01,
        "quota": 9,
        "concurrency": 4,
        "key": "k",
        "answer_tokens": 20,
        "visible_after": 1.0,
        "background_seconds": 2.0,
        "file_seconds": 4.0,
        "batch_seconds": 3.0,
        "batch_expire": 0.1,
        "batch_enqueued_tokens": 1000,
    }
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    rates = ["--rate-limit", "500rpm", "--rate-limit", "90000tpm", "--outage", "100:5", "--outage", "200:6"]
    with started("--port", "0", "--json", *flags, *rates) as process:
        shown = fetch(base_url_of(process).removesuffix("v1") + "faults")
    wanted = {**options, "rpm": 500, "tpm": 90_000, "outage": [[100, 5], [200, 6]], "key": "…"}
    assert {name: shown[name] for name in wanted} == wanted


def test_the_bill_outlives_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "bill.jsonl"
    for _ in range(2):
        with started("--port", "0", "--json", "--price", "1/2", "--bill-file", str(file)) as process:
            base_url = base_url_of(process)
            post(base_url.removesuffix("/v1") + CHAT, chat_body("x"))
            bill = fetch(base_url.removesuffix("v1") + "bill?summary=1")
            process.kill()
            process.wait(SECONDS_MAX)
    assert (bill["charged"], bill["paid_again"]) == (2, 1)
    assert bill["cost_micros"] == bill["input_tokens"] + 2 * bill["output_tokens"]


@pytest.mark.parametrize(
    "args",
    [
        ["--rate-limit", "5rps"],
        ["--outage", "5"],
        ["--price", "free"],
        ["--fail", "1.5"],
        ["--fail", "0.9", "--cut", "0.9"],
        ["--bill-file", "/nowhere/bill.jsonl"],
        ["--host", "203.0.113.1", "--port", "9"],
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["practice", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
