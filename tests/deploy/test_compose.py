"""The compose file, held against its schema, our command line and our settings, and its commands run as processes."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backstay.core.limits import Limits
from backstay.engine.engine import LAST_WORDS_SECONDS
from tests.cli.shell import Running, eventually
from tests.cli.test_worker import free_port
from tests.deploy import compose, dockerfile
from tests.deploy.chat import request_lines
from tests.deploy.configuration import DEPLOY, parsed, unknown_settings
from tests.house.sources import ROOT
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.servers.redis import PrivateRedis
from tests.servers.s3 import BUCKET, PrivateS3
from tests.stories.runs import practice

COMPOSED = compose.read(compose.FILLED)
SERVICES: dict[str, Any] = COMPOSED["services"]


def test_it_is_what_the_specification_allows() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    command = [str(program), "--builtin-schema", "vendor.compose-spec", str(compose.FILE)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_it_has_every_part() -> None:
    wanted = {"postgres", "rabbitmq", "redis", "s3", "bucket", "migrate", "worker", "relay", "server"}
    assert wanted <= SERVICES.keys()
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize(("name", "service"), compose.ours(COMPOSED))
def test_our_command_line_takes_its_commands_and_the_settings_are_settings(name: str, service: Any) -> None:
    assert parsed(service["command"]).info_name == ("serve" if name == "server" else name)
    assert unknown_settings(service["environment"]) == set()


def test_the_example_names_every_variable_and_sets_no_secret() -> None:
    example = compose.example()
    assert example.keys() == compose.variables().keys()
    assert [name for name, needed in compose.variables().items() if needed and example[name]] == []


@pytest.mark.parametrize("name", SERVICES)
def test_who_waits_for_health_waits_for_one_that_tells_it(name: str) -> None:
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        if wait["condition"] == "service_healthy":
            assert "test" in SERVICES[other]["healthcheck"]
        else:
            assert SERVICES[other]["restart"] == "no"


def test_what_it_mounts_is_there() -> None:
    mounts = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert [mount for mount in mounts if mount.startswith(".") and not (DEPLOY / mount).exists()] == []
    assert {mount for mount in mounts if not mount.startswith(".")} == set(COMPOSED["volumes"])


@pytest.mark.parametrize(("name", "service"), compose.ours(COMPOSED))
def test_the_grace_is_longer_than_ours(name: str, service: Any) -> None:
    assert float(service["stop_grace_period"].removesuffix("s")) > Limits().shutdown_seconds + 2 * LAST_WORDS_SECONDS


@pytest.fixture
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


class Machine:
    """Runs the services' commands with their environments, as far as places are not this machine's own."""

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        self.folder = folder
        self.places = places
        self.ports: dict[str, int] = {}

    def command(self, name: str, *instead: str) -> tuple[list[str], dict[str, str]]:
        service = SERVICES[name.rstrip("2")]
        self.ports[name] = free_port()
        self.ports.setdefault("http", free_port())
        words = [str(word) for word in instead or service["command"]]
        ours = {"9100": self.ports[name], "--metrics-port=9100": f"--metrics-port={self.ports[name]}"}
        ours |= {"--port=8000": f"--port={self.ports['http']}", "--host=0.0.0.0": "--host=127.0.0.1"}
        words = [str(ours.get(word, word)) for word in words]
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        given = {**service["environment"], **self.places, "PYTHONPATH": str(ROOT)}
        return [sys.executable, "-m", "backstay", *words], {**kept, **given}

    def run(self, name: str, *instead: str) -> str:
        command, environment = self.command(name, *instead)
        ran = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def start(self, name: str) -> Running:
        command, environment = self.command(name)
        (self.folder / name).mkdir()
        return Running(command, self.folder / name, environment)

    def healthy(self, url: str) -> bool:
        """What the image's health check says."""
        words = [sys.executable, *dockerfile.words("HEALTHCHECK")[1:]]
        return subprocess.run(words, env={"HEALTH_URL": url}, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_its_commands_do_the_work_together_and_end_when_they_are_told(
    tmp_path: Path,
    empty_postgres_url: str,
    rabbitmq: PrivateRabbitMQ,
    redis: PrivateRedis,
    s3: PrivateS3,
) -> None:
    places = {
        **s3.environment,
        "BACKSTAY_DATABASE_URL": empty_postgres_url,
        "BACKSTAY_BROKER_URL": rabbitmq.url,
        "BACKSTAY_BROKER_PREFIX": rabbitmq.prefix(),
        "BACKSTAY_REDIS_URL": redis.url,
        "BACKSTAY_DATA": f"s3://{BUCKET}/files",
    }
    machine, names = Machine(tmp_path, places), ("worker", "worker2", "relay", "server")
    assert "the schema was upgraded from nothing to" in machine.run("migrate")
    with ExitStack() as stack:
        running = [stack.enter_context(machine.start(name)) for name in names]
        for name in names:
            eventually(partial(machine.healthy, f"http://127.0.0.1:{machine.ports[name]}/metrics"))
        eventually(lambda: machine.healthy(f"http://127.0.0.1:{machine.ports['http']}/livez"))
        with urllib.request.urlopen(f"http://127.0.0.1:{machine.ports['http']}/readyz", timeout=30) as answer:
            assert answer.status == 200
        provider = stack.enter_context(practice())
        (tmp_path / "requests.jsonl").write_text(request_lines(range(30)))
        machine.run("server", "submit", "requests.jsonl", "--base-url", provider.base_url)
        eventually(lambda: provider.bill()["charged"] == 30)
        for one in running:
            one.send(signal.SIGTERM)
        assert [one.wait() for one in running] == [0, 0, 0, -signal.SIGTERM]
