"""What the files in deploy/ may say: commands that the command line takes, settings that there are."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import fields

import click

from backstay.cli.main import cli
from backstay.core.limits import Limits
from backstay.settings import PREFIX, Settings
from tests.house.sources import ROOT

DEPLOY = ROOT / "deploy"
LIMITS = {field.name for field in fields(Limits)}
FURTHER = {f"{PREFIX}CONFIG", f"{PREFIX}DEBUG"}


def unknown_settings(names: Iterable[str]) -> set[str]:
    """Of these variables, those that look like settings of ours and are none."""
    ours = {name for name in names if name.startswith(PREFIX)} - FURTHER
    known = set(Settings.model_fields) - {"limits"} | LIMITS
    return {name for name in ours if name.removeprefix(PREFIX).lower() not in known}


def parsed(command: str | Sequence[str]) -> click.Context:
    """The context of a sub-command, as our own parser reads it; what it does not take is raised. Nothing is run."""
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    with cli.make_context("backstay", words) as context:
        name, sub, rest = cli.resolve_command(context, context._protected_args + context.args)
        assert sub is not None
        return sub.make_context(name, rest, parent=context)


def variables(text: str) -> set[str]:
    """The variables that a file's text takes from the environment: ${NAME}, ${NAME:-default}, ${NAME:?why}."""
    return set(re.findall(r"\$\{([A-Z_]+)", text))
