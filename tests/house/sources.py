"""The project's own Python files, as the house rules see them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "backstay"
FOLDERS = (PACKAGE, "tests", "bench", "examples")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    """Every file below these folders but those of virtual environments and caches."""
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(source: str) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, Function))
