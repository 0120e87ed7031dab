"""Upper layers import lower ones, and the core imports nothing that could surprise it."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import PACKAGE, ROOT, offences, python_files

# What the standard library has for I/O, clocks, concurrency and the outside world is not for the core.
IMPURE = {
    "asyncio",
    "io",
    "logging",
    "os",
    "pathlib",
    "secrets",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
    "time",
}


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def impure_imports(source: str) -> set[str]:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(node.module or "")
    tops = {name.partition(".")[0] for name in imported if not name.startswith(f"{PACKAGE}.core")}
    return {top for top in tops if top in IMPURE or top not in sys.stdlib_module_names}


def test_the_core_is_pure() -> None:
    assert offences(python_files(f"{PACKAGE}/core"), impure_imports) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("core", "store"), ("store", "engine"), ("store", "handlers"), ("client", "engine"), ("engine", "llm")],
)
def test_an_import_against_the_layers_is_found(tmp_path: Path, importer: str, imported: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, text in (("", ""), (imported, ""), (importer, f"import {PACKAGE}.{imported}\n")):
        module = tmp_path / PACKAGE / name / "__init__.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(text)
    ran = lint_imports(tmp_path)
    assert ran.returncode == 1
    assert f"{PACKAGE}.{importer} -> {PACKAGE}.{imported}" in ran.stdout


def test_an_impure_import_is_found() -> None:
    source = "import random\nfrom time import time\nimport aiohttp.web\nfrom backstay.core import states\n"
    assert impure_imports(source) == {"time", "aiohttp"}
