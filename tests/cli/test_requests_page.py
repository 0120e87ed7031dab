"""The page about files of requests: its files are read, its commands run, and it says what is said."""

import re
import shlex

import pytest

from tests.cli.shell import ROOT, Shell

PAGE = (ROOT / "docs" / "requests.md").read_text(encoding="utf-8")
FILES = re.findall(r"^`([\w.]+)`\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


@pytest.fixture
def page_shell(sqlite_shell: Shell) -> Shell:
    for name, content in FILES:
        sqlite_shell.file(content, name)
    return sqlite_shell


def test_the_page_has_files_and_commands() -> None:
    assert {name for name, _ in FILES} >= {"requests.jsonl", "bodies.jsonl", "prompts.jsonl", "rows.csv", "body.json"}
    assert len(COMMANDS) >= 8
    assert all(command.startswith("backstay plan ") for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_does_what_it_says(page_shell: Shell, command: str) -> None:
    ran = page_shell(*shlex.split(command)[1:])
    assert (ran.code, ran.err) == (0, "")
    assert "2" in ran.out


def test_the_bad_lines_are_told_as_printed(page_shell: Shell) -> None:
    ran = page_shell("plan", "bad.jsonl")
    assert ran.code == 2
    assert f"```text\n{ran.err}```" in PAGE
