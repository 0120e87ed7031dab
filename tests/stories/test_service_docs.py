"""What the pages about the service print is run as it stands: every command and every program, in their order."""

import asyncio
import contextlib
import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from backstay import Backstay
from backstay.core.callbacks import Callback, Kind
from backstay.core.ids import item_range
from tests.house.sources import ROOT
from tests.server.pdfs import pdf
from tests.stories.runs import COMMAND, practice
from tests.stories.test_pages import PRINTED_URL, environment
from tests.stories.test_service_page import serving

__all__ = ["environment"]
PRINTED_BROKER = "amqp://guest:guest@127.0.0.1/"
PAGES = ("api", "converter", "openai", "remote", "traffic", "webhooks")
SHELLS = ("bash", "console", "sh")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVE = "backstay serve --app app:backstay --db sqlite:///page.db"
TRY_SECONDS = 30
APP = """
from backstay import Backstay, Permanent

backstay = Backstay("sqlite:///page.db")


@backstay.handler()
async def convert(item):
    if item["page"] < 0:
        raise Permanent("no such page")
    return item
"""
# A person puts these together from what the page says; here an event is made for the program that takes it.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RECEIVE = f"""
from datetime import UTC, datetime
from standardwebhooks import Webhook

body = '{{"id": "evt_1", "object": "event", "created_at": 1, "type": "batch.completed", "data": {{"id": "batch_1"}}}}'
now = datetime.now(UTC)
signature = Webhook("{SECRET}").sign("evt_1", now, body)
sent = {{"webhook-id": "evt_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}}
received(body, sent)
"""


class Neighbour(http.server.BaseHTTPRequestHandler):
    """Takes whatever it is sent."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(202)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """It has nothing to say."""


@contextlib.contextmanager
def neighbour() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Neighbour) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def blocks(page: str) -> list[tuple[str, str]]:
    """Unless the page says why one is not run."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return BLOCK.findall(re.sub(r"^<!-- not run: [^>]+ -->\n```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def commands(block: str) -> list[str]:
    """Each command of a block, on however many lines it stands."""
    found: list[str] = []
    begun = ""
    for line in block.replace("\\\n", " ").splitlines():
        begun += line.removeprefix("$ ") + "\n"
        with contextlib.suppress(ValueError):  # a quotation that goes on
            shlex.split(begun, comments=True)
            found, begun = [*found, begun.strip().removesuffix(" &")], ""
    assert not begun, begun
    return found


class Reader:
    """Someone who types what a page says, with names of their own where the page has only an example."""

    def __init__(self, folder: Path, environment: dict[str, str], place: str, page: str) -> None:
        self._folder = folder
        self._said = ""
        self.environment = environment
        self.names = {
            "https://grader.example.com/grade": f"http://{place}/grade",
            "https://example.com/hook": f"http://{place}/hook",
            "whsec_…": SECRET,
        }
        self.typed = [command for kind, block in blocks(page) if kind in SHELLS for command in commands(block)]
        self.programs = [block for kind, block in blocks(page) if kind == "python"]
        self.beside = contextlib.ExitStack()

    def prepare(self) -> str:
        """What the page sets is set before the service starts; returns how that is started."""
        serve = SERVE
        for command in list(self.typed):
            words = shlex.split(command, comments=True)
            if words[0] == "export" or "backstay" in words:
                self.typed.remove(command)
                given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
                for name, value in given.items():
                    mine = [self.environment[name]] if name in self.environment else []
                    self.environment[name] = ",".join((self._named(value), *mine))
            if "serve" in words:
                serve = self._named(" ".join(words[words.index("backstay") :]))
        return serve

    def type(self, command: str) -> None:
        """Again while it is refused: an answer may not be ready yet."""
        if (file := re.search(r'"(file-\w+)"', self._said)) is not None:
            self.names["file-…"] = file[1]
        give_up_at = time.monotonic() + TRY_SECONDS
        while (ran := self._run("bash", "-c", self._named(command))).returncode and time.monotonic() < give_up_at:
            time.sleep(0.1)
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        self._said = ran.stdout or self._said

    def begin(self, command: str) -> None:
        """A program that runs until it is stopped."""
        program = subprocess.Popen(shlex.split(self._named(command)), cwd=self._folder, env=self.environment)
        self.beside.callback(program.wait)
        self.beside.callback(program.kill)

    def await_job(self, service: str) -> None:
        """The job that was submitted last comes to its end."""
        url, give_up_at = f"{service}/api/jobs/{json.loads(self._said)['id']}", time.monotonic() + TRY_SECONDS
        while json.load(urllib.request.urlopen(url, timeout=TRY_SECONDS))["state"] != "completed":
            assert time.monotonic() < give_up_at, "nobody has done it"
            time.sleep(0.1)

    def start(self, program: str) -> None:
        (self._folder / "program.py").write_text(self._named(program), encoding="utf-8")
        ran = self._run(sys.executable, "program.py")
        assert (ran.returncode, bool(ran.stdout)) == (0, True), ran.stderr

    def _named(self, text: str) -> str:
        for printed, own in self.names.items():
            text = text.replace(printed, own)
        return text

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self._folder, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )


def furnish(folder: Path, environment: dict[str, str], place: str) -> None:
    """The files that the pages take for granted, and a curl that fails when it is refused."""
    (folder / "app.py").write_text(APP, encoding="utf-8")
    (folder / "items.jsonl").write_text('{"page": 1}\n{"page": 2}\n', encoding="utf-8")
    (folder / "paper.pdf").write_bytes(pdf("a paper"))
    (folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n", encoding="utf-8")
    environment |= {"CURL_HOME": str(folder), "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    environment |= {"OPENAI_API_KEY": "practice", "BACKSTAY_INSIDE_HOSTS": place}


def submit_failure(service: str) -> int:
    body = b'{"handler": "convert", "items": [{"page": -1}]}'
    asked = urllib.request.Request(f"{service}/api/jobs", body, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=TRY_SECONDS) as answer:
        return int(json.load(answer)["id"])


async def make_late_result(url: str, job: int) -> None:
    """The first one: a result that came after its item had failed."""
    async with Backstay(url) as app:
        client = await app.open()
        async with asyncio.timeout(TRY_SECONDS):
            while not (await client.store.job_views.get(job, client.owner)).failed:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.05)
        await client.store.inbox.receive(item_range(job)[0], 1, Callback(Kind.SUCCEEDED, '{"result": 7}'))


def key_of(folder: Path, environment: dict[str, str]) -> str:
    words = [*COMMAND, "key", "create", "--db", "sqlite:///page.db"]
    made = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return made.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_about_the_service_prints_runs(
    page: str, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    with neighbour() as place, practice() as provider:
        furnish(tmp_path, environment, place)
        reader = Reader(tmp_path, environment, place, page)
        reader.names |= {PRINTED_URL: provider.base_url, PRINTED_URL.removesuffix("/v1"): provider.base_url[:-3]}
        if page == "remote":
            reader.names[PRINTED_BROKER] = request.getfixturevalue("rabbitmq").url
        serve = reader.prepare()
        with serving(serve, tmp_path, environment) as service, reader.beside:
            reader.names |= {"http://127.0.0.1:8000": service, "localhost:8000": service}
            if page in ("api", "traffic"):
                reader.names["jobs/12/"] = "jobs/1/"
                reader.environment["KEY"] = key_of(tmp_path, environment)
            if page == "remote":
                asyncio.run(make_late_result(f"sqlite:///{tmp_path}/page.db", submit_failure(service)))
                reader.names["late-results/7"] = "late-results/1"
            for command in reader.typed:
                (reader.begin if command.startswith("python examples/") else reader.type)(command)
            for program in reader.programs:
                reader.start(program + (RECEIVE if page == "webhooks" else ""))
            if page == "remote":
                reader.await_job(service)
        assert reader.typed or reader.programs


@pytest.mark.parametrize("page", PAGES)
def test_a_page_about_the_service_has_no_block_of_another_kind(page: str) -> None:
    assert {kind for kind, _ in blocks(page)} <= {*SHELLS, "python", "json", "text"}
