"""Help, version and the page about the commands."""

import subprocess
import sys

import click
import pytest

from backstay import __version__
from backstay.cli.command import LazyGroup
from backstay.cli.main import EXIT_CODES, cli
from docs.make_commands import PAGE, leaves, page
from tests.cli.shell import ROOT, Shell

HEAVY = {"alembic", "sqlalchemy", "pydantic", "rich", "structlog", "asyncpg", "prometheus_client", "asyncio", "sqlite3"}

ALL = [(name, command) for name, command, _ in leaves(cli, click.Context(cli, info_name="backstay"))]
LEAVES = [name for name, command in ALL if not isinstance(command, click.Group)]
GROUPS = [name for name, command in ALL if isinstance(command, click.Group)]

WITHOUT_DATABASE = {f"backstay {name}" for name in ("practice", "profiles", "providers")}


def loaded_by(*args: str) -> set[str]:
    """The top-level modules that a command has loaded when it ends."""
    code = f"import sys; from backstay.cli.main import run; run({list(args)!r}); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in ran.stderr.split()}


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["job", "--help"]])
def test_version_and_help_load_nothing_heavy(args: list[str]) -> None:
    loaded = loaded_by(*args)
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_the_help_of_a_command_loads_no_engine() -> None:
    for name in ("submit", "jobs", "job watch", "item show", "tick", "worker", "doctor"):
        assert loaded_by(*name.split(), "--help") & (HEAVY - {"asyncio"}) == set(), name


def test_version_is_said(sqlite_shell: Shell) -> None:
    assert sqlite_shell("--version").out == f"backstay {__version__}\n"
    assert sqlite_shell.process("--version").out == f"backstay {__version__}\n"


def test_without_a_command_the_help_is_shown(sqlite_shell: Shell) -> None:
    ran = sqlite_shell()
    assert ran.code == 0
    assert ran.out == sqlite_shell("--help").out


@pytest.mark.parametrize("name", [*LEAVES, *GROUPS])
def test_help_leads_with_examples(sqlite_shell: Shell, name: str) -> None:
    ran = sqlite_shell(*name.split()[1:], "--help")
    assert ran.code == 0
    usage, examples, first = [line for line in ran.lines if line][:3]
    assert usage.startswith(f"Usage: {name}")
    assert examples == "Examples:"
    assert "backstay" in first


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_speaks_json(name: str) -> None:
    command = dict(ALL)[name]
    assert "--json" in {option for parameter in command.params for option in parameter.opts}


def test_every_command_on_a_database_tells_the_same_rule_for_which_one() -> None:
    options = {name: {o.name: o for o in dict(ALL)[name].params if isinstance(o, click.Option)} for name in LEAVES}
    on_a_database = [found for found in options.values() if "db" in found]
    assert {name for name, found in options.items() if "db" not in found} == WITHOUT_DATABASE
    assert len({(found["db"].help, found["app"].help) for found in on_a_database}) == 1


def test_the_help_shows_the_exit_codes(sqlite_shell: Shell) -> None:
    out = sqlite_shell("--help").out
    for code, means in EXIT_CODES.items():
        assert f"{code:>5}  {means}" in out


@pytest.mark.parametrize("name", GROUPS)
def test_a_list_of_commands_says_what_its_commands_are_called(name: str) -> None:
    group = dict(ALL)[name]
    assert isinstance(group, LazyGroup)
    for own in group.lazy:
        loaded = group.get_command(click.Context(group), own)
        assert loaded is not None
        assert loaded.name == own


def test_the_page_about_the_commands_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python docs/make_commands.py"


@pytest.mark.parametrize("name", [name for name, _ in ALL])
def test_every_command_is_on_the_page(name: str) -> None:
    assert f"## `{name}`\n" in PAGE.read_text()
