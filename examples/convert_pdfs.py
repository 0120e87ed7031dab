"""A folder of PDFs in, a folder of XML out: uploaded to the service, converted at a gateway, read back.

    python examples/convert_pdfs.py [FOLDER]

The gateway is the practice one, which fails now and then; the service is `backstay serve`. Both run while this does.
Without a folder a dozen small PDFs are made. All files are in build/converter, which is emptied each time.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

FOLDER = Path("build", "converter")
FAULTS = ("--seed", "3", "--latency", "0.05", "--fail", "0.2", "--cut", "0.05")
UPLOADS_AT_ONCE = 4
SETTINGS = {"BACKSTAY_RETRY_BASE_DELAY_MS": "100", "BACKSTAY_RETRY_JITTER_MAX_MS": "100"}  # a gateway at hand


@contextlib.contextmanager
def started(*command: str, **more: str) -> Iterator["subprocess.Popen[str]"]:
    """A command of Backstay's, without settings of yours, until the block ends."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("BACKSTAY_")}
    print("$ backstay " + " ".join(command), flush=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "backstay", *command],
        env={**own, **SETTINGS, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def service() -> Iterator[str]:
    """The service with its gateway; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with started("practice", "--port", "0", *FAULTS, "--json") as practice:
        assert practice.stdout is not None
        gateway = json.loads(practice.stdout.readline())["base_url"].removesuffix("/v1") + "/convert"
        database = f"sqlite:///{FOLDER / 'backstay.db'}"
        with started("serve", "--port", port, "--db", database, BACKSTAY_GATEWAY_URL=gateway):
            yield f"http://127.0.0.1:{port}"


async def ready(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get("/readyz") as answer:
                    if answer.ok:
                        return
            await asyncio.sleep(0.1)


async def ask(session: aiohttp.ClientSession, method: str, path: str, **given: Any) -> Any:
    async with session.request(method, path, **given) as answer:
        said = await answer.json(content_type=None)
        if not answer.ok:
            raise SystemExit(f"{method} {path}: {answer.status} {said['code']}: {said['detail']}")
        return said


async def upload(session: aiohttp.ClientSession, path: Path, turn: asyncio.Semaphore) -> str:
    async with turn:
        form = aiohttp.FormData(quote_fields=False)
        form.add_field("file", path.open("rb"), filename=path.name, content_type="application/pdf")
        return str((await ask(session, "POST", "/api/uploads", data=form))["id"])


async def ended(session: aiohttp.ClientSession, job: str) -> Any:
    while True:
        shown = await ask(session, "GET", f"/api/jobs/{job}")
        if shown["finished_at"] is not None:
            return shown
        await asyncio.sleep(0.1)


async def convert(session: aiohttp.ClientSession, paths: list[Path], out: Path) -> int:
    turn = asyncio.Semaphore(UPLOADS_AT_ONCE)
    files = await asyncio.gather(*(upload(session, path, turn) for path in paths))
    order = {"handler": "gateway", "items": [{"file": file} for file in files]}
    job = (await ask(session, "POST", "/api/jobs", json=order))["id"]
    shown = await ended(session, job)
    for position, path in enumerate(paths):
        async with session.get(f"/api/items/{job}-{position}/result") as answer:
            if answer.ok:
                (out / path.with_suffix(".xml").name).write_bytes(await answer.read())
            else:
                problem = await answer.json(content_type=None)
                print(f"{path.name}: {problem['code']}: {problem['detail']}")
    print(f"converted {shown['succeeded']} of {shown['total']}, into {out}")
    print(f"look: .venv/bin/backstay job show {job} --db sqlite:///{FOLDER / 'backstay.db'}")
    return 0 if shown["succeeded"] == shown["total"] else 1


def small_pdfs(folder: Path) -> Path:
    folder.mkdir()
    for number in range(12):
        text = f"%PDF-1.4\n1 0 obj <</Type /Page>> endobj\nBT (Paper number {number}) Tj ET\n%%EOF\n"
        (folder / f"paper-{number}.pdf").write_text(text)
    return folder


async def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    out = FOLDER / "xml"
    out.mkdir(parents=True)
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else small_pdfs(FOLDER / "pdf")
    paths = sorted(given.glob("*.pdf"))
    if not paths:
        raise SystemExit(f"no PDFs in {given}")
    with service() as url:
        async with aiohttp.ClientSession(url) as session:
            await ready(session)
            return await convert(session, paths, out)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
