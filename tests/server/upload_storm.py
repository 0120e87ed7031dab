"""Uploads that no decent client sends, against the whole service in this process; prints what came of them as JSON."""

import asyncio
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from backstay import wiring
from backstay.app import Backstay
from backstay.store.keys import Role
from tests.server.pdfs import pdf
from tests.server.rig import Rig, rigged
from tests.server.senders import MEGABYTE, Heard, endless, form, part, send

FILE = part("file", pdf(), "a.pdf", "application/pdf")
LINES = b"0123456\n" * (MEGABYTE // 8)
FILE_MEGABYTES = 200


def whole() -> Iterator[bytes]:
    yield FILE
    for _ in range(FILE_MEGABYTES):
        yield LINES
    yield form(b"")


async def storm(rig: Rig) -> dict[str, Heard]:
    key = {"authorization": f"Bearer {rig.keys['ada', Role.WRITE]}"}
    bomb = gzip.compress(b" " * MEGABYTE) * 100
    senders = {
        "10 GB declared": (endless(FILE, LINES, 10_240), {}, 10 << 30),
        "10 GB chunked": (endless(FILE, LINES, 10_240), {}, None),
        "10 GB on one line": (endless(part("file", b"", "a.pdf"), b"x" * MEGABYTE, 10_240), {}, None),
        "a gzip bomb": (endless(bomb, bomb, 100), {"content-encoding": "gzip"}, None),
        "a million tiny parts": (endless(b"", (part("x", b"") + b"\r\n") * 1_000, 1_000), {}, None),
        "nonsense": (endless(b"", b"\0nonsense" * 100_000, 10_240), {}, None),
        "a whole file of 200 MB": (whole(), {}, None),
    }
    return {
        name: await send(rig.url, "/api/uploads", pieces, {**key, **headers}, length)
        for name, (pieces, headers, length) in senders.items()
    }


def largest_kb() -> int:
    """This program's own peak. Not getrusage's: Linux hands a parent's peak on to the programs that it starts."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


async def main(folder: Path) -> None:
    url = f"sqlite:///{folder / 'backstay.db'}"
    await wiring.migrate(url)
    async with rigged(url, folder / "data", Backstay(url), upload_max_bytes=256 * MEGABYTE) as rig:
        heard = await storm(rig)
        told = {
            "statuses": {name: one.status for name, one in heard.items()},
            "memory_mb": largest_kb() // 1024,
            "sent_mb": sum(one.sent_bytes for one in heard.values()) // MEGABYTE,
            "left": len([name async for name in rig.service.artifacts.names("files")]),
        }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
