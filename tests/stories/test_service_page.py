"""What the README says of the service works as it is printed."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.stories.runs import COMMAND, practice
from tests.stories.test_pages import PRINTED_URL, README, commands, environment

pytestmark = pytest.mark.slow

SECTION = README.partition("## Serve it to a team\n")[2].partition("\n## ")[0]
PRINTED_SERVICE = "http://127.0.0.1:8000"
__all__ = ["environment"]


@contextlib.contextmanager
def serving(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Where the service is, while it runs, at a port that is free here."""
    words = [*COMMAND, *shlex.split(command)[1:], "--port", "0", "--json", "--log-level", "error"]
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def test_the_section_on_the_service_runs_as_it_is_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    environment["PYTHONPATH"] = str(ROOT)
    (command,) = commands(SECTION)
    (program,) = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    (key_command,) = re.findall(r"`backstay (key create .*?)`", SECTION)
    assert PRINTED_SERVICE in program
    with (
        practice() as provider,
        serving(command.replace(PRINTED_URL, provider.base_url), tmp_path, environment) as service,
    ):
        (tmp_path / "program.py").write_text(program.replace(PRINTED_SERVICE, service), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert ran.stdout.strip() in ("validating", "in_progress", "finalizing", "completed"), ran.stderr
        made = subprocess.run(
            [*COMMAND, *key_command.split()], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        asked = urllib.request.Request(
            f"{service}/v1/batches", headers={"Authorization": f"Bearer {made.stdout.strip()}"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert [batch["object"] for batch in json.load(answer)["data"]] == ["batch"]
