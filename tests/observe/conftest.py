"""The shell of the commands' tests, for what only whole processes show."""

from tests.cli.conftest import folder, shell, sqlite_shell

__all__ = ["folder", "shell", "sqlite_shell"]
