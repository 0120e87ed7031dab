"""The project's own Python files, as the house rules see them."""

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
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


def offences(paths: Iterable[Path], flaws_of: Callable[[str], Collection[str]]) -> list[str]:
    """What these files do against a rule, each with the file's name."""
    return [f"{name_of(path)}: {flaw}" for path in paths for flaw in flaws_of(path.read_text(encoding="utf-8"))]


def functions(source: str) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, Function))
