"""What is written for readers is there and short."""

import ast
from pathlib import Path

import pytest

from tests.house.sources import PACKAGE, ROOT, name_of, python_files

README_LINES_MAX = 150


def is_too_long(text: str) -> bool:
    return len(text.splitlines()) >= README_LINES_MAX


def has_docstring(source: str) -> bool:
    return bool(ast.get_docstring(ast.parse(source)))


@pytest.mark.parametrize("path", sorted(ROOT.glob("README.md")), ids=name_of)
def test_the_readme_fits_on_a_page_or_two(path: Path) -> None:
    assert not is_too_long(path.read_text())


@pytest.mark.parametrize("path", python_files(PACKAGE), ids=name_of)
def test_a_module_opens_by_saying_what_it_is_for(path: Path) -> None:
    assert has_docstring(path.read_text())


def test_a_readme_of_150_lines_is_too_long() -> None:
    assert not is_too_long("line\n" * 149)
    assert is_too_long("line\n" * 150)


def test_a_module_without_a_docstring_is_found() -> None:
    assert has_docstring('"""Words."""\n')
    assert not has_docstring("")
    assert not has_docstring("# a comment\nx = 1\n")
