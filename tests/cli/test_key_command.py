"""--api-key-command: the key comes from a command, and is stored and shown nowhere."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.practice_thread import file_of, results, served
from tests.cli.shell import Shell

OLD, NEW = "sk-old-0123456789", "sk-new-0123456789"
MODELS = ("gpt-4o-mini",) * 3


def command(shell: Shell, *says: str) -> str:
    """A command that prints these in turn, the last one for ever; ! stands for a failure."""
    script = shell.folder / "print_key.py"
    script.write_text(
        f"import os, sys\nsays = {says!r}\ncount = os.path.getsize('asked') if os.path.exists('asked') else 0\n"
        "open('asked', 'a').write('x')\nword = says[min(count, len(says) - 1)]\n"
        "sys.exit('vault is sealed') if word == '!' else print(word)\n"
    )
    return f"{sys.executable} {script}"


def asked(shell: Shell) -> int:
    path = shell.folder / "asked"
    return path.stat().st_size if path.exists() else 0


def test_a_refused_key_is_fetched_again_and_costs_no_attempt(sqlite_shell: Shell, tmp_path: Path) -> None:
    with served(key=NEW) as (_, base_url):
        options = ("--base-url", base_url, "--api-key-command", command(sqlite_shell, OLD, NEW))
        ran = sqlite_shell("run", file_of(sqlite_shell, *MODELS), "--json", *options)
    assert ran.code == 0, ran.err
    assert (len(results(sqlite_shell)), asked(sqlite_shell)) == (3, 2)
    item = sqlite_shell("item", "show", f"{ran.rows[-1]['job']}-0", "--json").json
    assert item["attempt_count"] == 1
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "print_key.py":
            assert not any(key.encode() in file.read_bytes() for key in (OLD, NEW)), file
    assert not any(key in ran.out + ran.err for key in (OLD, NEW))


def test_a_failing_command_is_one_line_before_anything_is_sent(sqlite_shell: Shell) -> None:
    with served(key=NEW) as (practice, base_url):
        options = ("--base-url", base_url, "--api-key-command", command(sqlite_shell, "!"))
        ran = sqlite_shell("run", file_of(sqlite_shell, *MODELS), *options)
        assert practice.counts.calls == 0
    assert ran.code == 2
    assert "failed with exit code 1: vault is sealed" in ran.said[0], ran.err
    assert len(ran.said) == 1
    assert sqlite_shell("jobs", "--json").lines in ([], ["[]"])


def test_a_command_that_fails_during_a_run_makes_requests_wait(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstay.llm.credentials.RETRY_SECONDS", (0.2, 0.2))
    with served(key=NEW) as (_, base_url):
        options = ("--base-url", base_url, "--api-key-command", command(sqlite_shell, OLD, "!", "!", NEW))
        ran = sqlite_shell("run", file_of(sqlite_shell, *MODELS), "--json", *options)
    assert ran.code == 0, ran.err
    assert (len(results(sqlite_shell)), asked(sqlite_shell)) == (3, 4)
    item = sqlite_shell("item", "show", f"{ran.rows[-1]['job']}-0", "--json").json
    assert item["attempt_count"] == 1


def test_a_worker_uses_the_command_of_its_settings(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(key=NEW) as (practice, base_url):
        assert sqlite_shell("submit", file_of(sqlite_shell, *MODELS), "--base-url", base_url).code == 0
        words = command(sqlite_shell, NEW).split()
        monkeypatch.setenv("BACKSTAY_API_KEY_COMMAND", json.dumps(words))
        assert sqlite_shell("tick", "--json").code == 0
        assert practice.counts.calls == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--api-key-command", "x", "--api-key-env", "Y"),
            "--api-key-env and --api-key-command cannot be used together",
        ),
        (("--api-key-command", "'x"), "the API key command is not valid: No closing quotation"),
        (("--api-key-command", ""), "the API key command is empty"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    sqlite_shell: Shell, options: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("Y", NEW)
    ran = sqlite_shell("run", file_of(sqlite_shell, *MODELS), "--base-url", "http://127.0.0.1:9/v1", *options)
    assert (ran.code, words in ran.said[0]) == (2, True), ran.err


def test_a_command_is_for_one_provider(sqlite_shell: Shell) -> None:
    path = file_of(sqlite_shell, "gpt-4o-mini", "groq:llama-3.3-70b-versatile")
    ran = sqlite_shell("run", path, "--api-key-command", "x")
    assert (ran.code, "--api-key-command works with one provider only" in ran.said[0]) == (2, True), ran.err


@pytest.mark.slow
def test_serve_refuses_a_command_that_fails(sqlite_shell: Shell) -> None:
    options = ("--base-url", "http://127.0.0.1:9/v1", "--api-key-command", command(sqlite_shell, "!"))
    ran = sqlite_shell("serve", "--port", "0", *options)
    assert (ran.code, "vault is sealed" in ran.err) == (2, True), ran.err
