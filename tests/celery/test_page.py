"""The page and the example about Celery run as they stand."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.servers.rabbitmq import PrivateRabbitMQ

PAGE = (ROOT / "docs" / "celery.md").read_text(encoding="utf-8")
PRINTED_URL = "amqp://guest:guest@localhost:5672//"
SECONDS_MAX = 60


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BACKSTAY_")}
    here = str(Path(sys.executable).parent)
    return {**kept, "PATH": os.pathsep.join((here, kept["PATH"])), "PYTHONPATH": str(ROOT)}


@contextlib.contextmanager
def worker(command: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    with (folder / "worker.log").open("wb") as log:
        words = shlex.split(command)
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0, (folder / "worker.log").read_text()


def ran(command: str, folder: Path, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.mark.slow
def test_what_the_page_prints_runs(tmp_path: Path, environment: dict[str, str], rabbitmq: PrivateRabbitMQ) -> None:
    [program], [typed] = blocks("python"), blocks("sh")
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    said = ""
    with contextlib.ExitStack() as running:
        for command in typed.replace(PRINTED_URL, rabbitmq.url).splitlines():
            if command.startswith("export "):
                environment |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
            elif command.startswith("celery "):
                running.enter_context(worker(command, tmp_path, environment))
            else:
                said += ran(command, tmp_path, environment)
    assert said.startswith("completed\n")
    assert "summarise" in said


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path, environment: dict[str, str], rabbitmq: PrivateRabbitMQ) -> None:
    environment |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "examples"))), "SHOP_BROKER": rabbitmq.url}
    with worker("celery -A celery_app worker -Q celery,backstay", tmp_path, environment):
        said = ran(f"{sys.executable} {ROOT}/examples/celery_app.py", tmp_path, environment)
    assert [line.split()[1] for line in said.splitlines()] == ["succeeded"] * 3
