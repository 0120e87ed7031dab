"""The Dockerfile names files that there are, installs what the lock pins, and starts what we have."""

import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy import dockerfile
from tests.deploy.configuration import DEPLOY, parsed
from tests.house.sources import ROOT

EXTRAS = ("postgres", "service", "rabbitmq", "otel")


def pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Of each package its version, and the hashes of its files."""
    found = re.findall(r"^([\w.-]+)==(\S+)(.*(?:\n    .*)*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"--hash=(\S+)", rest))) for name, version, rest in found}


def test_every_file_that_is_copied_is_there_and_not_ignored() -> None:
    kept = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [source for line in dockerfile.said("COPY") if "--from" not in line for source in line.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists()
        assert any(fnmatch.fnmatch(source, pattern) for pattern in kept)


def test_what_is_installed_is_pinned_by_hash_as_in_the_lock_for_development() -> None:
    assert any("--require-hashes" in line and "requirements.lock" in line for line in dockerfile.said("RUN"))
    installed, everything = pins(DEPLOY / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert {name: everything.get(name) for name in installed} == installed
    assert all(hashes for _, hashes in installed.values())


def test_all_that_the_extras_want_is_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    names = {re.split(r"[<>=;\[ ]", one)[0].lower().replace(".", "-") for one in wanted}
    assert names - pins(DEPLOY / "requirements.lock").keys() == set()


def test_it_runs_as_nobody_in_particular() -> None:
    (user,) = dockerfile.said("USER")
    assert int(user) > 0
    order = [name for name, _ in dockerfile.instructions()]
    assert order.index("USER") < order.index("ENTRYPOINT")


def test_its_command_is_one_of_ours() -> None:
    assert dockerfile.words("ENTRYPOINT") == ["python", "-m", "backstay"]
    assert parsed(dockerfile.words("CMD")).info_name == "serve"


def test_its_entrypoint_runs_with_nothing_but_the_package_on_the_path(tmp_path: Path) -> None:
    words = [sys.executable, *dockerfile.words("ENTRYPOINT")[1:], "--version"]
    ran = subprocess.run(
        words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith("backstay "), ran.stderr


def test_its_health_check_fails_where_nobody_answers() -> None:
    words = [sys.executable, *dockerfile.words("HEALTHCHECK")[1:]]
    ran = subprocess.run(words, env={"HEALTH_URL": "http://127.0.0.1:1/livez"}, capture_output=True, check=False)
    assert ran.returncode != 0


@pytest.mark.parametrize("stage", dockerfile.said("FROM"))
def test_both_stages_are_of_one_base(stage: str) -> None:
    assert stage.startswith("python:${PYTHON}")
