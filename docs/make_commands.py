"""Writes docs/commands.md out of the commands' own help: python docs/make_commands.py"""

from collections.abc import Iterator
from pathlib import Path

import click

from backstay.cli.main import EXIT_CODES, cli

PAGE = Path(__file__).with_name("commands.md")
WIDTH = 100

HEAD = """# Commands

Written by `python docs/make_commands.py` from what `--help` says. Data goes to stdout, everything else to stderr.
Off a terminal, and with `NO_COLOR` or `TERM=dumb`, there is no colour and no animation; there is never a question.

## Exit codes

| code | means |
|---|---|
"""


def leaves(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command below, groups first, as (full name, command, context)."""
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, _below(found, name, context))


def _below(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    names = ["-h", "--help"]
    return click.Context(command, parent, name, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=names)


def page() -> str:
    codes = "".join(f"| {code} | {means} |\n" for code, means in EXIT_CODES.items())
    sections = [
        f"## `{name}`\n\n```text\n{command.get_help(context)}\n```\n"
        for name, command, context in leaves(cli, _below(cli, "backstay", None))
    ]
    return HEAD + codes + "\n" + "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    click.echo(f"wrote {PAGE.name}")
