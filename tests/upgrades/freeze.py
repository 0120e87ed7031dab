"""Keeps the database of the middle of a run as text, made by the code of one revision, with a digest of the revision.
`make schema` does it for a new one. For others:

    python -m tests.upgrades.freeze REVISION [--code FOLDER | --after REVISION]

FOLDER is a checkout whose newest revision is REVISION; without it, this one. Libraries that only the old code needs are
found by PYTHONPATH. For a revision that no commit has had as
its newest, `--after` migrates the kept database of an earlier one.
"""

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from backstay.practice import Faults, Practice
from backstay.store.databases import schema
from tests.cli.practice_thread import in_thread
from tests.house.sources import ROOT
from tests.upgrades import shop
from tests.upgrades.kept import (
    DIGEST,
    KEPT_AT,
    PAID,
    PRACTICE_PORT,
    RECEIVER,
    digest_of,
    file_of,
    load,
    migrate_to,
    revision_file,
)

REQUESTS = 5
BASE_URL = f"http://localhost:{PRACTICE_PORT}/v1"  # names of endpoints are made of it
HOOK = "127.0.0.1:9"
SECONDS = 60


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("revision", nargs="?", help="without it, the newest, unless it is kept already")
    options.add_argument("--code", type=Path, default=ROOT)
    options.add_argument("--after")
    asked = options.parse_args()
    if asked.revision is None:
        asked.revision = schema.HEAD
        if file_of(asked.revision).exists():
            return
    with tempfile.TemporaryDirectory() as folder:
        path, bill = Path(folder, "kept.db"), shop.Bill(Path(folder, "bill"))
        if asked.after is not None:
            asyncio.run(_migrated(f"sqlite:///{path}", asked.after, asked.revision, bill))
        else:
            _run(asked.revision, asked.code.resolve(), Path(folder))
        text = "".join(f"{line}\n" for line in _dump(path, asked.revision, bill))
    file_of(asked.revision).write_text(text.replace(HOOK, RECEIVER), encoding="utf-8")


async def _migrated(url: str, first: str, then: str, bill: shop.Bill) -> None:
    await load(url, first, bill)
    await migrate_to(url, then)


def _run(revision: str, code: Path, folder: Path) -> None:
    """Runs all that this revision knows up to its middle."""
    old = _Code(revision, code, folder)
    with in_thread(Practice(Faults(latency=0.3)).serving(port=PRACTICE_PORT)):
        if revision >= "0003":
            old.serve()
        if revision >= "0002":
            old.run()
        if revision >= "0012":
            old.command("budget", "set", "50", "--period", "total")
        if revision >= "0014":
            payload = ("--payload", '{"do": "answer"}')
            old.command("schedule", "add", "yearly", "0 0 1 1 *", "--handler", "call", "--force", *payload)
    child = [sys.executable, str(Path(shop.__file__)), str(folder / "kept.db"), str(folder / "bill"), revision]
    ended = subprocess.run(child, env=old.environment, cwd=folder, check=False)
    if ended.returncode != shop.DIED:
        raise SystemExit(f"the application ended with {ended.returncode}")


class _Code:
    def __init__(self, revision: str, code: Path, folder: Path) -> None:
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH")))),
            "OPENAI_API_KEY": "none",
            "BACKSTAY_DATABASE_URL": f"sqlite:///{folder}/kept.db",
            "BACKSTAY_INSIDE_HOSTS": HOOK,
        }
        self._revision = revision
        self._folder = folder
        self._upstream = ("--base-url", BASE_URL, "--price", "0.15/0.60", "--budget", "1.00", "--concurrency", "2")
        lines = (json.dumps(_request(number)) for number in range(REQUESTS))
        self._requests = folder / "requests.jsonl"
        self._requests.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def command(self, *words: str) -> None:
        subprocess.run(self._words(words), env=self.environment, cwd=self._folder, check=True)

    def run(self) -> None:
        """`backstay run`, killed when some requests are answered and others under way."""
        with self._killed("run", str(self._requests), *self._upstream):
            self._wait_for_answers("run:%")

    def serve(self) -> None:
        """`backstay serve` with a webhook and a batch, killed likewise."""
        with self._killed("serve", "--port", "0", "--json", "--data", "data", *self._upstream) as process:
            assert process.stdout is not None
            service = json.loads(process.stdout.readline())["url"]
            events = ["job.completed", "batch.completed", *(["item.failed"] if self._revision >= "0017" else [])]
            _post(f"{service}/api/webhooks", json.dumps({"url": f"http://{HOOK}/hook", "events": events}).encode())
            head = '--x\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
            form = f"{head.format('purpose', '')}batch\r\n" + head.format("file", '; filename="requests.jsonl"')
            body = form.encode() + self._requests.read_bytes() + b"\r\n--x--\r\n"
            file = _post(f"{service}/v1/files", body, "multipart/form-data; boundary=x")["id"]
            order = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
            _post(f"{service}/v1/batches", json.dumps(order).encode())
            self._wait_for_answers("batch:%")

    def _words(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "backstay", *words]

    @contextmanager
    def _killed(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        process = subprocess.Popen(
            self._words(words), env=self.environment, cwd=self._folder, text=True, stdout=subprocess.PIPE
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()

    def _wait_for_answers(self, key: str) -> None:
        asked = "SELECT state FROM items JOIN jobs ON jobs.id = job_id WHERE idempotency_key LIKE ?"
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with suppress(sqlite3.OperationalError):  # there is no table yet
                connection = sqlite3.connect(self._folder / "kept.db")
                states = [state for (state,) in connection.execute(asked.replace("state", "items.state", 1), (key,))]
                connection.close()
                if {"succeeded", "submitting", "queued"} <= {*states}:
                    return
            time.sleep(0.01)
        raise SystemExit(f"waited in vain for the requests of {key}")


def _request(number: int) -> dict[str, Any]:
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": f"Grüße {number}"}], "max_tokens": 9}
    return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def _post(url: str, body: bytes, kind: str = "application/json") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": kind})) as answer:
        return json.load(answer)


def _dump(path: Path, revision: str, bill: shop.Bill) -> Iterator[str]:
    """The rows as inserts that both databases understand."""
    connection = sqlite3.connect(path)
    yield f"-- A database of revision {revision} in the middle of a run. Never edited; see tests/upgrades/freeze.py"
    newest = (
        "SELECT max(moment) FROM (SELECT max(created_at) AS moment FROM jobs UNION SELECT max(seen_at) FROM workers)"
    )
    yield f"{KEPT_AT}{connection.execute(newest).fetchone()[0]}"
    yield f"{DIGEST}{digest_of(revision_file(revision).read_text(encoding='utf-8'))}"
    for key in bill.keys:
        yield f"{PAID}{key}"
    tables = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
    )
    for (table,) in connection.execute(tables).fetchall():
        if table == "alembic_version":
            assert connection.execute(f"SELECT * FROM {table}").fetchall() == [(revision,)]
            continue
        for names, rows in _rows(connection, table).items():
            yield f"INSERT INTO {table} ({names}) VALUES"
            yield from (f"({row})," for row in rows[:-1])
            yield f"({rows[-1]});"
    connection.close()


def _rows(connection: sqlite3.Connection, table: str) -> dict[str, list[str]]:
    """The values of the rows, by the columns that are not as usual."""
    columns = connection.execute("SELECT name, dflt_value FROM pragma_table_info(?)", (table,)).fetchall()
    found: dict[str, list[str]] = {}
    for row in connection.execute(f"SELECT * FROM {table}"):
        given = {
            f'"{name}"': _literal(value)
            for (name, usual), value in zip(columns, row, strict=True)
            if value is not None and usual not in (_literal(value), f"'{value}'")
        }
        found.setdefault(", ".join(given), []).append(", ".join(given.values()))
    return found


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


if __name__ == "__main__":
    main()
