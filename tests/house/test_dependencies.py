"""Every library that the package imports is asked for by its own name, so that no other may take it away."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

import pytest

from tests.house.sources import PACKAGE, ROOT, offences, python_files

# Parts of another one: they come with it, in the version that it wants.
PART_OF = {
    "azure": "azure-identity",
    "billiard": "celery",
    "markupsafe": "jinja2",
    "pydantic-core": "pydantic",
    "starlette": "fastapi",
}
# Not ours to bring.
ELSEWHERE = {
    "boto3",
    "botocore",  # AWS Lambda has them
    "django",
    "django_tasks",
    "pytest",  # what is built on them is loaded by them
}


@cache
def declared() -> set[str]:
    """The distributions that pyproject.toml names, those for development aside."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: wanted for name, wanted in project["optional-dependencies"].items() if name not in ("dev", "docs")}
    lines = [*project["dependencies"], *(line for wanted in extras.values() for line in wanted)]
    return {normal(re.split(r"[\[<>=!~; ]", line)[0]) for line in lines}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(source: str) -> set[str]:
    """The outside modules that a source imports, by their first names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
    firsts = {name.partition(".")[0] for name in found}
    return firsts - set(sys.stdlib_module_names) - {PACKAGE, "__future__"}


def undeclared(source: str) -> set[str]:
    known = declared()
    return {module for module in imported(source) - ELSEWHERE if known.isdisjoint(brought_by(module))}


@cache
def brought_by(module: str) -> set[str]:
    """The distributions that have the module, or a part of it."""
    names = map(normal, packages_distributions().get(module, [module]))
    return {PART_OF.get(name, name) for name in names}


@pytest.mark.slow
def test_a_library_that_is_imported_is_declared():
    assert offences(python_files(PACKAGE), undeclared) == []


def test_one_that_came_with_another_is_found():
    assert undeclared("import multidict\nimport yarl\nfrom asyncpg import connect") == {"multidict"}
