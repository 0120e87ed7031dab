"""The commands that the pages print run as they stand, in their order, and end as the page says."""

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
from tests.stories.runs import practice

PRINTED_URL = "http://127.0.0.1:9000/v1"
SERVERS = ("backstay practice", "backstay worker")  # they run until they are stopped
SECONDS_MAX = 120

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    "README.md": README.partition("## Run a file of requests\n")[2].partition("\n## ")[0],
    "docs/run.md": (ROOT / "docs" / "run.md").read_text(encoding="utf-8"),
}


def commands(text: str) -> list[str]:
    """What the blocks of a page have a person type, unless the page says why one is not run; a backslash at its end
    continues a line."""
    text = re.sub(r"^<!-- not run: [^>]+ -->\n```sh\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def expected_code(command: str) -> int:
    said = re.search(r"# exit code (\d+)", command)
    return int(said[1]) if said else 0


@contextlib.contextmanager
def served(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Where the practice provider is, while it or a worker runs."""
    _, name, *options = shlex.split(command, comments=True)
    if name == "practice":
        del options[options.index("--port") : options.index("--port") + 2]
        with practice(*options) as provider:
            yield provider.base_url
        return
    with subprocess.Popen(shlex.split(command), cwd=folder, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield ""
        finally:
            process.terminate()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A person who has Backstay and the examples, and nothing of their own set."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BACKSTAY_", "OPENAI_"))}
    here = str(Path(sys.executable).parent)
    return {**kept, "PATH": os.pathsep.join((here, kept["PATH"])), "XDG_DATA_HOME": str(tmp_path / "data")}


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/run.md", marks=pytest.mark.slow)])
def test_the_commands_of_a_page_run_in_their_order(page: str, tmp_path: Path, environment: dict[str, str]) -> None:
    base_url = ""
    with contextlib.ExitStack() as running:
        for command in commands(PAGES[page]):
            line = command.replace(PRINTED_URL, base_url or PRINTED_URL)
            if line.startswith(SERVERS):
                base_url = running.enter_context(served(line, tmp_path, environment)) or base_url
                continue
            if line.startswith("export "):
                environment |= dict(word.split("=", 1) for word in shlex.split(line, comments=True)[1:])
                continue
            ran = subprocess.run(
                ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
            )
            assert ran.returncode == expected_code(command), f"{command}\n{ran.stdout}{ran.stderr}"
    for results in tmp_path.glob("*.jsonl"):
        assert len(results.read_text().splitlines()) == 300, results.name


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_commands_to_run(page: str) -> None:
    said = commands(PAGES[page])
    assert said[0].startswith("backstay practice ")
    assert any(command.startswith("backstay run ") for command in said)
