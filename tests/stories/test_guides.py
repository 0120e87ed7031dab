"""The guides' commands, files and programs run as they stand, in their order, as one who follows a page would."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from backstay.cli.main import run
from tests.house.pages import blocks, provider_pages
from tests.house.sources import ROOT
from tests.servers.postgres import RunningPostgres
from tests.stories.runs import COMMAND
from tests.stories.test_pages import environment, expected_code

__all__ = ["environment"]
NAMES = (
    "index",
    "start-file",
    "start-service",
    "start-library",
    "start-cron",
    "handler",
    "coming-from",
    "after",
    "fallback",
    "doubles",
    "budgets",
    "resume",
    "reuse",
    "retry",
    "rate-limits",
    "schedules",
    "postgresql",
    "pgbouncer",
    "moving",
    "upgrading",
    "rabbitmq",
    "transactions",
)
GUIDES = (*(f"docs/{name}.md" for name in NAMES), *provider_pages(with_practice=True))
KINDS = ("sh", "python")
PRINTED = {"practice": "http://127.0.0.1:9000", "serve": "http://127.0.0.1:8000"}
PRINTED_DATABASES = (
    "postgresql://backstay@db.example.com/backstay",
    "postgresql://backstay@pooler.example.com:6432/backstay",
)
PRINTED_BROKER = "amqp://user:password@broker.example.com:5672/vhost"
QUICK = {"bounds", "doctor", "jobs", "job", "key", "migrate", "plan", "broker"}  # they need no application
SECONDS_MAX = 120
APP = """
from backstay import Backstay

backstay = Backstay()


@backstay.handler()
async def convert(item: dict) -> dict:
    return item
"""


class Follower:
    """Someone who types what a page says, on servers of their own."""

    def __init__(self, folder: Path, environment: dict[str, str], names: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._names = names
        self.running = contextlib.ExitStack()

    def follow(self, page: str) -> int:
        """How many things were done."""
        done = 0
        for block in blocks(page):
            if block.why_not_run is not None:
                continue
            if block.title is not None:
                (self._folder / block.title).write_text(self._named(block.text), encoding="utf-8")
            elif block.kind == "python":
                (self._folder / "program.py").write_text(self._named(block.text), encoding="utf-8")
                self._run("python program.py")
            else:
                for command in block.text.replace("\\\n", " ").splitlines():
                    self.type(command)
            done += 1
        return done

    def type(self, command: str) -> None:
        words = shlex.split(command, comments=True)
        if words[:1] == ["export"]:
            self._environment |= dict(self._named(word).split("=", 1) for word in words[1:])
        elif words[:1] == ["backstay"] and words[1] in PRINTED:
            self.running.enter_context(self._serving(words[1], words[2:]))
        elif words[:2] in (["backstay", "worker"], ["backstay", "relay"]):
            self.running.enter_context(self._working(self._named(command)))
        elif words[:1] == ["backstay"] and words[1] in QUICK and self._needs_no_process(command):
            self._run_here(command, self._named(command))
        else:
            self._run(command)

    def _needs_no_process(self, command: str) -> bool:
        return "BACKSTAY_APP" not in self._environment and not re.search(r"[|>&;]|--app", command)

    def _run_here(self, printed: str, command: str) -> None:
        """In this process: to load the program anew takes longer than most commands do."""
        with mock.patch.dict(os.environ, self._environment, clear=True), contextlib.chdir(self._folder):
            assert run(shlex.split(command, comments=True)[1:]) == expected_code(printed), printed

    def _run(self, command: str) -> None:
        ran = subprocess.run(
            ["bash", "-c", self._named(command)],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert ran.returncode == expected_code(command), f"{command}\n{ran.stdout}{ran.stderr}"

    @contextlib.contextmanager
    def _serving(self, name: str, options: list[str]) -> Iterator[None]:
        """At a port that is free here; what the page prints then means this one."""
        if "--port" in options:
            del options[options.index("--port") : options.index("--port") + 2]
        words = [*COMMAND, name, *map(self._named, options), "--port", "0", "--json"]
        with self._started(words) as process:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            url = said.get("base_url", said.get("url", "")).removesuffix("/v1")
            self._names[PRINTED[name]] = url
            self._environment = {key: self._named(value) for key, value in self._environment.items()}
            yield

    @contextlib.contextmanager
    def _working(self, command: str) -> Iterator[None]:
        with self._started([*COMMAND, *shlex.split(command, comments=True)[1:], "--log-level", "error"]):
            yield

    @contextlib.contextmanager
    def _started(self, words: list[str]) -> Iterator["subprocess.Popen[str]"]:
        with subprocess.Popen(
            words, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def _named(self, text: str) -> str:
        for printed, own in self._names.items():
            text = text.replace(printed, own)
        return text


def place_of(page: str, request: pytest.FixtureRequest, environment: dict[str, str]) -> dict[str, str]:
    """What the page's names stand for here; servers are started for those pages only that name them."""
    text, names = (ROOT / page).read_text(encoding="utf-8"), {}
    if any(printed in text for printed in PRINTED_DATABASES):
        direct: str = request.getfixturevalue("empty_postgres_url")
        server: RunningPostgres = request.getfixturevalue("postgres")
        names = dict.fromkeys(PRINTED_DATABASES, direct)
        names["ALTER ROLE backstay"] = "ALTER ROLE postgres IN DATABASE " + direct.rpartition("/")[2]
        environment["BACKSTAY_DATABASE_URL_DIRECT"] = direct
        environment["PATH"] = os.pathsep.join((str(server.binaries), environment["PATH"]))
    if PRINTED_BROKER in text:
        node = request.getfixturevalue("rabbitmq")
        names[PRINTED_BROKER] = node.url
        environment["BACKSTAY_BROKER_PREFIX"] = node.prefix()
    return names


@pytest.fixture
def follower(
    request: pytest.FixtureRequest, tmp_path: Path, environment: dict[str, str], sqlite_template: Path
) -> Iterator[Follower]:
    page = request.node.callspec.params["page"]
    environment |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path))), "OPENAI_API_KEY": "practice"}
    environment["BACKSTAY_DATABASE_URL"] = f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'own.db')}"
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    made = Follower(tmp_path, environment, place_of(page, request, environment))
    with made.running:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("page", [*GUIDES, "docs/practice.md"])
def test_what_a_guide_prints_can_be_followed(page: str, follower: Follower) -> None:
    assert follower.follow(page) > 0


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md"])
def test_the_commands_of_an_application_in_the_readme_can_be_followed(page: str, follower: Follower) -> None:
    section = (ROOT / page).read_text(encoding="utf-8").partition("## Use it as a library\n")[2].partition("\n## ")[0]
    [typed] = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    follower.type(f"{sys.executable} -m examples.quickstart")
    for command in typed.splitlines():
        follower.type(command)
