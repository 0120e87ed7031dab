"""What is written for readers is there and short."""

import ast

from tests.house.sources import PACKAGE, ROOT, name_of, python_files

README_LINES_MAX = 150


def is_too_long(text: str) -> bool:
    return len(text.splitlines()) >= README_LINES_MAX


def has_docstring(source: str) -> bool:
    return bool(ast.get_docstring(ast.parse(source)))


def test_the_readme_fits_on_a_page_or_two() -> None:
    assert not is_too_long((ROOT / "README.md").read_text(encoding="utf-8"))


def test_a_module_opens_by_saying_what_it_is_for() -> None:
    modules = python_files(PACKAGE)
    assert [name_of(path) for path in modules if not has_docstring(path.read_text(encoding="utf-8"))] == []


def test_a_readme_of_150_lines_is_too_long() -> None:
    assert not is_too_long("line\n" * 149)
    assert is_too_long("line\n" * 150)


def test_a_module_without_a_docstring_is_found() -> None:
    assert has_docstring('"""Words."""\n')
    assert not has_docstring("")
    assert not has_docstring("# a comment\nx = 1\n")
